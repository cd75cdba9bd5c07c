// Solves a module's schedule without writing it.
#pragma once

#include "compiler/analysis/RankMemory.h"
#include "compiler/schedule/solvers.h"
#include "passes/schedule/ScheduleIR.h"

namespace fsdpc::passes {

// @microbatch as the problem of its schedule, with the options of the compile
// and the memory outside the arena as base bytes.
struct MicrobatchProblem {
  ScheduleIR ir;
  analysis::RankMemory memory;
};

// Reads the problem of a module whose collectives are in one piece. Erases
// gathers that nothing reads, which have no place in a problem.
llvm::FailureOr<MicrobatchProblem> readProblem(mlir::ModuleOp module);

// Erases gathers that nothing reads, and their frees.
void eraseUnusedGathers(mlir::func::FuncOp function);

// Solves the problem. Without a cap, `auto` may use as much memory as `pre`, so
// that its shorter time is not bought with memory that nobody has allowed.
// With `hard` a memory limit is kept wherever that is known to be possible
// (schedule::solveHard).
schedule::Solved solveProblem(schedule::Problem &problem, bool hard = true);

// Describes the schedule that a module would get.
struct ScheduleEstimate {
  bool fits = false;
  double microbatchUs = 0; // if it fits
  double lostUs = 0;       // of it, what a microbatch takes beyond its ops
  // The peak of the schedule, or the least one found if none fits.
  int64_t peakBytes = 0;
};

// Estimates a module whose collectives are in one piece, as solveProblem does.
// Fails if something other than the memory limit rules a schedule out.
llvm::FailureOr<ScheduleEstimate> estimateSchedule(mlir::ModuleOp module,
                                                   bool hard);

} // namespace fsdpc::passes
