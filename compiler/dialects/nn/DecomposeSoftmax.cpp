// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decomposes softmax into primitives. The maximum is subtracted before the
// exponential, so nothing overflows. A row of only -inf becomes NaN, as in
// PyTorch.
#include "compiler/dialects/nn/CompositeOps.h"
#include "compiler/dialects/nn/DecomposeRows.h"

using namespace mlir;
using namespace fsdpc::nn;

RowExp fsdpc::nn::rowExp(DecomposeBuilder &b, Value x) {
  int64_t axis = DecomposeBuilder::lastAxis(x);
  Value max = b.max(x, axis);
  Value exps = b.exp(b.sub(x, max));
  return {max, exps, b.sum(exps, axis)};
}

// One division per row, and a multiplication per element.
SmallVector<Value> SoftmaxOp::decompose(OpBuilder &builder) {
  DecomposeBuilder b(builder, getLoc());
  RowExp row = rowExp(b, b.enter(getInput()));
  Value inverse = b.div(b.constant(row.sum, 1), row.sum);
  return {b.leave(b.mul(row.exps, inverse), getType())};
}

// dx = y · (dy - Σ dy · y), from the result alone.
SmallVector<Value> SoftmaxGradOp::decompose(OpBuilder &builder) {
  DecomposeBuilder b(builder, getLoc());
  Value y = b.enter(getOutput()), dy = b.enter(getGrad());
  Value dot = b.sum(b.mul(dy, y), DecomposeBuilder::lastAxis(y));
  return {b.leave(b.mul(y, b.sub(dy, dot)), getType())};
}

// Never log(softmax): a probability that underflows would become -∞.
SmallVector<Value> LogSoftmaxOp::decompose(OpBuilder &builder) {
  DecomposeBuilder b(builder, getLoc());
  Value x = b.enter(getInput());
  RowExp row = rowExp(b, x);
  Value shifted = b.sub(x, row.max);
  return {b.leave(b.sub(shifted, b.log(row.sum)), getType())};
}
