// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops that make another form of a weight, which goes where the weight is
// used: form-units places them, verify-units asks for them again, and passes
// that replace ops follow views of a weight through them.
#pragma once

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

namespace fsdpc::nn {

/// Returns true if the op only moves or converts the elements of its first
/// operand, so that the result of a weight is still that weight. Such ops cost
/// a pass over the weight at most, and each unit may have its own. A reduction
/// that changes nothing is one too, since weigh-losses lets its users read the
/// weight itself.
inline bool isRearrangement(mlir::Operation *op) {
  if (auto reduce = llvm::dyn_cast<ReduceOp>(op))
    return reduce.getType() == reduce.getInput().getType();
  return op->getNumOperands() == 1 &&
         llvm::isa<ElementSourceOpInterface, CastOp>(op);
}

} // namespace fsdpc::nn
