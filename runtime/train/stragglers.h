// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds a rank that keeps all others waiting: a machine that is throttled, or
// shared with something else. Every rank knows how long each computed, since
// the exchange of each step carries it, so the slow one names itself.
#pragma once

#include <cstddef>
#include <vector>

namespace fsdpc::runtime {

class Stragglers {
public:
  /// A rank is slow if it computes for at least `ratio` times the median, and
  /// for `leastExcess` milliseconds longer: tiny steps vary by more than that.
  static constexpr double ratio = 1.3, leastExcess = 10;
  static constexpr int patience = 20; ///< steps in a row

  /// Takes the milliseconds that each rank computed in a step. Allocates in its
  /// first call only.
  void add(const std::vector<double> &milliseconds);
  /// Returns true after the step with which the rank has been slow for
  /// `patience` steps in a row, and again only after a step in which it was
  /// not.
  bool turnedSlow(int rank) const { return slow[size_t(rank)] == patience; }
  /// Returns the median of the last step; of two ranks the faster one's time.
  double median() const { return middle; }

private:
  std::vector<int> slow; ///< by rank: steps in a row
  std::vector<double> sorted;
  double middle = 0;
};

} // namespace fsdpc::runtime
