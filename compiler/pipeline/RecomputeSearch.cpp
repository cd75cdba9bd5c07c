// Chooses what --recompute=auto computes again. What a choice saves is known
// only after sharding, fusion and scheduling, all of which come later. So the
// choices worth trying, from the knapsack in
// compiler/schedule/recompute_sets.h, are compiled to the schedule, and the
// smallest that fits is found by bisection. Prefetching takes the memory that a
// choice leaves: a larger choice may hide more communication than it costs, so
// the next ones are tried as long as the predicted step gets shorter.
#include "compiler/pipeline/RecomputeSearch.h"

#include "compiler/dialects/fsdp/Options.h"
#include "compiler/schedule/recompute_sets.h"
#include "passes/grad/RecomputeChooser.h"
#include "passes/schedule/Prediction.h"

#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::pipeline;

namespace {

class Search {
public:
  Search(ModuleOp module, ArrayRef<PipelineStep> steps,
         std::vector<passes::UnitTrade> trades);

  /// Returns the units to mark, by names that live as long as the search.
  SmallVector<StringRef> run();

private:
  std::optional<double> stepUs(size_t index);
  SmallVector<StringRef> unitsOf(size_t index) const;

  ModuleOp module;
  ArrayRef<PipelineStep> steps;
  std::vector<passes::UnitTrade> trades;
  std::vector<schedule::RecomputeSet> sets;
};

void mark(ModuleOp module, ArrayRef<StringRef> units) {
  SymbolTable symbols(module);
  for (StringRef unit : units)
    symbols.lookup<fsdp::UnitOp>(unit).setRecompute(true);
}

Search::Search(ModuleOp module, ArrayRef<PipelineStep> steps,
               std::vector<passes::UnitTrade> trades)
    : module(module), steps(steps), trades(std::move(trades)) {
  std::vector<schedule::RecomputeTrade> worth;
  for (const passes::UnitTrade &trade : this->trades)
    worth.push_back(trade.worth);
  sets = schedule::cheapestRecomputeSets(worth);
}

SmallVector<StringRef> Search::unitsOf(size_t index) const {
  SmallVector<StringRef> units;
  for (int trade : sets[index])
    units.push_back(trades[trade].unit);
  return units;
}

// Returns the predicted time of a microbatch with the set, or nothing if it
// exceeds the limit. Errors of a copy are not shown: a fault that does not
// depend on the choice appears again when the module itself is compiled.
std::optional<double> Search::stepUs(size_t index) {
  OwningOpRef<ModuleOp> copy = module.clone();
  mark(*copy, unitsOf(index));
  ScopedDiagnosticHandler silent(module.getContext(),
                                 [](Diagnostic &) { return success(); });
  PassManager manager(module.getContext());
  for (const PipelineStep &step : steps)
    manager.addPass(step.create());
  if (failed(manager.run(*copy)))
    return std::nullopt;
  FailureOr<double> us = passes::predictMicrobatchUs(*copy);
  return succeeded(us) ? std::optional(*us) : std::nullopt;
}

SmallVector<StringRef> Search::run() {
  size_t fits = sets.size() - 1;
  std::optional<double> us = stepUs(0);
  if (us)
    return {};
  us = stepUs(fits);
  if (!us)
    return unitsOf(fits);
  // Invariant: sets[exceeds] exceeds the limit, and sets[fits] keeps it.
  for (size_t exceeds = 0; exceeds + 1 < fits;) {
    size_t middle = exceeds + (fits - exceeds) / 2;
    if (std::optional<double> found = stepUs(middle)) {
      fits = middle;
      us = found;
    } else {
      exceeds = middle;
    }
  }
  while (fits + 1 < sets.size()) {
    std::optional<double> next = stepUs(fits + 1);
    if (!next || *next >= *us)
      break;
    us = next;
    ++fits;
  }
  return unitsOf(fits);
}

} // namespace

LogicalResult fsdpc::pipeline::chooseRecomputed(ModuleOp module,
                                                ArrayRef<PipelineStep> steps) {
  fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
  if (options.recompute != fsdp::RecomputeLevel::Auto ||
      options.memoryLimit.bytes == 0)
    return success();
  FailureOr<std::vector<passes::UnitTrade>> trades = passes::unitTrades(module);
  if (failed(trades))
    return failure();
  Search search(module, steps, std::move(*trades));
  mark(module, search.run());
  return success();
}
