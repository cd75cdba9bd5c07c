// Tests which units are computed again: small cases explained by hand, then
// random ones beside all subsets.

#include "compiler/schedule/recompute_sets.h"

#include <gmock/gmock.h>
#include <random>

using namespace fsdpc::schedule;
using testing::ElementsAre;
using testing::IsEmpty;

namespace {

// Equal units are added from the first on, one at a time: activations of the
// first units live the longest.
TEST(RecomputeSets, TakesEqualUnitsInOrder) {
  std::vector<RecomputeTrade> trades(3, {100, 5});
  EXPECT_THAT(cheapestRecomputeSets(trades),
              ElementsAre(IsEmpty(), ElementsAre(0), ElementsAre(0, 1),
                          ElementsAre(0, 1, 2)));
}

// The unit 1 frees the most per µs; but for more than 100 bytes it is cheaper
// to compute the unit 0 again than to add the unit 2 to it.
TEST(RecomputeSets, IsNoGreedyChoice) {
  std::vector<RecomputeTrade> trades = {{160, 6}, {100, 3}, {60, 4}};
  EXPECT_THAT(cheapestRecomputeSets(trades),
              ElementsAre(IsEmpty(), ElementsAre(1), ElementsAre(0),
                          ElementsAre(0, 1), ElementsAre(0, 1, 2)));
}

TEST(RecomputeSets, LeavesOutWhatFreesNothing) {
  EXPECT_THAT(cheapestRecomputeSets({{0, 1}, {-50, 1}, {10, 1}}),
              ElementsAre(IsEmpty(), ElementsAre(2)));
  EXPECT_THAT(cheapestRecomputeSets({}), ElementsAre(IsEmpty()));
}

struct Sum {
  int64_t bytes = 0;
  double us = 0;
};

Sum sumOf(const std::vector<RecomputeTrade> &trades, unsigned subset) {
  Sum sum;
  for (size_t i = 0; i < trades.size(); ++i)
    if (subset >> i & 1) {
      sum.bytes += trades[i].freedBytes;
      sum.us += trades[i].costUs;
    }
  return sum;
}

// The sum of a case's bytes divides the parts in which the solver counts, so
// that nothing is rounded. No subset frees as much as a set for less time.
TEST(RecomputeSets, AreTheCheapestOfAllSubsets) {
  std::mt19937 random(20261123);
  for (int round = 0; round < 200; ++round) {
    std::vector<RecomputeTrade> trades(8);
    int64_t left = 2048;
    for (size_t i = 0; i + 1 < trades.size(); ++i) {
      trades[i] = {1 + int64_t(random() % (left / 4)),
                   double(1 + random() % 1000)};
      left -= trades[i].freedBytes;
    }
    trades.back() = {left, double(1 + random() % 1000)};
    Sum before = {-1, -1};
    for (const RecomputeSet &set : cheapestRecomputeSets(trades)) {
      unsigned subset = 0;
      for (int i : set)
        subset |= 1u << i;
      Sum sum = sumOf(trades, subset);
      EXPECT_GT(sum.bytes, before.bytes) << "round " << round;
      EXPECT_GT(sum.us, before.us) << "round " << round;
      before = sum;
      for (unsigned other = 0; other < 1u << trades.size(); ++other)
        if (Sum their = sumOf(trades, other); their.bytes >= sum.bytes) {
          EXPECT_GE(their.us, sum.us) << "round " << round;
        }
    }
    EXPECT_EQ(before.bytes, 2048) << "round " << round;
  }
}

} // namespace
