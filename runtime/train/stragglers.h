// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds a rank that keeps all others waiting, for example on a machine that is
// throttled or shared. The exchange of each step tells every rank how long each
// one computed, so the slow rank names itself.
//
// Two measures are compared. The elapsed time reveals a rank that gets too
// little processor time. Where ranks share processors, it hides a rank with
// more work: that rank runs alone at the end, and so faster. The processor time
// reveals it, however many ranks share a processor.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace fsdpc::runtime {

/// What each rank took for a step, in milliseconds, by rank.
struct ComputeTimes {
  std::vector<double> elapsed;   ///< without waiting for other ranks
  std::vector<double> processor; ///< of the rank's process; 0: not known
};

class Stragglers {
public:
  /// A rank is slow if its typical step, the median of the last `window` steps,
  /// takes at least `ratio` times as long as that of the median rank, and
  /// `leastExcess` milliseconds longer: tiny steps vary by more than that. It
  /// has recovered when its typical step takes less than `recovered` times as
  /// long. The ratio is below 1.3, so that a rank whose steps vary around 1.3
  /// times is found.
  static constexpr double ratio = 1.25, recovered = 1.15, leastExcess = 10;
  static constexpr size_t window = 20;

  /// Takes the times of a step. Allocates in its first call only.
  void add(const ComputeTimes &times);
  /// Returns true after the step with which the rank has become slow, and again
  /// only after it has recovered.
  bool turnedSlow(int rank) const { return turned[size_t(rank)]; }

  /// What one measure says of a rank: milliseconds of a typical step.
  struct Verdict {
    double own, median;
    bool isProcessorTime;
  };
  /// Returns the measure by which the rank is farther from the median. Of two
  /// ranks the median is the faster one's time.
  Verdict verdictOn(int rank) const;

private:
  struct Measure {
    void add(const std::vector<double> &times, size_t step);
    bool exceeds(size_t rank, double factor) const;

    std::vector<std::array<double, window>> last; ///< by rank, as a ring
    std::vector<double> typical;                  ///< by rank
    std::vector<double> sorted;
    double median = 0;
  };

  Measure elapsed, processor;
  size_t steps = 0;
  std::vector<bool> slow, turned; ///< by rank
};

} // namespace fsdpc::runtime
