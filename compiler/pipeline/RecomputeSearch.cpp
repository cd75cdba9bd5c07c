// Chooses what --recompute=auto computes again. What a choice saves is known
// only after sharding, fusion and scheduling, all of which come later. So
// choices worth trying are compiled up to the schedule: each unit has options
// from cuts through its ops (compiler/schedule/recompute_cut.h), and a knapsack
// (recompute_sets.h) orders what all units may take together by freed bytes.
// The smallest set that fits is searched for. Prefetching takes the memory that
// a choice leaves: a larger choice may hide more communication than it costs,
// so larger ones are tried as long as the predicted step gets shorter.
#include "compiler/pipeline/RecomputeSearch.h"

#include "compiler/dialects/fsdp/Options.h"
#include "compiler/dialects/fsdp/Recomputed.h"
#include "passes/grad/RecomputeOptions.h"
#include "passes/grad/WeightDerived.h"
#include "passes/schedule/SolveSchedule.h"

#include "mlir/Pass/PassManager.h"

#include <limits>
#include <map>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::pipeline;
using passes::OpIndices;
using passes::ScheduleEstimate;

namespace {

class Search {
public:
  Search(ModuleOp module, ArrayRef<PipelineStep> steps,
         std::vector<passes::UnitOptions> units);

  /// Returns the ops to mark.
  OpIndices run();

private:
  std::optional<ScheduleEstimate> estimate(const OpIndices &ops, bool hard);
  const std::optional<ScheduleEstimate> &estimate(size_t set);
  bool fits(size_t set) { return estimate(set) && estimate(set)->fits; }
  OpIndices opsOf(size_t set) const;
  OpIndices everything() const;
  size_t firstFreeing(int64_t bytes) const;
  size_t guess(size_t exceeds, size_t fitting, unsigned round);
  size_t smallestFitting();
  size_t fastest(size_t set);
  OpIndices least();

