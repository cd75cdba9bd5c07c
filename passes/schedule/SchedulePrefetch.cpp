// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// schedule-prefetch: splits each collective into a start and a wait, at the
// places that the solver chooses. PyTorch FSDP decides the same at run time,
// with backward_prefetch and limit_all_gathers; here it is decided once,
// against a memory cap.
#include "passes/schedule/OffloadChoice.h"
#include "passes/schedule/Passes.h"
#include "passes/schedule/PersistEstimate.h"
#include "passes/schedule/ScheduledOps.h"
#include "passes/schedule/SolveSchedule.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/options/Options.h"
#include "compiler/schedule/problem_json.h"
#include "compiler/schedule/solvers.h"
#include "compiler/schedule/table.h"
#include "runtime/support/output_file.h"

#include <optional>

namespace fsdpc::passes {
#define GEN_PASS_DEF_SCHEDULEPREFETCH
#include "passes/schedule/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::analysis;

namespace {

// Writes the solver's schedule into the function. It creates the split ops
// first and erases the unsplit ones at the end, because starts and waits are
// created from them.
class Rewriter {
public:
  Rewriter(ScheduleIR &ir, MLIRContext *context)
      : ir(ir), builder(context), tokens(ir.collectives.size()),
        wholes(ir.collectives) {}

  void run(const schedule::Schedule &schedule);

private:
  void start(int id);
  void wait(int id);
  void free(int id);

