// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolution and transposed convolution. nn has them for two spatial
// dimensions only; one spatial dimension becomes an image of height 1 by a
// reshape. A transposed convolution is the cotangent of a convolution's input,
// which is an op of its own.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/ops/Volume.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

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
// bias. nn's convolutions have no bias. `y` is N×C×H×W even for a node over
// N×C×L; likeInput drops the height of 1.
static LogicalResult addBias(Node &node, Value y) {
  Emitter &b = node.b;
  int64_t rank = rankOf(node.input(0)), channels = shapeOf(y)[1];
  y = likeInput(b, y, rank);
  Value bias = node.input(2);
  if (bias && shapeOf(bias) != ArrayRef<int64_t>({channels}))
    return node.refuse("the bias must have one element per output channel");
  // Exporters write a missing bias as zeros. | matchSplat| Leaving it out saves
  // a pass over the result and a gradient.
  if (!bias || matchSplat(bias) == 0.0)
    return node.result(y);
  Shape perChannel(rank - 1, 1);
  perChannel[0] = channels;
  bias = b.broadcast(b.reshape(bias, perChannel), shapeOf(y));
  return node.result(b.binary<nn::AddOp>(y, bias));
}

// Adds the bias of a node over volumes, N×C×D×H×W.
static LogicalResult addVolumeBias(Node &node, Value y) {
  Emitter &b = node.b;
  Value bias = node.input(2);
  int64_t channels = shapeOf(y)[1];
  if (bias && shapeOf(bias) != ArrayRef<int64_t>({channels}))
    return node.refuse("the bias must have one element per output channel");
  if (!bias || matchSplat(bias) == 0.0)
    return node.result(y);
  bias = b.broadcast(b.reshape(bias, {channels, 1, 1, 1}), shapeOf(y));
  return node.result(b.binary<nn::AddOp>(y, bias));
}

// A convolution of N×C×D×H×W, or its transpose. A filter of the convolution is
// M×(C/group)×kD×kH×kW, one of the transpose C×(M/group)×kD×kH×kW, so it counts
// the input's channels along another axis.
static LogicalResult convVolume(Node &node, bool transposed) {
  if (failed(node.expectInputs(2, 3)) ||
      failed(node.expectFloat(node.input(0))) ||
      failed(node.expectFloat(node.input(1))))
    return failure();
  Value x = node.input(0), filter = node.input(1);
  ArrayRef<int64_t> s = shapeOf(x), f = shapeOf(filter);
  int64_t group = node.getInt("group", 1);
  if (f.size() != 5 || group < 1 || s[1] % group != 0 || f[0] % group != 0 ||
      (transposed ? f[0] != s[1] : f[1] != s[1] / group))
    return node.refuse("the filter does not fit the input's channels in " +
                       Twine(group) + " groups");
  Value y = transposed ? convolveVolumeTransposed(node, x, filter, group)
                       : convolveVolume(node, x, filter, group);
  return y ? addVolumeBias(node, y) : failure();
}

// The filter is M×(C/group)×kH×kW. The image's channels fall into `group` equal
// runs, each with M/group filters of its own.
static LogicalResult conv(Node &node) {
  if (node.has(0) && rankOf(node.input(0)) == 5)
    return convVolume(node, /*transposed=*/false);
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
  // N×M×H'×W'. readWindow has computed H' and W' from pads, strides and
  // dilations, or from auto_pad.
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
  if (node.has(0) && rankOf(node.input(0)) == 5)
    return convVolume(node, /*transposed=*/true);
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
  // The filter is C×(M/group)×kH×kW: M output channels in all.
  Shape shape = {s[0], f[1] * group, w->output[0], w->output[1]};
  if (failed(node.checkShape(shape)))
    return failure();
  return addBias(node, node.b.make<nn::Conv2dGradInputOp>(
                           tensorType(x).clone(shape), x, filter, w->strides,
                           w->pads, w->dilations, group));
}

// Adds up N×(C·K)×L columns, one per place of a window of K elements, into the
// image that they were taken from: any number of spatial dimensions.
// torch.nn.Fold. Each place of the window is one column; the sum over the K
// taps is unrolled, so K is bounded.
static LogicalResult col2Im(Node &node) {
  if (failed(node.expectInputs(3, 3)))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  auto sizes = node.integers(1, "'image_shape'");
  auto kernel = sizes ? node.integers(2, "'block_shape'") : std::nullopt;
  if (!kernel)
    return failure();
  size_t dims = sizes->size();
  if (dims < 1 || dims > 6 || kernel->size() != dims || rankOf(x) != 3 ||
      elementOf(x).isInteger(1))
    return node.refuse("the input must be N×(C·K)×L numbers, 'image_shape' and "
                       "'block_shape' of one to six dimensions");
  for (int64_t size : *sizes)
    if (size < 1 || size > (1 << 24))
      return node.refuse("'image_shape' is " + printShape(*sizes) +
                         "; its sizes must be positive and below 2^24");
  auto w = readPlainWindow(node, *sizes, *kernel);
  if (!w)
    return failure();
  int64_t taps = countElements(w->kernel).value_or(0);
  int64_t places = countElements(w->output).value_or(0);
  // A pad and an addition per tap: 64×64 windows are the largest.
  constexpr int64_t mostTaps = 4096;
  if (taps < 1 || taps > mostTaps || shapeOf(x)[1] % taps != 0 ||
      shapeOf(x)[2] != places)
    return node.refuse("the input's shape " + printShape(shapeOf(x)) +
                       " does not fit " + Twine(taps) + " elements at " +
                       Twine(places) + " places of a window");
  int64_t channels = shapeOf(x)[1] / taps;
  Shape split = {shapeOf(x)[0], channels, taps}, placed = {split[0], channels},
        padded = placed, image = placed, begin = {0, 0}, ones(dims + 2, 1);
  split.append(w->output);
  placed.append(w->output);
  image.append(sizes->begin(), sizes->end());
  for (size_t d = 0; d < dims; ++d) {
    padded.push_back((*sizes)[d] + w->pads[d] + w->pads[d + dims]);
    begin.push_back(w->pads[d]);
  }
  if (failed(node.checkShape(padded)) || failed(node.checkShape(split)))
    return failure();
  Value columns = b.reshape(x, split), sum;
  // Tap k lies at the offset `offsets` in the padded image and repeats every
  // `strides`: the inverse of a strided slice, which is a pad with gaps.
  for (int64_t k = 0; k < taps; ++k) {
    Shape offsets(dims + 2, 0), strides(dims + 2, 1);
    int64_t rest = k;
    for (int64_t d = dims - 1; d >= 0; --d) {
      offsets[2 + d] = rest % w->kernel[d] * w->dilations[d];
      strides[2 + d] = w->strides[d];
      rest /= w->kernel[d];
    }
    Value part = b.reshape(b.slice(columns, 2, k, 1), placed);
    part = b.make<nn::PadOp>(tensorType(part).clone(padded), part, offsets,
                             strides);
    sum = sum ? b.binary<nn::AddOp>(sum, part) : part;
  }
  return node.result(b.slice(sum, begin, ones, image));
}

void frontend::registerConvolution(HandlerTable &table) {
  table.add("Conv", 1, conv);
  table.add("ConvTranspose", 1, convTranspose);
  table.add("Col2Im", 18, col2Im);
}