  ModuleOp module;
  ArrayRef<PipelineStep> steps;
  int64_t limit;
  std::vector<passes::UnitOptions> units;
  std::vector<schedule::RecomputeSet> sets;
  std::vector<int64_t> freed; // by set, as its trades say
  // The sets that were tried: nothing for one that does not compile. Errors of
  // copies are not shown: a fault that does not depend on the choice appears
  // again when the module itself is compiled.
  std::map<size_t, std::optional<ScheduleEstimate>> tried;
};

void mark(ModuleOp module, const OpIndices &ops) {
  Block &body = passes::lookupMicrobatch(module).getFunctionBody().front();
  auto next = ops.begin();
  for (auto [index, op] : llvm::enumerate(body))
    if (next != ops.end() && *next == int(index)) {
      op.setAttr(fsdp::kRecomputeAttr, UnitAttr::get(op.getContext()));
      ++next;
    }
}

Search::Search(ModuleOp module, ArrayRef<PipelineStep> steps,
               std::vector<passes::UnitOptions> units)
    : module(module), steps(steps),
      limit(fsdp::CompileOptions::of(module).memoryLimit.bytes),
      units(std::move(units)) {
  std::vector<schedule::UnitTrades> trades;
  for (const passes::UnitOptions &unit : this->units)
    trades.push_back(unit.trades);
  sets = schedule::cheapestRecomputeSets(trades);
  for (const schedule::RecomputeSet &set : sets) {
    int64_t &sum = freed.emplace_back(0);
    for (size_t unit = 0; unit < set.size(); ++unit)
      sum += set[unit] > 0 ? trades[unit][set[unit] - 1].freedBytes : 0;
  }
}

OpIndices Search::opsOf(size_t set) const {
  OpIndices ops;
  for (size_t unit = 0; unit < units.size(); ++unit)
    if (int taken = sets[set][unit])
      llvm::append_range(ops, units[unit].ops[taken - 1]);
  llvm::sort(ops);
  return ops;
}

OpIndices Search::everything() const {
  OpIndices ops;
  for (const passes::UnitOptions &unit : units)
    llvm::append_range(ops, unit.whole);
  llvm::sort(ops);
  return ops;
}

std::optional<ScheduleEstimate> Search::estimate(const OpIndices &ops,
                                                 bool hard) {
  OwningOpRef<ModuleOp> copy = module.clone();
  mark(*copy, ops);
  ScopedDiagnosticHandler silent(module.getContext(),
                                 [](Diagnostic &) { return success(); });
  PassManager manager(module.getContext());
  for (const PipelineStep &step : steps)
    manager.addPass(step.create());
  if (failed(manager.run(*copy)))
    return std::nullopt;
  FailureOr<ScheduleEstimate> found = passes::estimateSchedule(*copy, hard);
  return succeeded(found) ? std::optional(*found) : std::nullopt;
}

const std::optional<ScheduleEstimate> &Search::estimate(size_t set) {
  auto known = tried.find(set);
  if (known == tried.end())
    known = tried.emplace(set, estimate(opsOf(set), /*hard=*/false)).first;
  return known->second;
}

// Returns the first set that should free so many bytes, or the last one.
size_t Search::firstFreeing(int64_t bytes) const {
  for (size_t set = 0; set + 1 < sets.size(); ++set)
    if (freed[set] >= bytes)
      return set;
  return sets.size() - 1;
}

// Returns a set to try between one that exceeds the limit and one that fits.
// Where the peak is made of what is kept, as in most models, the excess says
// how much more is to be freed, and then whether a set less would do. Every
// second try halves the range, in case that it is not.
size_t Search::guess(size_t exceeds, size_t fitting, unsigned round) {
  size_t wanted = exceeds + (fitting - exceeds) / 2;
  if (round % 2 == 0 && estimate(exceeds))
    wanted =
        firstFreeing(freed[exceeds] + estimate(exceeds)->peakBytes - limit);
  return std::clamp(wanted, exceeds + 1, fitting - 1);
}

// Returns the index of the first set that fits, as far as sets fit when they
// free more, or the number of sets.
size_t Search::smallestFitting() {
  // Invariant: the set at `exceeds` exceeds the limit, and that at `fitting`
  // keeps it or is past the end.
  size_t exceeds = 0, fitting = sets.size();
  for (unsigned round = 0; exceeds + 1 < fitting; ++round) {
    size_t next = guess(exceeds, fitting, round);
    if (!fits(next)) {
      exceeds = next;
      continue;
    }
    fitting = next;
    if (fitting - 1 > exceeds && !fits(fitting - 1))
      exceeds = fitting - 1;
  }
  return fitting;
}

// Returns the set that is predicted to be the fastest among this one and larger
// ones, in steps of a part of all sets.
size_t Search::fastest(size_t set) {
  // Only time that communication takes can be hidden.
  if (estimate(set)->lostUs < 0.01 * estimate(set)->microbatchUs)
    return set;
  size_t step = std::max<size_t>(1, sets.size() / 24);
  for (size_t next = set + step; next < sets.size(); next += step) {
    if (!fits(next) ||
        estimate(next)->microbatchUs >= estimate(set)->microbatchUs)
      break;
    set = next;
  }
  // A smaller one that was tried on the way may be as good.
  for (const auto &[other, found] : tried)
    if (found && found->fits &&
        found->microbatchUs < estimate(set)->microbatchUs)
      set = other;
  return set;
}

// Returns the ops of the least peak, for the case that the search has found no
// set that fits. Mostly those are the last set's, which keeps the fewest bytes.
// But where a unit's own backward makes the peak, fewer ops may take less, or
// all of them. Which are asked does not depend on the limit, so that the peak
// in the error is one that is kept.
OpIndices Search::least() {
  constexpr size_t parts = 6;
  std::vector<OpIndices> choices;
  for (size_t part = parts; part > 0; --part)
    choices.push_back(opsOf((sets.size() - 1) * part / parts));
  choices.push_back(everything());
  OpIndices least = choices.front();
  int64_t peak = std::numeric_limits<int64_t>::max();
  for (OpIndices &ops : choices) {
    std::optional<ScheduleEstimate> found = estimate(ops, /*hard=*/true);
    if (found && found->fits)
      return ops;
    if (found && found->peakBytes < peak) {
      peak = found->peakBytes;
      least = ops;
    }
  }
  return least;
}

OpIndices Search::run() {
  size_t fitting = fits(0) ? 0 : smallestFitting();
  return fitting < sets.size() ? opsOf(fastest(fitting)) : least();
}

bool isMarked(FunctionOpInterface function) {
  return llvm::any_of(function.getFunctionBody().front(), [](Operation &op) {
    return op.hasAttr(fsdp::kRecomputeAttr);
  });
}

} // namespace

LogicalResult fsdpc::pipeline::chooseRecomputed(ModuleOp module,
                                                ArrayRef<PipelineStep> steps) {
  fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
  if (options.recompute != fsdp::RecomputeLevel::Auto ||
      options.memoryLimit.bytes == 0)
    return success();
  FunctionOpInterface function = passes::lookupMicrobatch(module);
  if (!function)
    return failure();
  if (isMarked(function))
    return success();
  FailureOr<std::vector<passes::UnitOptions>> units =
      passes::recomputeOptions(module);
  if (failed(units))
    return failure();
  mark(module, Search(module, steps, std::move(*units)).run());
  return success();
}
