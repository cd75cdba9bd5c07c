// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decomposes norms and their adjoints into primitives. Variances are computed
// from centred values, in two passes over a row that is in the cache, never as
// E[x²] - E[x]², which cancels.
#include "compiler/dialects/nn/DecomposeBuilder.h"
#include "compiler/dialects/nn/NormOps.h"

using namespace mlir;
using namespace fsdpc::nn;

namespace {

// Returns a statistic, which lacks the last dimension, as a column.
Value column(DecomposeBuilder &b, Value statistic, Value like) {
  SmallVector<int64_t> shape(shapeOf(like));
  shape.back() = 1;
  return b.reshape(b.enter(statistic), shape);
}

// Returns x · weight along the last axis, or x if there is no weight.
Value scaled(DecomposeBuilder &b, Value x, Value weight) {
  return weight ? b.mul(x, b.enter(weight)) : x;
}

} // namespace

// The statistics are results, in f32: the adjoint reads them instead of
// reducing each row again. Weight and bias are applied before the only
// rounding.
SmallVector<Value> LayerNormOp::decompose(OpBuilder &builder) {
  DecomposeBuilder b(builder, getLoc());
  Value x = b.enter(getInput());
  int64_t axis = DecomposeBuilder::lastAxis(x);
  Value mean = b.mean(x, axis);
  Value centred = b.sub(x, mean);
  Value variance = b.mean(b.mul(centred, centred), axis);
  Value rstd = b.rsqrt(b.add(variance, getEpsilon().convertToDouble()));
  Value y = scaled(b, b.mul(centred, rstd), getWeight());
  if (getBias())
    y = b.add(y, b.enter(getBias()));
  return {b.leave(y, getResult().getType()), b.leave(mean, getMean().getType()),
          b.leave(rstd, getRstd().getType())};
}

SmallVector<Value> LayerNormGradOp::decompose(OpBuilder &builder) {
  // rstd · (g - mean(g) - x̂ · mean(g · x̂)) with g = grad · weight
  DecomposeBuilder b(builder, getLoc());
  Value x = b.enter(getInput());
  int64_t axis = DecomposeBuilder::lastAxis(x);
  Value g = scaled(b, b.enter(getGrad()), getWeight());
  Value rstd = column(b, getRstd(), x);
  Value normal = b.mul(b.sub(x, column(b, getMean(), x)), rstd);
  Value slope = b.mean(b.mul(g, normal), axis);
  Value inner = b.sub(b.sub(g, b.mean(g, axis)), b.mul(normal, slope));
  return {b.leave(b.mul(inner, rstd), getType())};
}

// As layer_norm without the mean (Zhang and Sennrich, Root Mean Square Layer
// Normalization, 2019).
SmallVector<Value> RmsNormOp::decompose(OpBuilder &builder) {
  DecomposeBuilder b(builder, getLoc());
  Value x = b.enter(getInput());
  Value square = b.mean(b.mul(x, x), DecomposeBuilder::lastAxis(x));
  Value rstd = b.rsqrt(b.add(square, getEpsilon().convertToDouble()));
  Value y = scaled(b, b.mul(x, rstd), getWeight());
  return {b.leave(y, getResult().getType()),
          b.leave(rstd, getRstd().getType())};
}

SmallVector<Value> RmsNormGradOp::decompose(OpBuilder &builder) {
  // rstd · (g - x̂ · mean(g · x̂)) with g = grad · weight
  DecomposeBuilder b(builder, getLoc());
  Value x = b.enter(getInput());
  Value g = scaled(b, b.enter(getGrad()), getWeight());
  Value rstd = column(b, getRstd(), x);
  Value normal = b.mul(x, rstd);
  Value slope = b.mean(b.mul(g, normal), DecomposeBuilder::lastAxis(x));
  return {b.leave(b.mul(b.sub(g, b.mul(normal, slope)), rstd), getType())};
}

// Sums grad · x̂ over all rows, so it reduces down columns. Without a mean it
// is the gradient of rms_norm.
SmallVector<Value> NormWeightGradOp::decompose(OpBuilder &builder) {
  DecomposeBuilder b(builder, getLoc());
  Value x = b.enter(getInput());
  Value centred = getMean() ? b.sub(x, column(b, getMean(), x)) : x;
  Value normal = b.mul(centred, column(b, getRstd(), x));
  SmallVector<int64_t> rows;
  for (int64_t i = 0; i < DecomposeBuilder::lastAxis(x); ++i)
    rows.push_back(i);
  return {b.leave(b.sum(b.mul(b.enter(getGrad()), normal), rows), getType())};
}
