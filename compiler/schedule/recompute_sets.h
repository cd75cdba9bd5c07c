// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds what is worth computing again in all units together, for any number of
// bytes that a step must save.
#pragma once

#include <cstdint>
#include <vector>

namespace fsdpc::schedule {

/// The bytes that computing ops again in the backward saves, and its cost.
struct RecomputeTrade {
  int64_t freedBytes = 0; ///< kept from forward to backward, and then no longer
  double costUs = 0;      ///< of the repeated ops
};

/// The ways to compute ops of one unit again, of which at most one is taken.
using UnitTrades = std::vector<RecomputeTrade>;

/// The choice in each unit: 0 for nothing, or 1 + the index of a trade.
using RecomputeSet = std::vector<int>;

/// Returns the sets from none to all, each of which frees more bytes than the
/// one before it for more time. Each is the cheapest set that frees what it
/// frees: a knapsack, solved exactly up to a rounding of a trade's bytes to
/// 1/2048 of the most that can be freed. Trades that free nothing are in no
/// set. Among trades of equal worth those of the first units are taken, whose
/// activations live the longest.
std::vector<RecomputeSet>
cheapestRecomputeSets(const std::vector<UnitTrades> &units);

} // namespace fsdpc::schedule
