// Convolution, transposed convolution and pooling. nn has them for two spatial
// dimensions only; one spatial dimension becomes an image of height 1 by a
// reshape. A transposed convolution is the cotangent of a convolution's input,
// which is an op of its own.
#include "frontends/onnx/ops/Volume.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// Returns N×C×L as N×C×1×L. Refuses more than two spatial dimensions and
// returns null.
static Value image(Node &node, Value x) {
  if (rankOf(x) == 4)
    return x;
  if (rankOf(x) != 3)
    return (void)node.refuse("the input has " + Twine(rankOf(x) - 2) +
                             " spatial dimensions; only 1 and 2 are supported"),
           Value();
  ArrayRef<int64_t> s = shapeOf(x);
  return node.b.reshape(x, {s[0], s[1], 1, s[2]});
}

// Removes the dimension that image() has added to an input of rank `rank`.
static Value likeInput(Emitter &b, Value y, int64_t rank) {
  if (rank == 4)
    return y;
  ArrayRef<int64_t> s = shapeOf(y);
  return b.reshape(y, {s[0], s[1], s[3]});
}

namespace {
// The operands of Conv and ConvTranspose: an image, and a filter per channel of
// the convolution's output.
struct Operands {
  Value image, filter;
  ArrayRef<int64_t> sizes, kernel; // the spatial dimensions of both
  int64_t group;
};
} // namespace

// Returns nullopt after it has refused the node.
static std::optional<Operands> readOperands(Node &node) {
  if (failed(node.expectInputs(2, 3)) ||
      failed(node.expectFloat(node.input(0))) ||
      failed(node.expectFloat(node.input(1))))
    return std::nullopt;
  Operands operands;
  operands.image = image(node, node.input(0));
  if (!operands.image)
    return std::nullopt;
  auto refuse = [&](const Twine &reason) -> std::optional<Operands> {
    (void)node.refuse(reason);
    return std::nullopt;
  };
  if (rankOf(node.input(1)) != rankOf(node.input(0)))
    return refuse("the filter must have the rank of the input");
  operands.filter = image(node, node.input(1));
  operands.sizes = shapeOf(node.input(0)).drop_front(2);
  operands.kernel = shapeOf(node.input(1)).drop_front(2);
  if (auto declared = node.getInts("kernel_shape"))
    if (ArrayRef<int64_t>(*declared) != operands.kernel)
      return refuse(
          "attribute 'kernel_shape' must match the shape of the filter");
  operands.group = node.getInt("group", 1);
  return operands;
}

// Sets the node's result to the image `y` in the form of its input, plus the
// bias. nn's convolutions have no bias.
static LogicalResult addBias(Node &node, Value y) {
  Emitter &b = node.b;
  int64_t rank = rankOf(node.input(0)), channels = shapeOf(y)[1];
  y = likeInput(b, y, rank);
  Value bias = node.input(2);
  if (bias && shapeOf(bias) != ArrayRef<int64_t>({channels}))
    return node.refuse("the bias must have one element per output channel");
  // Exporters write a missing bias as zeros.
  if (!bias || matchSplat(bias) == 0.0)
    return node.result(y);
  Shape perChannel(rank - 1, 1);
  perChannel[0] = channels;
  bias = b.broadcast(b.reshape(bias, perChannel), shapeOf(y));
  return node.result(b.binary<nn::AddOp>(y, bias));
}

