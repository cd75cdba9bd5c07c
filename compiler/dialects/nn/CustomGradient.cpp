// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The verifier and the adjoint of nn.custom_gradient. The model's own backward
// is a slice of ops between nn.cotangent and the gradients; the adjoint is a
// clone of that slice on the cotangents of the results.
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/GradientOps.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace fsdpc::nn;

LogicalResult CustomGradientOp::verify() {
  if (getValues().empty())
    return emitOpError("has no values");
  if (getValues().getTypes() != getResultTypes() ||
      getCotangents().getTypes() != getResultTypes())
    return emitOpError("values and cotangents must have the types of the "
                       "results");
  if (getInputs().getTypes() != getGradients().getTypes())
    return emitOpError("gradients must have the types of the inputs");
  for (auto [i, value] : llvm::enumerate(getCotangents())) {
    auto cotangent = value.getDefiningOp<CotangentOp>();
    if (!cotangent || cotangent.getIndex() != i)
      return emitOpError("cotangent ")
             << i << " must be 'nn.cotangent " << i << "'";
  }
  return success();
}

// Returns the ops of the model's backward that depend on a cotangent, in
// program order.
static SmallVector<Operation *> backwardOf(CustomGradientOp op) {
  // Another op may share the cotangents.
  ForwardSliceOptions options;
  options.filter = [](Operation *each) { return !isa<CustomGradientOp>(each); };
  llvm::SetVector<Operation *> slice;
  for (Value cotangent : op.getCotangents())
    getForwardSlice(cotangent, &slice, options);
  SmallVector<Operation *> ops = slice.takeVector();
  llvm::sort(ops,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return ops;
}

// Clones gradients that nobody wants as well; they are dead ops.
LogicalResult
CustomGradientOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                               ArrayRef<bool> needed,
                               SmallVectorImpl<Value> &operandGrads) {
  IRMapping mapping;
  for (auto [cotangent, gradient] : llvm::zip(getCotangents(), resultGrads)) {
    Value given = gradient ? gradient
                           : splat(builder, getLoc(), tensorType(cotangent), 0);
    mapping.map(cotangent, given);
  }
  for (Operation *each : backwardOf(*this))
    builder.clone(*each, mapping);
  unsigned first = getODSOperandIndexAndLength(2).first;
  for (auto [i, gradient] : llvm::enumerate(getGradients()))
    if (needed[first + i])
      operandGrads[first + i] = mapping.lookupOrDefault(gradient);
  return success();
}
