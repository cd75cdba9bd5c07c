// The classic dynamic program of the knapsack problem, over a table of trades
// and bytes. Its last row holds the cheapest set for every number of bytes at
// once, which is what a search for a memory limit needs.
#include "compiler/schedule/recompute_sets.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace fsdpc::schedule {

namespace {

// Bytes are counted in these parts of all that can be freed.
constexpr int64_t parts = 2048;

class Knapsack {
public:
  explicit Knapsack(const std::vector<RecomputeTrade> &trades);

  /// Returns the number of parts that all trades free together.
  int64_t capacity() const { return std::ssize(cost) - 1; }
  /// Returns the time of the cheapest set that frees at least `wanted` parts.
  double costOf(int64_t wanted) const { return cost[wanted]; }
  /// Returns that set.
  RecomputeSet best(int64_t wanted) const;

private:
  std::vector<int64_t> freed; // in parts, by trade
  std::vector<double> cost;   // of the best set, by parts
  // Tells whether the best set of the trades 0 … i takes the trade i, by i and
  // parts.
  std::vector<std::vector<bool>> takes;
};

// At least one, so that a trade which frees little still counts.
int64_t partsOf(int64_t bytes, int64_t sum) {
  return bytes <= 0
             ? 0
             : std::max<int64_t>(
                   1, static_cast<int64_t>(
                          static_cast<double>(bytes) / sum * parts + 0.5));
}

Knapsack::Knapsack(const std::vector<RecomputeTrade> &trades) {
  int64_t sum = 0;
  for (const RecomputeTrade &trade : trades)
    sum += std::max<int64_t>(trade.freedBytes, 0);
  for (const RecomputeTrade &trade : trades)
    freed.push_back(partsOf(trade.freedBytes, sum));
  int64_t most = std::accumulate(freed.begin(), freed.end(), int64_t{0});
  cost.assign(most + 1, std::numeric_limits<double>::infinity());
  cost[0] = 0;
  // Backwards over the trades, so that among equals `best` finds the first.
  takes.assign(trades.size(), std::vector<bool>(most + 1));
  for (size_t i = trades.size(); i-- > 0;) {
    if (freed[i] == 0)
      continue;
    for (int64_t wanted = most; wanted > 0; --wanted) {
      double with =
          trades[i].costUs + cost[std::max<int64_t>(wanted - freed[i], 0)];
      if (with > cost[wanted])
        continue;
      cost[wanted] = with;
      takes[i][wanted] = with < std::numeric_limits<double>::infinity();
    }
  }
}

RecomputeSet Knapsack::best(int64_t wanted) const {
  RecomputeSet set;
  for (size_t i = 0; i < freed.size() && wanted > 0; ++i)
    if (takes[i][wanted]) {
      set.push_back(static_cast<int>(i));
      wanted = std::max<int64_t>(wanted - freed[i], 0);
    }
  return set;
}

} // namespace

std::vector<RecomputeSet>
cheapestRecomputeSets(const std::vector<RecomputeTrade> &trades) {
  Knapsack knapsack(trades);
  std::vector<RecomputeSet> sets = {{}};
  for (int64_t wanted = 1; wanted <= knapsack.capacity(); ++wanted) {
    // Among sets of one cost the last frees the most.
    if (sets.size() > 1 &&
        knapsack.costOf(wanted) == knapsack.costOf(wanted - 1))
      sets.pop_back();
    if (RecomputeSet set = knapsack.best(wanted);
        sets.empty() || set != sets.back())
      sets.push_back(std::move(set));
  }
  return sets;
}

} // namespace fsdpc::schedule
