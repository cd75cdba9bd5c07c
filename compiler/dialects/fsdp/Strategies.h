// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The strategies of layouts: which one a layout has, and what follows from its
// row (StrategyTable.h). Units of one program may differ (--strategy-of), so
// passes ask here about a layout and never read the option themselves.
#pragma once

#include "compiler/dialects/fsdp/Compression.h"
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/options/NamePatterns.h"
#include "compiler/options/StrategyTable.h"
#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::fsdp {

/// Returns the strategy of a layout: its own, or else --strategy.
Strategy strategyOf(LayoutOp layout, const CompileOptions &options);

/// Returns the ranks over which the layout is cut. A frozen layout has neither
/// gradients nor states that a rank could own, so it is cut over all.
inline CutOver cutOver(LayoutOp layout, const CompileOptions &options) {
  CutOver over = strategyOf(layout, options)->over;
  return over == CutOver::Owner && !layout.getTrainable() ? CutOver::Ranks
                                                          : over;
}

/// Returns what every rank keeps in full of a layout of that strategy: the
/// layout's `whole`.
llvm::SmallVector<llvm::StringRef>
replicatedBy(Strategy strategy, const CompileOptions &options, bool trainable);

/// Marks the layouts whose gradient is that of one microbatch on one rank: the
/// ops that compute it write it to the layout's own memory, in the compute
/// type, and the norm and the optimizer read it there.
inline constexpr llvm::StringLiteral kUnsummedAttr = "fsdp.unsummed";
inline bool isUnsummed(LayoutOp layout) {
  return layout->hasAttr(kUnsummedAttr);
}

/// Returns true if the layout should be so: there is one rank and one
/// microbatch, the type on the wire would not round the gradient, and all that
/// reads it takes the compute type.
bool leavesUnsummed(LayoutOp layout, const CompileOptions &options,
                    const mlir::SymbolTable &symbols);

/// Returns true if one rank owns the layout, which is one parameter.
inline bool hasOwner(LayoutOp layout, const CompileOptions &options) {
  return cutOver(layout, options) == CutOver::Owner;
}

/// Returns the type of the blocks in which the parameters of a layout of that
/// strategy are gathered. Modules that --keep-f32 names keep it on the wire,
/// and masters that every rank has are not gathered.
inline BlockType gatheredBy(Strategy strategy, bool keptF32,
                            const CompileOptions &options) {
  return keptF32 || strategy->replicates("master") ? BlockType::None
                                                   : options.gatherType;
}

/// Returns true if a layout may have a second shard over a group of ranks
/// (--reshard-to): it is gathered from all ranks.
inline bool mayReshard(LayoutOp layout, const CompileOptions &options) {
  return !keepsWhole(layout, "compute") &&
         cutOver(layout, options) == CutOver::Ranks;
}

/// Returns true if every rank updates the whole layout, from gradients that
/// @update gathers in the layout's memory. A compressed reduction has left
/// the whole sum there already.
inline bool gathersGradients(LayoutOp layout) {
  return keepsWhole(layout, "state") && keepsWhole(layout, "gradient") &&
         !compressionOf(layout);
}

/// Returns true if every rank updates the whole layout, but has memory for its
/// part of the gradient only, so that @update gathers the gradient in the
/// arena.
inline bool borrowsGradients(LayoutOp layout) {
  return keepsWhole(layout, "state") && !keepsWhole(layout, "gradient");
}

/// Returns true if each rank updates its part of the trainable layout, or its
/// owner all of it, and @update gathers the new parameters.
inline bool gathersParameters(LayoutOp layout) {
  return keepsWhole(layout, "compute") && !keepsWhole(layout, "state");
}

/// Returns the strategies of a module's trainable and frozen layouts, each
/// once, those that shard most first.
llvm::SmallVector<Strategy> strategiesOf(mlir::ModuleOp module);

/// Returns "zero3" for a module with one strategy, else "zero3 (4 units), zero2
/// (1 unit)". Units with layouts of two strategies count for both.
std::string describeStrategies(mlir::ModuleOp module);

/// Finds the strategies of units from --strategy and --strategy-of. The options
/// must outlive it.
class UnitStrategies {
public:
  explicit UnitStrategies(const CompileOptions &options);

  /// Returns the strategy of the unit with this name.
  Strategy of(llvm::StringRef unit);
  /// Fails with an error at `loc` if a rule decided about none of `units`.
  /// Must be called after `of` has been called for each.
  llvm::LogicalResult checkUsed(mlir::Location loc,
                                llvm::ArrayRef<llvm::StringRef> units) const;

private:
  const CompileOptions &options;
  FirstMatch rules;
};

} // namespace fsdpc::fsdp
