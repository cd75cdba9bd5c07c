// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tests what is computed again: small cases explained by hand, then random ones
// beside all subsets.

#include "compiler/schedule/recompute_cut.h"
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
  std::vector<UnitTrades> units(3, {{100, 5}});
  EXPECT_THAT(cheapestRecomputeSets(units),
              ElementsAre(ElementsAre(0, 0, 0), ElementsAre(1, 0, 0),
                          ElementsAre(1, 1, 0), ElementsAre(1, 1, 1)));
}

// The unit 1 frees the most per µs; but for more than 100 bytes it is cheaper
// to compute the unit 0 again than to add the unit 2 to it.
TEST(RecomputeSets, IsNoGreedyChoice) {
  std::vector<UnitTrades> units = {{{160, 6}}, {{100, 3}}, {{60, 4}}};
  EXPECT_THAT(cheapestRecomputeSets(units),
              ElementsAre(ElementsAre(0, 0, 0), ElementsAre(0, 1, 0),
                          ElementsAre(1, 0, 0), ElementsAre(1, 1, 0),
                          ElementsAre(1, 1, 1)));
}

// The cheap part of both units comes before the dear rest of either.
TEST(RecomputeSets, TakesOneTradeOfAUnit) {
  std::vector<UnitTrades> units(2, {{100, 1}, {200, 9}});
  EXPECT_THAT(cheapestRecomputeSets(units),
              ElementsAre(ElementsAre(0, 0), ElementsAre(1, 0),
                          ElementsAre(1, 1), ElementsAre(2, 1),
                          ElementsAre(2, 2)));
}

TEST(RecomputeSets, LeavesOutWhatFreesNothing) {
  EXPECT_THAT(cheapestRecomputeSets({{{0, 1}}, {{-50, 1}}, {}, {{10, 1}}}),
              ElementsAre(ElementsAre(0, 0, 0, 0), ElementsAre(0, 0, 0, 1)));
  EXPECT_THAT(cheapestRecomputeSets({}), ElementsAre(IsEmpty()));
}

// The sum of a case's bytes divides the parts in which the solver counts, so
// that nothing is rounded. No choice frees as much as a set for less time.
TEST(RecomputeSets, AreTheCheapestOfAllChoices) {
  std::mt19937 random(20261123);
  for (int round = 0; round < 200; ++round) {
    constexpr int count = 5;
    std::vector<UnitTrades> units(count);
    int64_t left = 2048;
    for (int i = 0; i < count; ++i) {
      int64_t most = i + 1 < count ? 2 + int64_t(random() % (left / 3)) : left;
      left -= most;
      units[i] = {{1 + int64_t(random() % most), double(1 + random() % 500)},
                  {most, double(1 + random() % 1000)}};
    }
    auto sumOf = [&](const RecomputeSet &set) {
      RecomputeTrade sum;
      for (int i = 0; i < count; ++i)
        if (set[i] > 0) {
          sum.freedBytes += units[i][set[i] - 1].freedBytes;
          sum.costUs += units[i][set[i] - 1].costUs;
        }
      return sum;
    };
    RecomputeTrade before = {-1, -1};
    for (const RecomputeSet &set : cheapestRecomputeSets(units)) {
      RecomputeTrade sum = sumOf(set);
      EXPECT_GT(sum.freedBytes, before.freedBytes) << "round " << round;
      EXPECT_GT(sum.costUs, before.costUs) << "round " << round;
      before = sum;
      for (int code = 0; code < 3 * 3 * 3 * 3 * 3; ++code) {
        RecomputeSet other;
        for (int i = 0, rest = code; i < count; ++i, rest /= 3)
          other.push_back(rest % 3);
        RecomputeTrade their = sumOf(other);
        if (their.freedBytes >= sum.freedBytes) {
          EXPECT_GE(their.costUs, sum.costUs) << "round " << round;
        }
      }
    }
    EXPECT_EQ(before.freedBytes, 2048) << "round " << round;
  }
}

std::vector<std::vector<int>> opsOf(const std::vector<RepeatedOps> &options) {
  std::vector<std::vector<int>> ops;
  for (const RepeatedOps &option : options)
    ops.push_back(option.ops);
  return ops;
}

