// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The origin of values of @microbatch (weights, data or constants), and helpers
// of passes that clone ops into the backward.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Pass/Pass.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace fsdpc::passes {

/// The origin of a value: what it is computed from. The order matters, since
/// the origin of a result is the maximum of its operands'. The maximum works
/// because an op on weights and constants gives a weight, and anything that
/// touches data gives data.
enum class Origin {
  Constant, ///< constants and buffers, which every rank has
  Weight,   ///< parameters, and possibly constants
  Data      ///< inputs or random numbers, and possibly anything else
};

/// The origin of each value of a flat function. It is computed once, and does
/// not follow later changes of the function.
class Origins {
public:
  explicit Origins(mlir::Block &body);

  /// Constant for a value of another function.
  Origin of(mlir::Value value) const { return origins.lookup(value); }
  bool isWeight(mlir::Value value) const { return of(value) == Origin::Weight; }
  /// Returns true if the op is a weight itself, before or after
  /// shard-parameters.
  bool isWeightSource(mlir::Operation *op) const {
    return weightSources.contains(op);
  }

private:
  llvm::DenseMap<mlir::Value, Origin> origins;
  llvm::DenseSet<mlir::Operation *> weightSources;
};

/// Returns true for ops of the backward, including copies of the forward that
/// are computed there.
inline bool isBackward(mlir::Operation *op) {
  return op->hasAttr(fsdp::FSDPDialect::kBackwardAttr);
}

/// Returns null for ops without a unit, such as those before form-units has
/// run.
inline mlir::Attribute unitOf(mlir::Operation *op) {
  return op->getAttr(fsdp::FSDPDialect::kUnitAttr);
}

/// Returns what the backward op `user` should read instead of `value`: a clone
/// of its op, if `isCloned` holds for the value, with what the op reads cloned
/// in the same way first; else `value`. Clones are remembered in `clones`, and
/// counted in `count`. Not recursive, since a model may have any number of such
/// ops in a row.
mlir::Value cloneChain(mlir::Value value, mlir::Operation *user,
                       llvm::function_ref<bool(mlir::Value)> isCloned,
                       mlir::IRMapping &clones, mlir::Pass::Statistic &count);

/// Returns the function with forward and backward, or null after an error.
mlir::FunctionOpInterface lookupMicrobatch(mlir::ModuleOp module);

} // namespace fsdpc::passes
