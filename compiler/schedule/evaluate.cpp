// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns a schedule into a solution, or into the reason why it is not one;
// chooses the solver; and packs as hard as it gets where a limit depends on
// that.

#include "compiler/schedule/pack_hard.h"
#include "compiler/schedule/placement.h"
#include "compiler/schedule/solvers.h"
#include "runtime/support/concat.h"

#include <algorithm>

namespace fsdpc::schedule {

// Returns the error for a packing above the limit, with the largest
// contributors.
static Infeasible overLimit(const Problem &problem,
                            const std::vector<Interval> &intervals,
                            int64_t peak) {
  Infeasible result;
  result.peakBytes = peak;
  result.capBytes = *problem.options.memoryLimit;
  result.largest = largestContributors(intervals);
  result.message =
      concat("planned peak of ", peak, " bytes exceeds the memory limit of ",
             result.capBytes, " bytes (", problem.baseBytes,
             " bytes outside the arena); largest in the arena:");
  for (const Contributor &c : result.largest)
    result.message += concat(" '", c.label, "' ", c.bytes);
  return result;
}

Solved evaluate(const Problem &problem, Schedule schedule,
                const PackerOptions &packer) {
  // Places come before memory, since only a complete schedule has live ranges.
  // peakBytes stays 0 in this answer: it has not been measured.
  if (std::vector<Violation> violations = verifyPlaces(problem, schedule);
      !violations.empty()) {
    Infeasible result;
    result.message = violations.front().message;
    return result;
  }
  std::vector<Interval> intervals = liveIntervals(problem, schedule);
  PackerOptions options = packer;
  // The packer sees the arena only, so what lies outside is taken off the
  // limit.
  if (problem.options.memoryLimit)
    options.cap = *problem.options.memoryLimit - problem.baseBytes;
  Solution solution;
  solution.packing = pack(intervals, options);
  if (!solution.packing.error.empty()) {
    Infeasible result;
    result.message = solution.packing.error;
    return result;
  }
  solution.peakBytes = problem.baseBytes + solution.packing.peak;
  if (problem.options.memoryLimit &&
      solution.peakBytes > *problem.options.memoryLimit)
    return overLimit(problem, intervals, solution.peakBytes);
  solution.timeline = simulate(problem, schedule);
  solution.schedule = std::move(schedule);
  return solution;
}

int64_t leastPeak(const Problem &problem) {
  return problem.baseBytes +
         packHard(liveIntervals(problem, noneSchedule(problem))).peak;
}

// The last resort for a limit that nothing has kept: the schedule of the least
// memory, with the exact searches of the packer, which are too slow for each of
// the schedules that a solver tries.
static Solved packHarder(const Problem &problem, Infeasible over) {
  Solution solution;
  solution.schedule = noneSchedule(problem);
  std::vector<Interval> intervals = liveIntervals(problem, solution.schedule);
  if (problem.baseBytes + livePeak(intervals).bytes > over.capBytes ||
      !verifyPlaces(problem, solution.schedule).empty())
    return over;
  solution.packing = packHard(intervals);
  solution.peakBytes = problem.baseBytes + solution.packing.peak;
  if (solution.peakBytes > over.capBytes) {
    over.peakBytes = std::min(over.peakBytes, solution.peakBytes);
    return over;
  }
  solution.timeline = simulate(problem, solution.schedule);
  return solution;
}

// Solvers may rely on a checked problem.
Solved solve(const Problem &problem) {
  if (std::string message = problem.check(); !message.empty()) {
    Infeasible result;
    result.message = message;
    return result;
  }
  switch (problem.options.prefetch) {
  case Prefetch::None:
    return solveNone(problem);
  case Prefetch::Pre:
  case Prefetch::Post:
    return solvePrePost(problem, problem.options.prefetch);
  case Prefetch::Auto:
    break;
  }
  return solveAuto(problem);
}

Solved solveHard(const Problem &problem) {
  Solved solved = solve(problem);
  Prefetch mode = problem.options.prefetch;
  auto *over = std::get_if<Infeasible>(&solved);
  bool isRule = mode == Prefetch::Pre || mode == Prefetch::Post;
  if (!over || over->capBytes == 0 || isRule)
    return solved;
  return packHarder(problem, std::move(*over));
}

} // namespace fsdpc::schedule
