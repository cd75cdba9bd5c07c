// Turns a schedule into a solution, or into the reason why it is not one; and
// chooses the solver.

#include "compiler/schedule/solvers.h"

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
  result.message = "peak memory of " + std::to_string(peak) +
                   " bytes exceeds the memory limit of " +
                   std::to_string(result.capBytes) + " bytes (" +
                   std::to_string(problem.baseBytes) +
                   " bytes outside the arena); largest in the arena:";
  for (const Contributor &c : result.largest)
    result.message += " '" + c.label + "' " + std::to_string(c.bytes);
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

} // namespace fsdpc::schedule
