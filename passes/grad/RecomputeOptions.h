// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lists what the backward could compute again of each unit beside cheap ops.
#pragma once

#include "compiler/schedule/machine.h"
#include "compiler/schedule/recompute_sets.h"

#include "mlir/IR/BuiltinOps.h"

#include <vector>

namespace fsdpc::passes {

class RecomputeChooser;

/// Indices of ops in the body of @microbatch, ascending. They hold in copies of
/// the module too.
using OpIndices = std::vector<int>;

/// The ways to compute more of a unit again.
struct UnitOptions {
  /// The gain of each way beside the cheap ops, and its ops. Bytes are those
  /// of the values that the backward reads from the forward, in their types
  /// before mixed precision.
  schedule::UnitTrades trades;
  std::vector<OpIndices> ops;
  /// All that can be computed again.
  OpIndices whole;
};

/// Returns the options of the units that --recompute-scope names (all without
/// it), in the order of the symbols. `module` has not been through the pass
/// `recompute`.
llvm::FailureOr<std::vector<UnitOptions>>
recomputeOptions(mlir::ModuleOp module);

/// Returns true if the op can be computed again by choice: it is an inner op
/// (RecomputeChooser) that has memory of its own.
bool isRepeatable(const RecomputeChooser &chooser, mlir::Operation *op);

/// Returns the µs of an op before it is fused with others. Fusion makes it
/// less, so the estimate is on the safe side.
double repeatUs(mlir::Operation *op, const schedule::Machine &machine,
                ElementType type);

} // namespace fsdpc::passes