// A convolution of N×C×D×H×W.
static LogicalResult conv3d(Node &node) {
  if (failed(node.expectInputs(2, 3)) ||
      failed(node.expectFloat(node.input(0))) ||
      failed(node.expectFloat(node.input(1))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0), filter = node.input(1), bias = node.input(2);
  ArrayRef<int64_t> s = shapeOf(x), f = shapeOf(filter);
  int64_t group = node.getInt("group", 1);
  if (f.size() != 5 || group < 1 || s[1] % group != 0 || s[1] / group != f[1] ||
      f[0] % group != 0)
    return node.refuse("the filter does not fit the input's channels in " +
                       Twine(group) + " groups");
  Value y = convolveVolume(node, x, filter, group);
  if (!y)
    return failure();
  if (bias && shapeOf(bias) != ArrayRef<int64_t>({f[0]}))
    return node.refuse("the bias must have one element per output channel");
  if (!bias || matchSplat(bias) == 0.0)
    return node.result(y);
  bias = b.broadcast(b.reshape(bias, {f[0], 1, 1, 1}), shapeOf(y));
  return node.result(b.binary<nn::AddOp>(y, bias));
}

// The filter is M×(C/group)×kH×kW. The image's channels fall into `group` equal
// runs, each with M/group filters of its own.
static LogicalResult conv(Node &node) {
  if (node.has(0) && rankOf(node.input(0)) == 5)
    return conv3d(node);
  auto operands = readOperands(node);
  if (!operands)
    return failure();
  auto [x, filter, sizes, kernel, group] = *operands;
  ArrayRef<int64_t> f = shapeOf(filter), s = shapeOf(x);
  if (group < 1 || s[1] % group != 0 || s[1] / group != f[1] ||
      f[0] % group != 0)
    return node.refuse("the filter has " + Twine(f[1]) +
                       " channels per group in " + Twine(group) +
                       " groups, but the input has " + Twine(s[1]));
  auto w = readWindow(node, sizes, kernel);
  if (!w)
    return failure();
  Shape shape = {s[0], f[0], w->output[0], w->output[1]};
  if (failed(node.checkShape(shape)))
    return failure();
  return addBias(node, node.b.make<nn::Conv2dOp>(tensorType(x).clone(shape), x,
                                                 filter, w->strides, w->pads,
                                                 w->dilations, group));
}

// The filter of ConvTranspose is that of the convolution whose input's
// cotangent it computes: one filter per channel of the node's input.
static LogicalResult convTranspose(Node &node) {
  auto operands = readOperands(node);
  if (!operands)
    return failure();
  auto [x, filter, sizes, kernel, group] = *operands;
  ArrayRef<int64_t> f = shapeOf(filter), s = shapeOf(x);
  if (group < 1 || f[0] != s[1] || s[1] % group != 0 || group > s[1])
    return node.refuse("the filter's first dimension is " + Twine(f[0]) +
                       " and 'group' is " + Twine(group) +
                       ", but the input has " + Twine(s[1]) + " channels");
  auto w = readTransposedWindow(node, sizes, kernel);
  if (!w)
    return failure();
  Shape shape = {s[0], f[1] * group, w->output[0], w->output[1]};
  if (failed(node.checkShape(shape)))
    return failure();
  return addBias(node, node.b.make<nn::Conv2dGradInputOp>(
                           tensorType(x).clone(shape), x, filter, w->strides,
                           w->pads, w->dilations, group));
}

// The second result holds the position of each maximum, for the backward.
static LogicalResult maxPool(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  if (node.isUsed(1))
    return node.refuse("output 'Indices' is not supported, but is used");
  if (rankOf(node.input(0)) == 5) {
    Value y = maxPoolVolume(node, node.input(0));
    return y ? node.result(y) : failure();
  }
  int64_t rank = rankOf(node.input(0));
  Value x = image(node, node.input(0));
  auto kernel = node.getInts("kernel_shape");
  if (!x || !kernel)
    return x ? node.refuse("attribute 'kernel_shape' is missing") : failure();
  auto w = readWindow(node, shapeOf(node.input(0)).drop_front(2), *kernel);
  if (!w)
    return failure();
  if (w->dilations != Shape{1, 1})
    return node.refuse("attribute 'dilations' is " + printShape(w->dilations) +
                       "; only 1 is supported");
  Shape shape = {shapeOf(x)[0], shapeOf(x)[1], w->output[0], w->output[1]};
  auto index = RankedTensorType::get(shape, b.builder.getI32Type());
  auto pool =
      b.op<nn::MaxPool2dOp>(TypeRange{tensorType(x).clone(shape), index}, x,
                            w->kernel, w->strides, w->pads);
  return node.result(likeInput(b, pool.getResult(), rank));
}

// With count_include_pad, the pads that ceil_mode adds would count as well,
// which ONNX does not mean; the combination is refused.
static LogicalResult averagePool(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  if (rankOf(node.input(0)) == 5) {
    Value y = averagePoolVolume(node, node.input(0));
    return y ? node.result(y) : failure();
  }
  int64_t rank = rankOf(node.input(0));
  Value x = image(node, node.input(0));
  auto kernel = node.getInts("kernel_shape");
  if (!x || !kernel)
    return x ? node.refuse("attribute 'kernel_shape' is missing") : failure();
  auto w = readWindow(node, shapeOf(node.input(0)).drop_front(2), *kernel);
  if (!w)
    return failure();
  if (w->dilations != Shape{1, 1})
    return node.refuse("attribute 'dilations' is " + printShape(w->dilations) +
                       "; only 1 is supported");
  bool counted = node.getInt("count_include_pad", 0);
  if (counted && node.getInt("ceil_mode", 0))
    return node.refuse(
        "'ceil_mode' and 'count_include_pad' are not supported together");
  Shape shape = {shapeOf(x)[0], shapeOf(x)[1], w->output[0], w->output[1]};
  Value y = b.make<nn::AvgPool2dOp>(tensorType(x).clone(shape), x, w->kernel,
                                    w->strides, w->pads, counted);
  return node.result(likeInput(b, y, rank));
}

// A reduction over all spatial dimensions, of any number.
template <bool isMax> static LogicalResult globalPool(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Value x = node.input(0);
  if (rankOf(x) < 3 || tensorType(x).getNumElements() == 0)
    return node.refuse("the input must have at least one spatial dimension and "
                       "must not be empty");
  Shape axes;
  for (int64_t i = 2; i < rankOf(x); ++i)
    axes.push_back(i);
  return node.result(isMax ? node.b.reduce(nn::ReduceKind::max, x, axes)
                           : node.b.mean(x, axes));
}

void frontend::registerConvolution(HandlerTable &table) {
  table.add("Conv", 1, conv);
  table.add("ConvTranspose", 1, convTranspose);
  table.add("MaxPool", 1, maxPool);
  table.add("AveragePool", 7, averagePool);
  table.add("GlobalAveragePool", 1, globalPool<false>);
  table.add("GlobalMaxPool", 1, globalPool<true>);
}
