// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Softmax and norms. nn normalises along the last axis only, over rows: other
// axes are transposed or merged into it, and groups and instances become rows
// of a layer norm. Batch norm has an op of its own in training mode, since it
// updates running statistics; in inference mode it is elementwise arithmetic.
#include "compiler/dialects/nn/CompositeOps.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/NormOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/Node.h"

#include "frontends/onnx/GraphImporter.h"
#include "frontends/onnx/ops/TracedAttention.h"

#include <numeric>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// The callers have checked that the product fits.
static int64_t product(ArrayRef<int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t(1),
                         std::multiplies<>());
}

// nn's softmax runs along the last axis; any other axis is swapped with it.
template <typename OpT> static LogicalResult softmax(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Value x = node.input(0);
  auto axis = node.axis(node.getInt("axis", -1), rankOf(x));
  if (!axis)
    return failure();
  Shape swap;
  for (int64_t i = 0; i < rankOf(x); ++i)
    swap.push_back(i);
  std::swap(swap[*axis], swap.back());
  x = node.b.transpose(x, swap);
  Value y = std::is_same_v<OpT, nn::SoftmaxOp> && isSoftmaxOfAttention(node)
                ? softmaxOrZeros(node.b, x)
                : node.b.unary<OpT>(x);
  return node.result(node.b.transpose(y, swap));
}

// Before opset 13 the dimensions from `axis` on are one row. The default axis
// was 1 then, and is -1 now.
template <typename OpT> static LogicalResult softmaxOfRows(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Value x = node.input(0);
  auto axis = node.axis(node.getInt("axis", 1), rankOf(x));
  if (!axis)
    return failure();
  Shape rows(shapeOf(x).take_front(*axis));
  rows.push_back(product(shapeOf(x).drop_front(*axis)));
  Value y = node.b.unary<OpT>(node.b.reshape(x, rows));
  return node.result(node.b.reshape(y, shapeOf(x)));
}

// Returns the shape of `x` with the dimensions from `axis` on merged into one,
// which is what a norm from `axis` on normalises.
static Shape rowsShape(Value x, int64_t axis) {
  Shape shape(shapeOf(x).take_front(axis));
  shape.push_back(product(shapeOf(x).drop_front(axis)));
  return shape;
}

// nn.layer_norm has no gradient of its statistics; where a node gives them, it
// is arithmetic on rows. `weight` and `bias` may be null. The mean and 1 /
// √(variance + epsilon) are outputs 1 and 2.
static LogicalResult layerNormWithStatistics(Node &node, Value rows,
                                             Value weight, Value bias,
                                             double epsilon) {
  Emitter &b = node.b;
  Value x = node.input(0);
  int64_t last = rankOf(rows) - 1;
  Value mean = b.mean(rows, {last});
  Value centred = b.binary<nn::SubOp>(rows, b.broadcast(mean, shapeOf(rows)));
  Value variance = b.mean(b.binary<nn::MulOp>(centred, centred), {last});
  Value rstd = b.unary<nn::RsqrtOp>(b.binary<nn::AddOp>(variance, epsilon));
  Value y = b.binary<nn::MulOp>(centred, b.broadcast(rstd, shapeOf(rows)));
  if (weight)
    y = b.binary<nn::MulOp>(y, b.broadcast(weight, shapeOf(rows)));
  if (bias)
    y = b.binary<nn::AddOp>(y, b.broadcast(bias, shapeOf(rows)));
  node.setOutput(0, b.reshape(y, shapeOf(x)));
  // ONNX keeps normalised dimensions as 1.
  Shape kept(shapeOf(x).take_front(last));
  kept.resize(rankOf(x), 1);
  node.setOutput(1, b.reshape(mean, kept));
  node.setOutput(2, b.reshape(rstd, kept));
  return success();
}

