// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The classic dynamic program of the knapsack problem with several choices per
// item, over a table of units and bytes. Its last row holds the cheapest set
// for every number of bytes at once, which is what a search for a memory limit
// needs.
#include "compiler/schedule/recompute_sets.h"

#include <algorithm>
#include <limits>

namespace fsdpc::schedule {

namespace {

// Bytes are counted in these parts of all that can be freed.
constexpr int64_t parts = 2048;

class Knapsack {
public:
  explicit Knapsack(const std::vector<UnitTrades> &units);

  /// Returns the number of parts that all units free together at most.
  int64_t capacity() const { return std::ssize(cost) - 1; }
  /// Returns the time of the cheapest set that frees at least `wanted` parts.
  double costOf(int64_t wanted) const { return cost[wanted]; }
  /// Returns that set.
  RecomputeSet best(int64_t wanted) const;

private:
  std::vector<std::vector<int64_t>> freed; // in parts, by unit and trade
  std::vector<double> cost;                // of the best set, by parts
  // The choice in unit i of the best set of the units i …, by i and parts.
  std::vector<std::vector<int>> takes;
};

// At least one, so that a trade which frees little still counts.
int64_t partsOf(int64_t bytes, int64_t sum) {
  return bytes <= 0
             ? 0
             : std::max<int64_t>(1, static_cast<int64_t>(
                                        static_cast<double>(bytes) /
                                            static_cast<double>(sum) * parts +
                                        0.5));
}

int64_t mostOf(const UnitTrades &unit) {
  int64_t most = 0;
  for (const RecomputeTrade &trade : unit)
    most = std::max(most, trade.freedBytes);
  return most;
}

Knapsack::Knapsack(const std::vector<UnitTrades> &units) {
  int64_t sum = 0, capacity = 0;
  for (const UnitTrades &unit : units)
    sum += mostOf(unit);
  for (const UnitTrades &unit : units) {
    std::vector<int64_t> &row = freed.emplace_back();
    for (const RecomputeTrade &trade : unit)
      row.push_back(partsOf(trade.freedBytes, sum));
    capacity += partsOf(mostOf(unit), sum);
  }
  cost.assign(capacity + 1, std::numeric_limits<double>::infinity());
  cost[0] = 0;
  // Backwards over the units, so that among equals `best` finds the first.
  takes.assign(units.size(), std::vector<int>(capacity + 1));
  for (size_t i = units.size(); i-- > 0;) {
    // From the most parts down, so that what is read is still without the unit.
    for (int64_t wanted = capacity; wanted > 0; --wanted) {
      for (size_t trade = 0; trade < units[i].size(); ++trade) {
        int64_t more = freed[i][trade];
        double with =
            units[i][trade].costUs + (more < wanted ? cost[wanted - more] : 0);
        if (more == 0 || with > cost[wanted] ||
            with == std::numeric_limits<double>::infinity())
          continue;
        cost[wanted] = with;
        takes[i][wanted] = static_cast<int>(trade) + 1;
      }
    }
  }
}

RecomputeSet Knapsack::best(int64_t wanted) const {
  RecomputeSet set(freed.size());
  for (size_t i = 0; i < freed.size() && wanted > 0; ++i) {
    set[i] = takes[i][wanted];
    if (set[i] > 0)
      wanted = std::max<int64_t>(wanted - freed[i][set[i] - 1], 0);
  }
  return set;
}

} // namespace

std::vector<RecomputeSet>
cheapestRecomputeSets(const std::vector<UnitTrades> &units) {
  Knapsack knapsack(units);
  std::vector<RecomputeSet> sets = {RecomputeSet(units.size())};
  for (int64_t wanted = 1; wanted <= knapsack.capacity(); ++wanted) {
    // Among sets of one cost the last frees the most.
    if (sets.size() > 1 &&
        knapsack.costOf(wanted) == knapsack.costOf(wanted - 1))
      sets.pop_back();
    if (RecomputeSet set = knapsack.best(wanted); set != sets.back())
      sets.push_back(std::move(set));
  }
  return sets;
}

} // namespace fsdpc::schedule
