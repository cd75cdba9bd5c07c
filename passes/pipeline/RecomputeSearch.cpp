// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses the ops that --recompute=auto computes again. The savings of a choice
// are known only after sharding, fusion and scheduling, all of which come
// later. So choices worth trying are compiled up to the schedule: each unit has
// options from cuts through its ops (compiler/schedule/recompute_cut.h), and a
// knapsack (recompute_sets.h) orders what all units may take together by freed
// bytes. A small set that fits is searched for. Prefetching takes the memory
// that a choice leaves: a larger choice may hide more communication than it
// costs. So larger ones are tried at steps that do not depend on the limit, but
// packed only if they may win: what a step takes if its schedule packs is known
// much sooner than whether it does.
#include "passes/pipeline/RecomputeSearch.h"

#include "compiler/dialects/fsdp/Recomputed.h"
#include "compiler/options/Options.h"
#include "passes/grad/RecomputeOptions.h"
#include "passes/grad/WeightDerived.h"
#include "passes/schedule/OffloadChoice.h"
#include "passes/schedule/SolveSchedule.h"

#include "mlir/Pass/PassManager.h"

#include <cmath>
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
  using Estimate = std::unique_ptr<ScheduleEstimate>;
  Estimate compile(const OpIndices &ops, bool choosesOffloaded = false);
  ScheduleEstimate *estimate(size_t set);
  enum class Outcome { Exceeds, Loses, Wins };
  Outcome contest(size_t set);
  bool isNear(size_t exceeds, size_t fitting) const;
  OpIndices opsOf(size_t set) const;
  OpIndices everything() const;
  size_t firstFreeing(int64_t bytes) const;
  size_t guess(size_t exceeds, size_t fitting, unsigned round);
  size_t firstFitting();
  void tryLarger(size_t exceeds);
  void tryBetween();
  OpIndices least();

  ModuleOp module;
  ArrayRef<PipelineStep> steps;
  int64_t limit;
  std::vector<passes::UnitOptions> units;
  std::vector<schedule::RecomputeSet> sets;
  std::vector<schedule::RecomputeTrade> sums; // by set
  size_t stride;                              // of the sets that are tried
  // The sets that were tried: null for one that does not compile. Errors of
  // copies are not shown: a fault that does not depend on the choice appears
  // again when the module itself is compiled.
  std::map<size_t, Estimate> tried;
  size_t best = 0;
  double bestUs = std::numeric_limits<double>::infinity();
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
    schedule::RecomputeTrade &sum = sums.emplace_back();
    for (size_t unit = 0; unit < set.size(); ++unit)
      if (set[unit] > 0) {
        sum.freedBytes += trades[unit][set[unit] - 1].freedBytes;
        sum.costUs += trades[unit][set[unit] - 1].costUs;
      }
  }
  stride = std::max<size_t>(1, sets.size() / 24);
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

// All activations that can be offloaded are, unless those are chosen, too.
Search::Estimate Search::compile(const OpIndices &ops, bool choosesOffloaded) {
  OwningOpRef<ModuleOp> copy = module.clone();
  mark(*copy, ops);
  ScopedDiagnosticHandler silent(module.getContext(),
                                 [](Diagnostic &) { return success(); });
  PassManager manager(module.getContext());
  // The module itself is verified when it is compiled.
  manager.enableVerifier(false);
  for (const PipelineStep &step : steps)
    if (!step.name.starts_with("verify-"))
      manager.addPass(step.create());
  if (failed(manager.run(*copy)) ||
      (choosesOffloaded && failed(passes::chooseOffloaded(*copy))))
    return nullptr;
  FailureOr<Estimate> found = ScheduleEstimate::of(*copy);
  return succeeded(found) ? std::move(*found) : nullptr;
}

ScheduleEstimate *Search::estimate(size_t set) {
  auto known = tried.find(set);
  if (known == tried.end())
    known = tried.emplace(set, compile(opsOf(set))).first;
  return known->second.get();
}

// A gain of less is not worth the time of a compile.
constexpr double kTolerance = 0.001;

