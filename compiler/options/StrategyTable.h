// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The strategies: what each keeps whole, over which ranks it cuts the rest, and
// when it reduces gradients.
//
// A new strategy needs a row of the table and nothing else if these properties
// describe it: passes ask a layout's row for them, the manifest hands them to
// the runtime, and options that need a kind of strategy name the property.
#pragma once

#include "compiler/options/Options.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

namespace fsdpc::fsdp {

/// The ranks over which what is not whole is cut: all of them, or those of each
/// group (--shard-group), which hold the same as every other group. Or it is
/// not cut, and each trainable parameter has one rank that owns it.
enum class CutOver { Ranks, Group, Owner };

/// A row of the table.
struct StrategyInfo {
  llvm::StringLiteral name;
  /// What every rank keeps of a trainable layout in full, of "master",
  /// "compute" and "state", separated by '|'. Gradients follow from it
  /// (replicatedBy in compiler/dialects/fsdp/Strategies.h).
  llvm::StringLiteral replicated;
  CutOver over = CutOver::Ranks;
  /// One op at the end of a microbatch reduces the gradients of all layouts.
  /// Otherwise each unit's are reduced when they are complete.
  bool reducesAtEnd = false;
  llvm::StringLiteral alias = ""; ///< the name in PyTorch's FSDP, if any

  /// Returns true if every rank keeps this in full.
  bool replicates(llvm::StringRef what) const;
  /// Returns true if weights are gathered wherever they are read.
  bool gathersWeights() const { return !replicates("compute"); }
  /// Returns true if a rank updates a part of the parameters.
  bool shards() const { return !replicates("state"); }
  /// Returns true if layouts can travel in blocks: gathers, or reductions too.
  /// Owners share values as they are. Groups hand on sums, which only f32 holds
  /// without rounding them again.
  bool sendsBlocks(bool inReductions) const {
    return over == CutOver::Ranks || (over == CutOver::Group && !inReductions);
  }
  /// Returns true if reductions can send less than the gradients (--reduce-hook
  /// of a kind that keeps the rest), which all ranks exchange.
  bool compresses() const { return over == CutOver::Ranks; }
};

/// Returns all strategies in the order of the help.
llvm::ArrayRef<StrategyInfo> allStrategies();

/// Returns true if `a` keeps less in memory than `b`, or the same and reduces
/// earlier, or over more ranks.
bool shardsMore(Strategy a, Strategy b);

/// Returns the strategy that shards nothing.
Strategy unsharded();

/// Returns the strategy of parameters that stay whole although their unit is
/// gathered (--persist), or the strategy itself if it gathers nothing.
Strategy persistent(Strategy strategy);

/// Returns the strategy that keeps the same whole, reduces at the same time,
/// and cuts the rest over all ranks.
Strategy overAllRanks(Strategy strategy);

/// Returns the strategies of the units that the options name, each once, that
/// of --strategy first.
llvm::SmallVector<Strategy> strategiesIn(const CompileOptions &options);

} // namespace fsdpc::fsdp
