// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the values that combine the samples of a microbatch, that the loss
// depends on, and that no mean over targets explains.
#pragma once

#include "passes/grad/WeightedMeans.h"

namespace fsdpc::passes {

/// Returns the values that `loss` follows from.
llvm::DenseSet<mlir::Value> valuesOf(mlir::Block &body, mlir::Value loss);

/// Returns the places at which `loss` meets counts, but for the operands in
/// `explained` and the cross-entropies in `entropies`. One per source.
llvm::SmallVector<LoneCount>
findLoneCounts(mlir::Block &body, const llvm::DenseSet<mlir::Value> &needed,
               const Uses &explained,
               const llvm::DenseSet<mlir::Operation *> &entropies);

/// Returns true if the op is a mean over targets that it counts itself.
bool countsTargets(mlir::Operation *op, const SampleFlow &flow);

} // namespace fsdpc::passes