// Packs the set if it may be faster than the best one, and takes its place if
// it is.
Search::Outcome Search::contest(size_t set) {
  ScheduleEstimate *found = estimate(set);
  if (!found || std::isinf(found->hopedUs()))
    return Outcome::Exceeds;
  double mostUs = (1 - kTolerance) * bestUs;
  if (found->hopedUs() >= mostUs)
    return Outcome::Loses;
  std::optional<ScheduleEstimate::Found> packed = found->packedWithin(mostUs);
  if (packed && !packed->fits)
    return Outcome::Exceeds;
  if (!packed || packed->microbatchUs >= mostUs)
    return Outcome::Loses;
  best = set;
  bestUs = packed->microbatchUs;
  return Outcome::Wins;
}

// Returns the first set that should free so many bytes, or the last one.
size_t Search::firstFreeing(int64_t bytes) const {
  for (size_t set = 0; set + 1 < sets.size(); ++set)
    if (sums[set].freedBytes >= bytes)
      return set;
  return sets.size() - 1;
}

// Returns a set to try between one that exceeds the limit and one that fits.
// Where the peak is made of what is kept, as in most models, the excess says
// how much more is to be freed, and then whether a set less would do. Every
// second try halves the range, in case that it is not.
size_t Search::guess(size_t exceeds, size_t fitting, unsigned round) {
  size_t wanted = exceeds + (fitting - exceeds) / 2;
  if (round % 2 == 0 && estimate(exceeds)) {
    int64_t excess = estimate(exceeds)->packed().peakBytes - limit;
    wanted = firstFreeing(sums[exceeds].freedBytes + excess);
  }
  return std::clamp(wanted, exceeds + 1, fitting - 1);
}

// Returns true if the sets between the two cost hardly less than the one that
// fits.
bool Search::isNear(size_t exceeds, size_t fitting) const {
  return fitting - exceeds <= 1 ||
         (fitting < sets.size() &&
          sums[fitting].costUs - sums[exceeds].costUs < kTolerance * bestUs);
}

// Returns the first set that is worth trying: none smaller fits, or smaller
// ones leave so little memory that they are slower.
size_t Search::firstFitting() {
  if (contest(0) == Outcome::Wins)
    return 0;
  // Invariant: the set at `exceeds` exceeds the limit, and that at `fitting`
  // keeps it or is past the end.
  size_t exceeds = 0, fitting = sets.size();
  for (unsigned round = 0; !isNear(exceeds, fitting); ++round) {
    size_t next = guess(exceeds, fitting, round);
    Outcome outcome = contest(next);
    if (outcome == Outcome::Loses)
      return next;
    (outcome == Outcome::Wins ? fitting : exceeds) = next;
  }
  return fitting;
}

// Tries sets above one. Larger sets take longer without a limit, so those
// beyond one that cannot win then cannot win either.
void Search::tryLarger(size_t first) {
  std::vector<std::pair<double, size_t>> hoped;
  for (size_t set = (first / stride + 1) * stride; set < sets.size();
       set += stride) {
    if (!estimate(set))
      continue;
    if (estimate(set)->freeUs() >= (1 - kTolerance) * bestUs)
      break;
    hoped.emplace_back(estimate(set)->hopedUs(), set);
  }
  llvm::sort(hoped);
  for (auto [us, set] : hoped)
    contest(set);
}

// Tries the sets in the middle between the best one and its neighbours.
void Search::tryBetween() {
  size_t middle = best, step = stride / 2;
  if (step == 0 || bestUs <= (1 + kTolerance) * estimate(best)->freeUs())
    return;
  for (size_t set : {middle - std::min(step, middle), middle + step})
    if (set < sets.size())
      contest(set);
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
    Estimate found = compile(ops, /*choosesOffloaded=*/true);
    if (!found)
      continue;
    ScheduleEstimate::Found packed = found->packedHard();
    if (packed.fits)
      return ops;
    if (packed.peakBytes > 0 && packed.peakBytes < peak) {
      peak = packed.peakBytes;
      least = ops;
    }
  }
  return least;
}

OpIndices Search::run() {
  tryLarger(firstFitting());
  if (std::isinf(bestUs))
    return least();
  tryBetween();
  return opsOf(best);
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