// A chain x -> op 0 -> 100 bytes -> op 1 -> 300 bytes, of which the backward
// reads both results, and x is kept anyway. The second frees more for its time.
TEST(RecomputeCut, TakesTheMostBytesPerTimeFirst) {
  RepeatableUnit unit;
  unit.ops = {{4}, {5}};
  unit.values = {{100, 0, true, {1}}, {300, 1, true, {}}};
  EXPECT_THAT(opsOf(repeatingOptions(unit)),
              ElementsAre(IsEmpty(), ElementsAre(1), ElementsAre(0, 1)));
}

// The result of op 1 is read, and computed from that of op 0, which the
// backward does not read itself: computing op 1 alone keeps 90 bytes for it, so
// both run again at once.
TEST(RecomputeCut, RunsAgainWhatAnOpReads) {
  RepeatableUnit unit;
  unit.ops = {{1}, {5}};
  unit.values = {{90, 0, false, {1}}, {100, 1, true, {}}};
  EXPECT_THAT(opsOf(repeatingOptions(unit)),
              ElementsAre(IsEmpty(), ElementsAre(0, 1)));
}

// A value from elsewhere must be kept for its readers, which pays here
// only without op 1: 80 bytes for the 100 of op 0.
TEST(RecomputeCut, CountsWhatItKeepsInstead) {
  RepeatableUnit unit;
  unit.ops = {{2}, {2}};
  unit.values = {{80, std::nullopt, false, {0}},
                 {100, 0, true, {}},
                 {70, std::nullopt, false, {1}},
                 {60, 1, true, {}}};
  EXPECT_THAT(opsOf(repeatingOptions(unit)),
              ElementsAre(IsEmpty(), ElementsAre(0)));
}

// An op that always runs again costs nothing, and what it reads is needed.
TEST(RecomputeCut, RunsForTheOpsThatAlwaysDo) {
  RepeatableUnit unit;
  unit.ops = {{3}, {0, true}};
  unit.values = {{50, 0, false, {1}}, {200, 1, true, {}}};
  std::vector<RepeatedOps> options = repeatingOptions(unit);
  ASSERT_THAT(opsOf(options), ElementsAre(IsEmpty(), ElementsAre(0)));
  EXPECT_EQ(options[0].keptBytes, 50);
  EXPECT_EQ(options[1].keptBytes, 0);
  EXPECT_EQ(options[1].costUs, 3);
}

RepeatableUnit randomUnit(std::mt19937 &random) {
  RepeatableUnit unit;
  int count = 2 + int(random() % 8);
  for (int i = 0; i < count; ++i)
    unit.ops.push_back({double(1 + random() % 50), random() % 6 == 0});
  for (int i = -2; i < count; ++i) {
    KeepableValue value;
    value.bytes = 1 + int64_t(random() % 50);
    value.isRead = random() % 2;
    if (i >= 0)
      value.producer = i;
    for (int reader = std::max(i + 1, 0); reader < count; ++reader)
      if (random() % 3 == 0)
        value.readers.push_back(reader);
    unit.values.push_back(value);
  }
  return unit;
}

// No subset of ops lies below the line of two neighbours among the options, and
// none keeps less than the last.
TEST(RecomputeCut, IsTheHullOfAllSubsets) {
  std::mt19937 random(20261125);
  for (int round = 0; round < 300; ++round) {
    RepeatableUnit unit = randomUnit(random);
    std::vector<RepeatedOps> options = repeatingOptions(unit);
    EXPECT_TRUE(options.front().ops.empty());
    for (unsigned subset = 0; subset < 1u << unit.ops.size(); ++subset) {
      std::vector<int> ops;
      for (int i = 0; i < std::ssize(unit.ops); ++i)
        if ((subset >> i & 1) && !unit.ops[i].always)
          ops.push_back(i);
      RepeatedOps other = costOfRepeating(unit, ops);
      EXPECT_GE(other.keptBytes, options.back().keptBytes) << "round " << round;
      for (size_t i = 0; i + 1 < options.size(); ++i) {
        double bytes = double(options[i].keptBytes - options[i + 1].keptBytes);
        double us = options[i + 1].costUs - options[i].costUs;
        EXPECT_GT(bytes, 0) << "round " << round;
        EXPECT_GT(us, 0) << "round " << round;
        EXPECT_GE((other.costUs - options[i].costUs) * bytes +
                      double(other.keptBytes - options[i].keptBytes) * us,
                  -1e-6)
            << "round " << round;
      }
    }
  }
}

} // namespace