// A weight of 1 and a bias of 0 change nothing and are left out. The variance
// is the biased one; statistics are f32 whatever the compute type.
static LogicalResult layerNorm(Node &node) {
  if (failed(node.expectInputs(2, 3)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0), weight = node.input(1), bias = node.input(2);
  auto axis = node.axis(node.getInt("axis", -1), rankOf(x));
  if (!axis)
    return failure();
  Shape rows = rowsShape(x, *axis), normalised(shapeOf(x).drop_front(*axis));
  for (Value *affine : {&weight, &bias}) {
    if (!*affine)
      continue;
    if (!node.broadcastsTo(*affine, normalised) ||
        failed(node.expectFloat(*affine)))
      return node.refuse(
          "scale and bias must broadcast to the normalised shape");
    *affine = b.reshape(b.broadcast(*affine, normalised), {rows.back()});
  }
  if (weight && matchSplat(weight) == 1.0)
    weight = nullptr;
  if (bias && matchSplat(bias) == 0.0)
    bias = nullptr;
  Value input = b.reshape(x, rows);
  double epsilon = node.getFloat("epsilon", 1e-5f);
  if (node.isUsed(1) || node.isUsed(2))
    return layerNormWithStatistics(node, input, weight, bias, epsilon);
  auto statistics =
      RankedTensorType::get(ArrayRef(rows).drop_back(), b.builder.getF32Type());
  auto norm = b.op<nn::LayerNormOp>(
      TypeRange{input.getType(), statistics, statistics}, input, weight, bias,
      b.builder.getF64FloatAttr(epsilon));
  return node.result(b.reshape(norm.getResult(), shapeOf(x)));
}

// x / √(mean(x²) + epsilon) · scale. Zhang and Sennrich, Root Mean Square Layer
// Normalization, 2019.
static LogicalResult rmsNorm(Node &node) {
  if (failed(node.expectInputs(2, 2)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0), weight = node.input(1);
  auto axis = node.axis(node.getInt("axis", -1), rankOf(x));
  if (!axis)
    return failure();
  Shape rows = rowsShape(x, *axis), normalised(shapeOf(x).drop_front(*axis));
  if (!node.broadcastsTo(weight, normalised) ||
      failed(node.expectFloat(weight)))
    return node.refuse("the scale must broadcast to the normalised shape");
  weight = b.reshape(b.broadcast(weight, normalised), {rows.back()});
  Value input = b.reshape(x, rows);
  auto statistics =
      RankedTensorType::get(ArrayRef(rows).drop_back(), b.builder.getF32Type());
  auto norm = b.op<nn::RmsNormOp>(
      TypeRange{input.getType(), statistics}, input, weight,
      b.builder.getF64FloatAttr(node.getFloat("epsilon", 1e-5f)));
  return node.result(b.reshape(norm.getResult(), shapeOf(x)));
}

// Normalises groups of channels as rows of a layer norm. Scale and bias are
// applied after it, since they are per channel. N×C×… as N×count rows of
// C/count·…: a group's elements are adjacent. One group per channel makes an
// instance norm.
static LogicalResult groups(Node &node, int64_t count) {
  Emitter &b = node.b;
  Value x = node.input(0);
  int64_t channels = shapeOf(x)[1];
  if (count < 1 || channels % count != 0)
    return node.refuse(Twine(count) + " groups do not evenly divide " +
                       Twine(channels) + " channels");
  Shape rows = {shapeOf(x)[0], count,
                tensorType(x).getNumElements() / (shapeOf(x)[0] * count)};
  Value input = b.reshape(x, rows);
  auto statistics =
      RankedTensorType::get(ArrayRef(rows).drop_back(), b.builder.getF32Type());
  auto norm = b.op<nn::LayerNormOp>(
      TypeRange{input.getType(), statistics, statistics}, input, Value(),
      Value(), b.builder.getF64FloatAttr(node.getFloat("epsilon", 1e-5f)));
  Value y = b.reshape(norm.getResult(), shapeOf(x));
  Shape perChannel(rankOf(x) - 1, 1);
  perChannel[0] = channels;
  for (int64_t i : {1, 2}) {
    Value affine = node.input(i);
    int64_t size = tensorType(affine).getNumElements();
    if (failed(node.expectFloat(affine)) || rankOf(affine) != 1 ||
        (size != channels && size != count))
      return node.refuse("scale and bias must have one element per channel");
    if (size != channels) // opset 18: one per group
      affine = b.reshape(
          b.broadcast(b.reshape(affine, {count, 1}), {count, channels / count}),
          {channels});
    affine = b.broadcast(b.reshape(affine, perChannel), shapeOf(x));
    y = i == 1 ? b.binary<nn::MulOp>(y, affine)
               : b.binary<nn::AddOp>(y, affine);
  }
  return node.result(y);
}

// Checks an input N×C×… with scale and bias. An empty input has no mean.
static LogicalResult expectImages(Node &node) {
  if (failed(node.expectInputs(3, 3)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  if (rankOf(node.input(0)) < 2 ||
      tensorType(node.input(0)).getNumElements() == 0)
    return node.refuse(
        "the input must have a channel dimension and must not be empty");
  return success();
}

static LogicalResult groupNorm(Node &node) {
  if (failed(expectImages(node)))
    return failure();
  return groups(node, node.getInt("num_groups", 1));
}

static LogicalResult instanceNorm(Node &node) {
  if (failed(expectImages(node)))
    return failure();
  return groups(node, shapeOf(node.input(0))[1]);
}

// x / Σ|x| or x / √Σx², along one axis. A row of zeros stays one: it is divided
// by 1, before the root, whose slope at 0 is infinite. Any p but 1 is the
// Euclidean norm; ONNX allows 1 and 2.
static LogicalResult lpNorm(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  auto axis = node.axis(node.getInt("axis", -1), rankOf(x));
  if (!axis)
    return failure();
  bool isL1 = node.getInt("p", 2) == 1;
  Value powers = isL1 ? b.unary<nn::AbsOp>(x) : b.binary<nn::MulOp>(x, x);
  Value norm = b.reduce(nn::ReduceKind::sum, powers, {*axis});
  Value isZero = b.compare(nn::Predicate::eq, norm, b.like(norm, 0));
  norm = b.select(isZero, b.like(norm, 1), norm);
  if (!isL1)
    norm = b.unary<nn::SqrtOp>(norm);
  return node.result(b.binary<nn::DivOp>(x, b.broadcast(norm, shapeOf(x))));
}

// x / (bias + alpha / size · Σx²)^beta, where the sum is over `size` channels
// around each one (Krizhevsky et al. 2012). Pads of zeros at both ends of the
// channels; with an even size the longer one is at the end.
static LogicalResult localResponseNorm(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  int64_t size = node.getInt("size", 0);
  if (rankOf(x) < 2 || size < 1 || size > (1 << 16))
    return node.refuse("the input must have a channel dimension, and 'size' "
                       "must lie between 1 and 65536");
  int64_t channels = shapeOf(x)[1];
  Shape padded(shapeOf(x)), offsets(rankOf(x), 0), ones(rankOf(x), 1);
  padded[1] += size - 1;
  offsets[1] = (size - 1) / 2;
  if (failed(node.checkShape(padded)))
    return failure();
  Value squares = b.make<nn::PadOp>(tensorType(x).clone(padded),
                                    b.binary<nn::MulOp>(x, x), offsets, ones);
  Value sum;
  for (int64_t k = 0; k < size; ++k) {
    Value part = b.slice(squares, 1, k, channels);
    sum = sum ? b.binary<nn::AddOp>(sum, part) : part;
  }
  double alpha = node.getFloat("alpha", 1e-4f),
         beta = node.getFloat("beta", 0.75);
  Value base = b.binary<nn::AddOp>(
      b.binary<nn::MulOp>(sum, alpha / double(size)), node.getFloat("bias", 1));
  return node.result(b.binary<nn::MulOp>(x, b.binary<nn::PowOp>(base, -beta)));
}

// (x - mean) / (√variance + 1e-9), as ONNX's function body has it. The default
// axes keep the channels of an image apart.
static LogicalResult meanVarianceNorm(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  auto given = node.getInts("axes");
  auto axes =
      node.axes(given ? *given : SmallVector<int64_t>{0, 2, 3}, rankOf(x));
  if (!axes)
    return failure();
  if (tensorType(x).getNumElements() == 0)
    return node.refuse("the input is empty");
  Value mean = b.mean(x, *axes);
  Value centred = b.binary<nn::SubOp>(x, b.broadcast(mean, shapeOf(x)));
  Value variance = b.mean(b.binary<nn::MulOp>(centred, centred), *axes);
  Value deviation = b.binary<nn::AddOp>(b.unary<nn::SqrtOp>(variance), 1e-9f);
  return node.result(
      b.binary<nn::DivOp>(centred, b.broadcast(deviation, shapeOf(x))));
}

// Inputs: x, scale, bias, running mean, running variance. With fixed statistics
// y = (x - mean) · (scale / √(variance + epsilon)) + bias.
// Sets the outputs that few graphs read: the statistics after this batch, with
// the biased variance of ONNX's definition. They are buffers, so no gradient
// passes.
static void setStatistics(Node &node, Value mean, Value variance) {
  Emitter &b = node.b;
  double kept = node.getFloat("momentum", 0.9f);
  for (auto [output, input, batch] :
       {std::tuple(1, 3, mean), std::tuple(2, 4, variance)}) {
    if (!node.isUsed(output))
      continue;
    Value old = b.cast(node.input(input), elementOf(batch));
    Value sum = b.binary<nn::AddOp>(b.binary<nn::MulOp>(old, kept),
                                    b.binary<nn::MulOp>(batch, 1 - kept));
    node.setOutput(output, b.unary<nn::StopGradientOp>(sum));
  }
}

static LogicalResult batchNorm(Node &node) {
  if (failed(node.expectInputs(5, 5)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0), weight = node.input(1), bias = node.input(2);
  if (rankOf(x) < 2 || tensorType(x).getNumElements() == 0)
    return node.refuse(
        "the input must have a channel dimension and must not be empty");
  // perChannel is C×1×…, which broadcasts from the right to N×C×….
  Shape channels = {shapeOf(x)[1]}, perChannel(rankOf(x) - 1, 1);
  perChannel[0] = channels[0];
  for (int64_t i = 1; i < 5; ++i)
    if (shapeOf(node.input(i)) != ArrayRef<int64_t>(channels) ||
        failed(node.expectFloat(node.input(i))))
      return node.refuse("input " + Twine(i) +
                         " must have one element per channel");
  double epsilon = node.getFloat("epsilon", 1e-5f);
  if (!node.importer.trainsBatchNorm(node)) {
    auto perElement = [&](Value value) {
      return b.broadcast(b.reshape(value, perChannel), shapeOf(x));
    };
    Value rstd =
        b.unary<nn::RsqrtOp>(b.binary<nn::AddOp>(node.input(4), epsilon));
    // x - mean comes first: a mean that is folded into the bias would cancel
    // digits where it is large.
    Value centred = b.binary<nn::SubOp>(x, perElement(node.input(3)));
    Value scale = perElement(b.binary<nn::MulOp>(weight, rstd));
    return node.result(b.binary<nn::AddOp>(b.binary<nn::MulOp>(centred, scale),
                                           perElement(bias)));
  }
  auto statistics = RankedTensorType::get(channels, b.builder.getF32Type());
  auto norm =
      b.op<nn::BatchNormOp>(TypeRange{x.getType(), statistics, statistics}, x,
                            weight, bias, b.builder.getF64FloatAttr(epsilon));
  node.setOutput(0, norm.getResult());
  setStatistics(node, norm.getMean(), norm.getVariance());
  // The running variance is the unbiased one in PyTorch and the biased one in
  // ONNX's definition. The exporters that write training graphs follow PyTorch.
  int64_t count = tensorType(x).getNumElements() / channels[0];
  Value unbiased = norm.getVariance();
  if (count > 1)
    unbiased = b.binary<nn::MulOp>(unbiased, double(count) / double(count - 1));
  double momentum = 1 - node.getFloat("momentum", 0.9f);
  // 1 - 0.9f is 0.10000002; the exporter meant the shortest decimal.
  momentum = std::round(momentum * 1e6) / 1e6;
  return node.importer.updateStatistics(node, norm.getMean(), unbiased,
                                        momentum);
}

void frontend::registerNormalisation(HandlerTable &table) {
  table.add("Softmax", 1, softmaxOfRows<nn::SoftmaxOp>);
  table.add("Softmax", 13, softmax<nn::SoftmaxOp>);
  table.add("LogSoftmax", 1, softmaxOfRows<nn::LogSoftmaxOp>);
  table.add("LogSoftmax", 13, softmax<nn::LogSoftmaxOp>);
  // ONNX has LayerNormalization from opset 17 on; onnxruntime's own ops of
  // these names are of opset 1.
  table.add("LayerNormalization", 1, layerNorm);
  table.add("SimplifiedLayerNormalization", 1, rmsNorm);
  table.add("RMSNormalization", 23, rmsNorm);
  table.add("GroupNormalization", 18, groupNorm);
  table.add("InstanceNormalization", 6, instanceNorm);
  table.add("LpNormalization", 1, lpNorm);
  table.add("LRN", 1, localResponseNorm);
  table.add("MeanVarianceNormalization", 9, meanVarianceNorm);
  table.add("BatchNormalization", 9, batchNorm);
}
