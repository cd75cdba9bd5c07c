// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes the attributes of an op on to the ops that replace it. Verifiers of
// later phases refuse ops without a unit, and costs are added up by unit and
// direction, so no rewrite may lose them.
#pragma once

#include "mlir/IR/Operation.h"

namespace fsdpc::passes {

/// Gives the unit, direction and module of `op` to the ops that were built
/// between `before` (null: the beginning of the block) and `op`.
inline void inheritAttributes(mlir::Operation *before, mlir::Operation *op) {
  mlir::Operation *part =
      before ? before->getNextNode() : &op->getBlock()->front();
  for (; part != op; part = part->getNextNode())
    part->setDiscardableAttrs(op->getDiscardableAttrDictionary());
}

} // namespace fsdpc::passes
