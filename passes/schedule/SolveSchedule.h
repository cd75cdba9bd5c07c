// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Solves a module's schedule without writing it.
#pragma once

#include "compiler/analysis/RankMemory.h"
#include "compiler/schedule/auto_prefetch.h"
#include "passes/schedule/ScheduleIR.h"

#include <memory>

namespace fsdpc::passes {

/// @microbatch as the problem of its schedule, with the options of the compile
/// and the memory outside the arena as base bytes.
struct MicrobatchProblem {
  ScheduleIR ir;
  analysis::RankMemory memory;
};

/// Reads the problem of a module whose collectives are in one piece. Erases
/// gathers that nothing reads, which have no place in a problem.
llvm::FailureOr<MicrobatchProblem> readProblem(mlir::ModuleOp module);

/// Erases gathers that nothing reads, and their frees.
void eraseUnusedGathers(mlir::func::FuncOp function);

/// Solves the problem. Without a cap, `auto` may use as much memory as `pre`,
/// so that its shorter time is not bought with memory that nobody has allowed.
/// A memory limit is kept wherever that is known to be possible
/// (schedule::solveHard).
schedule::Solved solveProblem(schedule::Problem &problem);

/// The schedule that a module would get. The time that it may take is known at
/// once; it is packed when that is asked for.
class ScheduleEstimate {
public:
  /// Reads a module whose collectives are in one piece. Fails if the problem
  /// has a fault.
  static llvm::FailureOr<std::unique_ptr<ScheduleEstimate>>
  of(mlir::ModuleOp module);

  /// Return the time of a microbatch without a memory limit, and the time that
  /// it has if all that is live within the limit can be packed (infinity if
  /// that is nothing).
  double freeUs();
  double hopedUs();

  /// The result of solveProblem.
  struct Found {
    bool fits = false;
    double microbatchUs = 0; ///< if it fits
    /// The peak of the schedule, or the least one found if none fits, or 0 if
    /// something other than the memory limit rules a schedule out.
    int64_t peakBytes = 0;
  };
  const Found &packed();
  /// As `packed`, but returns nothing if the microbatch surely takes `mostUs`
  /// or more and it is not known whether it fits.
  std::optional<Found> packedWithin(double mostUs);
  Found packedHard() const;

private:
  explicit ScheduleEstimate(schedule::Problem problem)
      : problem(std::move(problem)) {}

  schedule::Problem problem;
  std::optional<schedule::AutoSearch> search; ///< for `auto`
  std::optional<Found> found;
};

} // namespace fsdpc::passes
