// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decomposes batch norm and its adjoint into primitives. As for other norms,
// the variance is computed from centred values and never as E[x²] - E[x]² in
// f32, which cancels.
#include "compiler/dialects/nn/DecomposeBatchNorm.h"

#include "compiler/dialects/nn/NormOps.h"

using namespace mlir;
using namespace fsdpc::nn;

// Returns the axes other than the channels (axis 1): one statistic per channel
// is taken over batch and image.
static SmallVector<int64_t> channelAxes(Value x) {
  SmallVector<int64_t> axes;
  for (int64_t i = 0, rank = shapeOf(x).size(); i < rank; ++i)
    if (i != 1)
      axes.push_back(i);
  return axes;
}

Value fsdpc::nn::channels(DecomposeBuilder &b, Value vector, Value like) {
  SmallVector<int64_t> shape(shapeOf(like).size(), 1);
  shape[1] = shapeOf(like)[1];
  return b.reshape(b.enter(vector), shape);
}

BatchMoments fsdpc::nn::batchMoments(DecomposeBuilder &b, Value input) {
  SmallVector<int64_t> axes = channelAxes(input);
  Value mean = b.mean(input, axes);
  Value centred = b.sub(input, mean);
  return {mean, centred, b.mean(b.mul(centred, centred), axes)};
}

Value fsdpc::nn::normalised(DecomposeBuilder &b, BatchNormOp op, Value centred,
                            Value variance) {
  Value rstd = b.rsqrt(b.add(variance, op.getEpsilon().convertToDouble()));
  Value normal = b.mul(centred, rstd);
  return b.add(b.mul(normal, channels(b, op.getWeight(), centred)),
               channels(b, op.getBias(), centred));
}

// The variance divides by the number of elements, as ONNX defines it. PyTorch
// would store an unbiased one in the running statistics.
SmallVector<Value> BatchNormOp::decompose(OpBuilder &builder) {
  DecomposeBuilder b(builder, getLoc());
  BatchMoments moments = batchMoments(b, b.enter(getInput()));
  Value y = normalised(b, *this, moments.centred, moments.variance);
  return {b.leave(y, getResult().getType()),
          b.leave(moments.mean, getMean().getType()),
          b.leave(moments.variance, getVariance().getType())};
}

BatchNormSums fsdpc::nn::batchNormSums(DecomposeBuilder &b,
                                       BatchNormGradOp op) {
  Value x = b.enter(op.getInput()), grad = b.enter(op.getGrad());
  SmallVector<int64_t> axes = channelAxes(x);
  Value rstd = b.rsqrt(b.add(channels(b, op.getVariance(), x),
                             op.getEpsilon().convertToDouble()));
  Value normal = b.mul(b.sub(x, channels(b, op.getMean(), x)), rstd);
  Value dbias = b.sum(grad, axes);
  return {x, grad, rstd, normal, dbias, b.sum(b.mul(grad, normal), axes)};
}

// weight · rstd · (grad - mean(grad) - x̂ · mean(grad · x̂))
Value fsdpc::nn::inputCotangent(DecomposeBuilder &b, BatchNormGradOp op,
                                const BatchNormSums &sums, Value dbias,
                                Value dweight) {
  Value x = sums.input;
  // One over the number of elements per channel. The sums are results already,
  // so means are products with it.
  double perElement =
      static_cast<double>(shapeOf(x)[1]) / tensorType(x).getNumElements();
  Value inner = b.sub(b.sub(sums.grad, b.mul(dbias, perElement)),
                      b.mul(sums.normal, b.mul(dweight, perElement)));
  return b.mul(inner, b.mul(sums.rstd, channels(b, op.getWeight(), x)));
}

SmallVector<Value> BatchNormGradOp::decompose(OpBuilder &builder) {
  DecomposeBuilder b(builder, getLoc());
  BatchNormSums sums = batchNormSums(b, *this);
  Value dx = inputCotangent(b, *this, sums, sums.dbias, sums.dweight);
  return {b.leave(dx, getDinput().getType()),
          b.leave(sums.dweight, getDweight().getType()),
          b.leave(sums.dbias, getDbias().getType())};
}
