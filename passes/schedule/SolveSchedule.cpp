// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Solves a module's schedule without writing it: for schedule-prefetch, which
// then does, and for the search of what to compute again, which compares the
// schedules of several modules.
#include "passes/schedule/SolveSchedule.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/rt/RTDialect.h"
#include "compiler/options/Options.h"

#include <limits>

using namespace mlir;

namespace fsdpc::passes {

// The problem has no place for them: a gather needs a use to be waited for.
void eraseUnusedGathers(func::FuncOp function) {
  for (auto gather :
       llvm::make_early_inc_range(function.front().getOps<fsdp::AllGatherOp>()))
    if (llvm::all_of(gather->getUsers(),
                     [](Operation *op) { return isa<fsdp::FreeOp>(op); })) {
      for (Operation *free : llvm::make_early_inc_range(gather->getUsers()))
        free->erase();
      gather.erase();
    }
}

FailureOr<MicrobatchProblem> readProblem(ModuleOp module) {
  FailureOr<func::FuncOp> function = fsdp::getMicrobatch(module);
  if (failed(function))
    return failure();
  // A function that is split already has a schedule, which is verified and not
  // solved again.
  for (Operation &op : function->front())
    if (llvm::any_of(op.getResultTypes(), llvm::IsaPred<fsdp::TokenType>))
      return op.emitOpError("is already split into start and wait; "
                            "schedule-prefetch expects unsplit collectives");
  eraseUnusedGathers(*function);
  FailureOr<ScheduleIR> ir = readSchedule(*function);
  if (failed(ir))
    return failure();
  MicrobatchProblem read{std::move(*ir), analysis::RankMemory(module)};
  schedule::Problem &problem = read.ir.problem;
  // Memory outside the arena counts against the cap too.
  problem.baseBytes = read.memory.total();
  fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
  problem.options.prefetch = options.prefetch;
  problem.options.limitAllGathers = options.limitAllGathers;
  if (int64_t limit = options.memoryLimit.bytes)
    problem.options.memoryLimit = limit;
  return read;
}

schedule::Solved solveProblem(schedule::Problem &problem) {
  schedule::Options &options = problem.options;
  // If not even `pre` can be scheduled, the solver reports it.
  if (options.prefetch == schedule::Prefetch::Auto && !options.memoryLimit &&
      problem.check().empty()) {
    schedule::Solved pre =
        schedule::solvePrePost(problem, schedule::Prefetch::Pre);
    if (auto *solution = std::get_if<schedule::Solution>(&pre))
      options.memoryLimit = solution->peakBytes;
  }
  return schedule::solveHard(problem);
}

FailureOr<std::unique_ptr<ScheduleEstimate>>
ScheduleEstimate::of(ModuleOp module) {
  // Its interfaces say what calls of libraries need besides the arena. Passes
  // declare it; nothing has loaded it before the first of those has run.
  module.getContext()->getOrLoadDialect<rt::RTDialect>();
  FailureOr<MicrobatchProblem> read = readProblem(module);
  if (failed(read) || !read->ir.problem.check().empty())
    return failure();
  std::unique_ptr<ScheduleEstimate> estimate(
      new ScheduleEstimate(std::move(read->ir.problem)));
  if (estimate->problem.options.prefetch == schedule::Prefetch::Auto)
    estimate->search.emplace(estimate->problem);
  return estimate;
}

static double opsUs(const schedule::Problem &problem) {
  double sum = 0;
  for (const schedule::Op &op : problem.ops)
    sum += op.durationUs;
  return sum;
}

// A rule has one schedule, whatever the limit.
double ScheduleEstimate::freeUs() {
  return search ? opsUs(problem) + search->freeUs() : packed().microbatchUs;
}

double ScheduleEstimate::hopedUs() {
  if (search)
    return opsUs(problem) + search->hopedUs();
  return packed().fits ? packed().microbatchUs
                       : std::numeric_limits<double>::infinity();
}

static ScheduleEstimate::Found describe(const schedule::Solved &solved) {
  if (auto *solution = std::get_if<schedule::Solution>(&solved))
    return {true, solution->timeline.stepUs, solution->peakBytes};
  return {false, 0, std::get<schedule::Infeasible>(solved).peakBytes};
}

const ScheduleEstimate::Found &ScheduleEstimate::packed() {
  if (!found)
    found = describe(search ? search->solve() : schedule::solve(problem));
  return *found;
}

std::optional<ScheduleEstimate::Found>
ScheduleEstimate::packedWithin(double mostUs) {
  if (found || !search)
    return packed();
  std::optional<schedule::Solved> solved =
      search->solveWithin(mostUs - opsUs(problem));
  if (!solved)
    return std::nullopt;
  return *(found = describe(*solved));
}

ScheduleEstimate::Found ScheduleEstimate::packedHard() const {
  return describe(schedule::solveHard(problem));
}

} // namespace fsdpc::passes