  ScheduleIR &ir;
  OpBuilder builder;
  // The tokens of the starts, by collective.
  SmallVector<Value> tokens;
  std::vector<CollectiveOps> wholes; // before they were split
};

// A start has the operands of the unsplit op and no results but its token.
void Rewriter::start(int id) {
  Operation *whole = wholes[id].first;
  Location location = whole->getLoc();
  auto token = fsdp::TokenType::get(builder.getContext());
  Operation *start;
  if (auto gather = dyn_cast<fsdp::AllGatherOp>(whole))
    start = fsdp::AllGatherStartOp::create(
        builder, location, token, gather.getLayoutsAttr(),
        gather.getKeepSecondaryAttr(), gather.getFromSecondaryAttr());
  else if (auto offload = dyn_cast<fsdp::OffloadOp>(whole))
    start = fsdp::OffloadStartOp::create(
        builder, location, token, offload.getValues(), DenseI64ArrayAttr());
  else if (auto fetch = dyn_cast<fsdp::FetchOp>(whole))
    start =
        fsdp::FetchStartOp::create(builder, location, token, fetch.getHeld());
  else
    start = fsdp::ReduceScatterStartOp::create(
        builder, location, token,
        cast<fsdp::ReduceScatterOp>(whole).getLayoutsAttr(),
        whole->getOperands());
  copyUnit(whole, start);
  tokens[id] = start->getResult(0);
  ir.collectives[id].first = start;
}

void Rewriter::wait(int id) {
  Operation *whole = wholes[id].first;
  Location location = whole->getLoc();
  TypeRange types = whole->getResultTypes();
  Value token = tokens[id];
  Operation *wait;
  if (isa<fsdp::AllGatherOp>(whole))
    wait = fsdp::AllGatherWaitOp::create(builder, location, types, token);
  else if (isa<fsdp::OffloadOp>(whole))
    wait = fsdp::OffloadWaitOp::create(builder, location, types, token);
  else if (isa<fsdp::FetchOp>(whole))
    wait = fsdp::FetchWaitOp::create(builder, location, types, token);
  else
    wait = fsdp::ReduceScatterWaitOp::create(builder, location, token);
  // Readers turn to the wait's results. Frees are created later, from the same
  // results.
  whole->replaceAllUsesWith(wait->getResults());
  if (!ir.collectives[id].results.empty())
    ir.collectives[id].results = SmallVector<Value>(wait->getResults());
  copyUnit(whole, wait);
  ir.collectives[id].wait = wait;
}

void Rewriter::free(int id) {
  Operation *whole = wholes[id].first;
  for (Value result : ir.collectives[id].results) {
    auto free = fsdp::FreeOp::create(builder, whole->getLoc(), result);
    copyUnit(whole, free);
  }
}

// Old frees go first; the schedule places new ones.
void Rewriter::run(const schedule::Schedule &schedule) {
  for (CollectiveOps &ops : ir.collectives) {
    for (Operation *op : ops.frees)
      op->erase();
    ops.frees.clear();
  }
  // Actions are listed in order, and those at one position are inserted before
  // the same op one after the other, so their order is kept.
  for (const schedule::Action &action : schedule.actions) {
    builder.setInsertionPoint(ir.ops[action.position]);
    switch (action.kind) {
    case schedule::ActionKind::Start:
      start(action.collective);
      break;
    case schedule::ActionKind::Wait:
      wait(action.collective);
      break;
    case schedule::ActionKind::Free:
      free(action.collective);
      break;
    }
  }
  // All uses have turned to the split ops by now. A fetch that is not split
  // reads from the wait of its offload.
  for (const CollectiveOps &ops : wholes)
    ops.first->erase();
}

// The schedule of a table takes the solver's place. It keeps the limits that
// were given, or is refused as the solver's own would be.
schedule::Solved solveByTable(const schedule::Problem &problem,
                              const fsdp::ScheduleFile &table) {
  // An error of the table names its row.
  Result<schedule::Schedule> read = schedule::readTable(problem, table.text);
  if (read)
    return schedule::evaluate(problem, *std::move(read));
  schedule::Infeasible fault;
  fault.message = "'--schedule=" + table.name + "': " + read.error().message;
  return fault;
}

// Returns the smallest limit that would be kept, as far as it is known. `found`
// is the least peak that the solver has found. The rules `pre` and `post` have
// no other.
int64_t leastPeakOf(const schedule::Problem &problem, int64_t found) {
  schedule::Prefetch mode = problem.options.prefetch;
  bool isRule =
      mode == schedule::Prefetch::Pre || mode == schedule::Prefetch::Post;
  return isRule ? found : std::min(found, schedule::leastPeak(problem));
}

// Writes what the waits of a microbatch expose, and what they would expose if
// --persist kept nothing whole; unless that would not fit a memory limit.
void annotatePersist(ModuleOp module, double exposedUs,
                     schedule::Problem without) {
  schedule::Solved solved = solveProblem(without);
  auto *solution = std::get_if<schedule::Solution>(&solved);
  if (!solution)
    return;
  Builder builder(module.getContext());
  auto time = [&](StringRef name, double us) {
    return builder.getNamedAttr(name, timeAttr(builder, us));
  };
  module->setAttr(
      "fsdp.persist",
      builder.getDictionaryAttr(
          {time("exposed_us", exposedUs),
           time("gathered_us", solution->timeline.totalExposedUs)}));
}

struct SchedulePrefetch
    : fsdpc::passes::impl::SchedulePrefetchBase<SchedulePrefetch> {
  using Base::Base;

  void runOnOperation() override {
    if (failed(run(getOperation())))
      signalPassFailure();
  }

  LogicalResult writeProblem(ModuleOp module,
                             const schedule::Problem &problem) const {
    if (problemFile.empty())
      return success();
    std::string text = schedule::toJson(problem);
    if (Status written = writeWhole(problemFile, text.data(), text.size());
        !written)
      return module.emitError("cannot write the problem: ")
             << written.error().message;
    return success();
  }

  LogicalResult run(ModuleOp module) {
    FailureOr<func::FuncOp> function = fsdp::getMicrobatch(module);
    if (failed(function))
      return failure();
    FailureOr<Offloadable> offloadable = chooseOffloaded(module);
    if (failed(offloadable))
      return failure();
    FailureOr<MicrobatchProblem> read = readProblem(module);
    if (failed(read))
      return failure();
    ScheduleIR &ir = read->ir;
    schedule::Problem &problem = ir.problem;
    fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
    if (failed(writeProblem(module, problem)))
      return failure();
    // Before the solver, since the rewriter erases the ops that it reads.
    std::optional<schedule::Problem> without;
    if (options.persist > 0)
      without = gatherPersistent(module, *function, ir);
    schedule::Solved solved = options.schedule.name.empty()
                                  ? solveProblem(problem)
                                  : solveByTable(problem, options.schedule);
    if (auto *failed = std::get_if<schedule::Infeasible>(&solved)) {
      // A cap that cannot be kept is reported with what takes the memory.
      // Anything else is a fault of the problem.
      if (failed->capBytes > 0)
        reportOverLimit(module, read->memory, failed->largest,
                        leastPeakOf(problem, failed->peakBytes),
                        options.memoryLimit.bytes);
      else if (!options.schedule.name.empty())
        emitError(module.getLoc(), failed->message);
      else
        function->emitOpError("cannot be scheduled: ") << failed->message;
      return failure();
    }
    const auto &solution = std::get<schedule::Solution>(solved);
    Rewriter(ir, &getContext()).run(solution.schedule);
    annotate(ir, solution.timeline);
    annotateOffloaded(ir, solution.timeline, *offloadable);
    if (without)
      annotatePersist(module, solution.timeline.totalExposedUs,
                      std::move(*without));
    for (const schedule::Collective &c : problem.collectives)
      ++(c.kind == schedule::CollectiveKind::Gather ? gathers : reductions);
    func::FuncOp evaluate = fsdp::findEvaluate(module);
    return evaluate ? scheduleEvaluate(evaluate) : success();
  }

  // An evaluation is rare and must fit wherever a step fits, so its gathers are
  // where they need no more memory than they must.
  LogicalResult scheduleEvaluate(func::FuncOp function) {
    eraseUnusedGathers(function);
    FailureOr<ScheduleIR> ir = readSchedule(function);
    if (failed(ir))
      return failure();
    // No limit is set: the memory was made to fit for the step, which needs
    // more.
    ir->problem.options.prefetch = schedule::Prefetch::None;
    schedule::Solved solved = schedule::solve(ir->problem);
    if (auto *failed = std::get_if<schedule::Infeasible>(&solved))
      return function.emitOpError("cannot be scheduled: ") << failed->message;
    const auto &solution = std::get<schedule::Solution>(solved);
    Rewriter(*ir, &getContext()).run(solution.schedule);
    annotate(*ir, solution.timeline);
    return success();
  }
};

} // namespace
