// The solvers of the scheduling problem, one file each: none_prefetch.cpp,
// pre_post.cpp, auto_prefetch.cpp. All are deterministic, and what they return
// passes `verify`.
#ifndef FSDPC_COMPILER_SCHEDULE_SOLVERS_H
#define FSDPC_COMPILER_SCHEDULE_SOLVERS_H

#include "compiler/schedule/problem.h"

#include <string>
#include <variant>
#include <vector>

namespace fsdpc::schedule {

struct Solution {
  Schedule schedule;
  Timeline timeline;
  /// The arena: offsets in the order of `liveIntervals`.
  Packing packing;
  /// baseBytes + packed peak: what is compared with the memory limit.
  int64_t peakBytes = 0;
};

/// Why there is no schedule: the problem is ill-formed, the limit on live
/// gathers or the memory limit cannot be kept.
struct Infeasible {
  /// A lower-case fragment with the numbers and the contributors.
  std::string message;
  /// Set where the memory limit is exceeded, by the smallest peak found.
  int64_t peakBytes = 0, capBytes = 0;
  std::vector<Contributor> largest;
};

using Solved = std::variant<Solution, Infeasible>;

/// Checks the problem, then calls the solver of `problem.options.prefetch`.
Solved solve(const Problem &problem);

/// Each start directly before its wait; each reduction waited for where it
/// starts. The least memory, the most exposed time.
Solved solveNone(const Problem &problem);

/// Prefetch by the segments: `Prefetch::Pre` or `Prefetch::Post`.
Solved solvePrePost(const Problem &problem, Prefetch mode);

/// Least exposed time, then least memory.
Solved solveAuto(const Problem &problem);

/// Simulates and packs a schedule and holds it against the limits; for solvers
/// and for those who edit schedules.
Solved evaluate(const Problem &problem, Schedule schedule,
                const PackerOptions &packer = {});

} // namespace fsdpc::schedule

#endif // FSDPC_COMPILER_SCHEDULE_SOLVERS_H
