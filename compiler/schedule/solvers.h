// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The solvers of the scheduling problem, one file each: none_prefetch.cpp,
// pre_post.cpp, auto_prefetch.cpp. All are deterministic, and the schedules
// they return pass `verify`.
#pragma once

#include "compiler/schedule/problem.h"

#include <string>
#include <variant>
#include <vector>

namespace fsdpc::schedule {

/// A schedule that keeps all limits, with its consequences.
struct Solution {
  Schedule schedule;
  Timeline timeline;
  /// Offsets in the arena, in the order of `liveIntervals`.
  Packing packing;
  /// baseBytes + packed peak, which is compared with the memory limit.
  int64_t peakBytes = 0;
};

/// The reason why there is no schedule: the problem is ill-formed, or the limit
/// on live gathers or the memory limit cannot be met.
struct Infeasible {
  /// A diagnostic: a lower-case fragment with the numbers and the contributors.
  std::string message;
  /// Set if the memory limit is exceeded: the smallest peak found, and the
  /// limit.
  int64_t peakBytes = 0, capBytes = 0;
  std::vector<Contributor> largest;
};

using Solved = std::variant<Solution, Infeasible>;

/// Checks the problem, then calls the solver of `problem.options.prefetch`. A
/// problem that fails its check is `Infeasible`, with the fault as its message;
/// the other solvers expect one that passes.
Solved solve(const Problem &problem);

/// Returns the least peak that is known to be possible: that of `solveNone`,
/// packed as small as the exact searches get. `solveHard` keeps a memory limit
/// of as much.
int64_t leastPeak(const Problem &problem);

/// As `solve`. Where that keeps no memory limit under `none` or `auto`, tries
/// the schedule of `leastPeak` at last, which takes up to half a second.
Solved solveHard(const Problem &problem);

/// Starts each collective directly before its wait, and waits for each
/// reduction where it starts: the least memory and the most exposed time.
Solved solveNone(const Problem &problem);

/// Prefetches by segments, as FSDP does with BACKWARD_PRE and BACKWARD_POST:
/// each gather starts before or after the compute of the segment before its
/// own. `mode` is `Prefetch::Pre` or `Prefetch::Post`. Starts are delayed if
/// the limit on live gathers requires it.
Solved solvePrePost(const Problem &problem, Prefetch mode);

/// Minimises the exposed time, then the memory. A heuristic: it tries several
/// walks over the ops and keeps the best result, which need not reach the lower
/// bound of bound.h.
Solved solveAuto(const Problem &problem);

/// Simulates and packs a schedule and checks it against the limits. For
/// solvers, and for schedules that were edited by hand.
Solved evaluate(const Problem &problem, Schedule schedule,
                const PackerOptions &packer = {});

} // namespace fsdpc::schedule
