// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The strategies of layouts and units. The attribute of a layout is what counts
// from the phase `shard` on; the globs of --strategy-of are matched once, when
// layouts are made, so a dump may be edited layout by layout.
#include "compiler/dialects/fsdp/Strategies.h"

#include "compiler/options/OptionTypes.h"
#include "runtime/support/concat.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/GlobPattern.h"

using namespace mlir;

namespace fsdpc::fsdp {

// LayoutOp's verifier has checked the name.
Strategy strategyOf(LayoutOp layout, const CompileOptions &options) {
  Strategy strategy = options.strategy;
  if (std::optional<StringRef> name = layout.getStrategy())
    parseName(*name, strategy);
  return strategy;
}

// Whole gradients of replicated states are those that several microbatches have
// added to. With --reduce=step each rank adds up whole gradients under any
// strategy, because the reduce-scatter runs once, at the end of the step. A
// reduction that gives every rank the whole sum needs memory for it, too.
static bool replicatesGradients(Strategy strategy,
                                const CompileOptions &options) {
  return options.reduce == ReductionTime::Step ||
         (strategy->replicates("state") &&
          (options.accumulates() || options.compressesGradients()));
}

// Frozen layouts have neither gradients nor optimizer state.
SmallVector<StringRef>
replicatedBy(Strategy strategy, const CompileOptions &options, bool trainable) {
  SmallVector<StringRef> whole;
  for (StringRef what : {"master", "compute"})
    if (strategy->replicates(what))
      whole.push_back(what);
  if (trainable && replicatesGradients(strategy, options))
    whole.push_back("gradient");
  if (trainable && strategy->replicates("state"))
    whole.push_back("state");
  return whole;
}

static bool roundsOnWire(LayoutOp layout, const CompileOptions &options,
                         const SymbolTable &symbols) {
  switch (options.reduceType) {
  case ReduceType::F32:
    return false;
  case ReduceType::BF16:
    return keepsF32(layout, symbols) || options.paramType != ElementType::bf16;
  case ReduceType::F16:
    return keepsF32(layout, symbols) || options.paramType != ElementType::f16;
  default: // blocks
    return true;
  }
}

// For replicated states @update gathers f32, and an owner's gradients travel
// together. Sums
// over whole parameters, rows and columns are of several layouts at once, whose
// types may differ, and updates of whole matrices are the runtime's own: they
// read f32.
bool leavesUnsummed(LayoutOp layout, const CompileOptions &options,
                    const SymbolTable &symbols) {
  Strategy strategy = strategyOf(layout, options);
  return layout.getTrainable() && options.maxRanks == 1 &&
         !options.accumulates() && strategy->shards() &&
         strategy->over != CutOver::Owner && !options.compressesGradients() &&
         !options.offload.gradients && !isOffloaded(layout, "gradient") &&
         !roundsOnWire(layout, options, symbols) && isPointwise(layout);
}

// Sorted, so that the summary and the tests do not depend on the order of
// layouts.
SmallVector<Strategy> strategiesOf(ModuleOp module) {
  CompileOptions options = CompileOptions::of(module);
  SmallVector<Strategy> found;
  for (auto layout : module.getOps<LayoutOp>())
    if (Strategy strategy = strategyOf(layout, options);
        !llvm::is_contained(found, strategy))
      found.push_back(strategy);
  llvm::sort(found, shardsMore);
  return found;
}

std::string describeStrategies(ModuleOp module) {
  CompileOptions options = CompileOptions::of(module);
  SmallVector<Strategy> strategies = strategiesOf(module);
  // Before the phase `shard` there are no layouts.
  if (strategies.size() < 2)
    return nameOf(strategies.empty() ? options.strategy : strategies[0]).str();
  std::string text;
  for (Strategy strategy : strategies) {
    DenseSet<StringAttr> units;
    // A unit may have two layouts, trainable and frozen, and counts once.
    for (auto layout : module.getOps<LayoutOp>())
      if (strategyOf(layout, options) == strategy)
        units.insert(layout.getUnitAttr().getAttr());
    text += concat(text.empty() ? "" : ", ", nameOf(strategy).str(), " (",
                   units.size(), units.size() == 1 ? " unit)" : " units)");
  }
  return text;
}

// The option's parser has checked that the texts are globs. A pattern refers to
// its text, which belongs to the caller's options, so these must outlive this.
UnitStrategies::UnitStrategies(const CompileOptions &options)
    : options(options), rules("strategy-of") {
  for (const StrategyRule &rule : options.strategyRules) {
    auto pattern = cantFail(llvm::GlobPattern::create(rule.glob));
    rules.add(rule.glob, rule.glob + "=" + nameOf(rule.strategy).str(),
              [=](StringRef name) { return pattern.match(name); });
  }
}

// Called once per unit, in any order; `rules` remembers which rules decided.
Strategy UnitStrategies::of(StringRef unit) {
  std::optional<size_t> rule = rules.find(unit);
  return rule ? options.strategyRules[*rule].strategy : options.strategy;
}

LogicalResult UnitStrategies::checkUsed(Location loc,
                                        ArrayRef<StringRef> units) const {
  return rules.checkUsed(loc, units, "unit");
}

} // namespace fsdpc::fsdp
