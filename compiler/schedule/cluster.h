// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A schedule on many ranks that are not equally fast. All ranks run the same
// schedule; a collective begins when the last of them has started it, so one
// slow rank delays all. With equal ranks this is the schedule's own timeline.
#pragma once

#include "compiler/schedule/problem.h"

namespace fsdpc::schedule {

/// Says how ranks differ. The defaults make them equal.
struct Unevenness {
  /// The standard deviation of an op's duration, as a share of it. Each op of
  /// each rank is drawn on its own.
  double jitter = 0;
  /// The number of slow ranks, which are drawn at random. All ops of a slow
  /// rank take longer by the fraction `straggling`.
  int stragglers = 0;
  double straggling = 0;
  /// Equal seeds draw equal numbers, on every machine.
  uint64_t seed = 0;

  bool equalRanks() const {
    return jitter == 0 && (stragglers == 0 || straggling == 0);
  }
};

/// The times of the ranks.
struct ClusterTimeline {
  /// When the last rank ends.
  double stepUs = 0;
  /// The time for which waits stall a rank: the mean over the ranks, and the
  /// maximum.
  double meanExposedUs = 0, mostExposedUs = 0;
  /// Per collective: how long its wait stalls a rank, as a mean over the ranks.
  std::vector<double> exposedUs;
};

/// Simulates the schedule on `ranks` ranks. Every collective that is not local
/// joins all of them, also those that the strategy sends within groups: their
/// step is a bound from above if ranks differ. Every collective must be started
/// before it is waited for. Costs O(ranks × ops), or O(ops) with equal ranks.
ClusterTimeline simulateCluster(const Problem &problem,
                                const Schedule &schedule, int ranks,
                                const Unevenness &unevenness);

} // namespace fsdpc::schedule
