// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ops that move whole blocks of elements: padding in all modes, exchanges of
// depth and space, crops, compression by a constant condition, and reversal of
// sequences.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "frontends/onnx/ops/Gather.h"
#include "frontends/onnx/ops/Pad.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// ---- padding ----

// Returns the place in a dimension of `size` that an element outside of it
// repeats. "reflect" runs back and forth without repeating the edge, a period
// of 2 · size - 2; "wrap" starts again.
static int64_t repeatedPlace(int64_t at, int64_t size, StringRef mode) {
  if (mode == "edge")
    return std::clamp<int64_t>(at, 0, size - 1);
  int64_t period = mode == "wrap" ? size : std::max<int64_t>(1, 2 * size - 2);
  int64_t place = ((at % period) + period) % period;
  return place < size ? place : period - place;
}

// Pads one axis with elements of the input; `before` and `after` are positive.
// A gather of each side, whose adjoint adds the gradients of repeated elements.
static Value padByElements(Emitter &b, Value x, int64_t axis, int64_t before,
                           int64_t after, StringRef mode) {
  int64_t size = shapeOf(x)[axis];
  SmallVector<Value> parts;
  auto gathered = [&](int64_t begin, int64_t end) {
    SmallVector<int64_t> ids;
    for (int64_t at = begin; at < end; ++at)
      ids.push_back(repeatedPlace(at, size, mode));
    if (!ids.empty())
      parts.push_back(gatherAlong(b, x, b.integers(ids), axis));
  };
  gathered(-before, 0);
  parts.push_back(x);
  gathered(size, size + after);
  return b.concat(parts, axis);
}

Value frontend::padByValue(Emitter &b, Value x, int64_t axis, int64_t before,
                           int64_t after, double value) {
  SmallVector<Value> parts;
  auto fill = [&](int64_t count) {
    Shape shape(shapeOf(x));
    shape[axis] = count;
    if (count > 0)
      parts.push_back(b.splat(tensorType(x).clone(shape), value));
  };
  fill(before);
  parts.push_back(x);
  fill(after);
  return b.concat(parts, axis);
}

// Pads one axis after another. Negative pads remove elements. 'pads' holds all
// begins, then all ends.
static LogicalResult pad(Node &node) {
  if (failed(node.expectInputs(1, 4)))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  std::string mode = node.getString("mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect" &&
      mode != "wrap")
    return node.refuse("attribute 'mode' is '" + mode +
                       "'; use constant, edge, reflect or wrap");
  auto pads = node.integersOrAttribute(1, "pads");
  if (!pads)
    return failure();
  SmallVector<int64_t> axes;
  for (int64_t i = 0; i < rankOf(x); ++i)
    axes.push_back(i);
  if (node.has(3)) {
    auto given = node.integers(3, "'axes'");
    if (!given || !node.axes(*given, rankOf(x)))
      return failure();
    axes = *given;
  }
  if (pads->size() != 2 * axes.size())
    return node.refuse("'pads' must have two entries per axis");
  // The attribute of opset 10 and before is named otherwise than the input.
  double value = node.getFloat("value", 0);
  if (node.has(2)) {
    auto number = node.number(2, "'constant_value'");
    if (!number)
      return failure();
    value = *number;
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t axis = axes[i] < 0 ? axes[i] + rankOf(x) : axes[i];
    int64_t before = (*pads)[i], after = (*pads)[i + axes.size()];
    int64_t size = shapeOf(x)[axis];
    // Clamped to the dimension before the signs are turned, so that no hostile
    // pad overflows.
    int64_t begin = std::max<int64_t>(0, -std::max(before, -size));
    int64_t end = size - std::max<int64_t>(0, -std::max(after, -size));
    x = b.slice(x, axis, begin, std::max<int64_t>(0, end - begin));
    before = std::max<int64_t>(0, before);
    after = std::max<int64_t>(0, after);
    if (before == 0 && after == 0)
      continue;
    // Each is bounded before they are added.
    Shape shape(shapeOf(x));
    constexpr int64_t most = int64_t(1) << 40;
    shape[axis] =
        before > most || after > most ? -1 : shape[axis] + before + after;
    if (failed(node.checkShape(shape)))
      return failure();
    if (mode != "constant" && shapeOf(x)[axis] == 0)
      return node.refuse("dimension " + Twine(axis) +
                         " is empty, so there is nothing to repeat");
    if (mode != "constant" && before + after > kMostIntegers)
      return node.refuse("pads of more than " + Twine(kMostIntegers) +
                         " elements are not supported in mode '" + mode + "'");
    x = mode == "constant" ? padByValue(b, x, axis, before, after, value)
                           : padByElements(b, x, axis, before, after, mode);
  }
  return node.result(x);
}

// ---- depth and space ----

static LogicalResult expectImage(Node &node, int64_t block) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  if (rankOf(node.input(0)) != 4 || block < 1)
    return node.refuse(
        "the input must have rank 4, and 'blocksize' must be positive");
  return success();
}

// Blocks of channels become blocks of pixels. DCR splits the channels as block,
// block, depth; CRD as depth, block, block, which is torch's PixelShuffle.
static LogicalResult depthToSpace(Node &node) {
  int64_t block = node.getInt("blocksize", 0);
  if (failed(expectImage(node, block)))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  ArrayRef<int64_t> s = shapeOf(x);
  if (block > s[1] || s[1] % (block * block) != 0)
    return node.refuse("'blocksize' squared does not divide " + Twine(s[1]) +
                       " channels");
  std::string mode = node.getString("mode", "DCR");
  if (mode != "DCR" && mode != "CRD")
    return node.refuse("attribute 'mode' is '" + mode + "'; use DCR or CRD");
  int64_t depth = s[1] / (block * block);
  bool isDCR = mode == "DCR";
  Shape split = {
      s[0], isDCR ? block : depth, block, isDCR ? depth : block, s[2], s[3]};
  Shape order = isDCR ? Shape{0, 3, 4, 1, 5, 2} : Shape{0, 1, 4, 2, 5, 3};
  Value moved = b.transpose(b.reshape(x, split), order);
  return node.result(
      b.reshape(moved, {s[0], depth, s[2] * block, s[3] * block}));
}

// The inverse of DCR.
static LogicalResult spaceToDepth(Node &node) {
  int64_t block = node.getInt("blocksize", 0);
  if (failed(expectImage(node, block)))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  ArrayRef<int64_t> s = shapeOf(x);
  if (s[2] % block != 0 || s[3] % block != 0)
    return node.refuse("'blocksize' does not divide the height or width");
  int64_t height = s[2] / block, width = s[3] / block;
  Value split = b.reshape(x, {s[0], s[1], height, block, width, block});
  Value moved = b.transpose(split, {0, 3, 5, 1, 2, 4});
  return node.result(
      b.reshape(moved, {s[0], s[1] * block * block, height, width}));
}

// ---- crops and selections ----

// Crops or pads each axis around its centre. An odd rest goes to the end.
static LogicalResult centerCropPad(Node &node) {
  if (failed(node.expectInputs(2, 2)))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  auto shape = node.integers(1, "'shape'");
  if (!shape)
    return failure();
  SmallVector<int64_t> axes;
  for (int64_t i = 0; i < rankOf(x); ++i)
    axes.push_back(i);
  if (auto given = node.getInts("axes")) {
    if (!node.axes(*given, rankOf(x)))
      return failure();
    axes = *given;
  }
  if (shape->size() != axes.size())
    return node.refuse("'shape' must have one entry per axis");
  for (auto [given, wanted] : llvm::zip(axes, *shape)) {
    int64_t axis = given < 0 ? given + rankOf(x) : given;
    int64_t size = shapeOf(x)[axis];
    Shape result(shapeOf(x));
    result[axis] = wanted;
    if (failed(node.checkShape(result)))
      return failure();
    if (wanted < size)
      x = b.slice(x, axis, (size - wanted) / 2, wanted);
    else if (wanted > size)
      x = padByValue(b, x, axis, (wanted - size) / 2,
                     wanted - size - (wanted - size) / 2, 0);
  }
  return node.result(x);
}

// The length of the result depends on the condition, which must be constant.
// Conditions beyond the dimension are ignored.
static LogicalResult compress(Node &node) {
  if (failed(node.expectInputs(2, 2)))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  DenseElementsAttr condition = constantOf(node.input(1));
  if (!condition || !condition.getElementType().isInteger(1))
    return node.refuse("'condition' must be constant bools");
  int64_t at = 0;
  if (node.attribute("axis")) {
    auto axis = node.axis(node.getInt("axis", 0), rankOf(x));
    if (!axis)
      return failure();
    at = *axis;
  } else {
    x = b.reshape(x, {tensorType(x).getNumElements()});
  }
  SmallVector<int64_t> ids;
  for (auto [i, isKept] : llvm::enumerate(condition.getValues<bool>()))
    if (isKept && int64_t(i) < shapeOf(x)[at])
      ids.push_back(i);
  if (ids.size() > size_t(kMostIntegers))
    return node.refuse("'condition' keeps more than " + Twine(kMostIntegers) +
                       " elements");
  if (ids.empty())
    return node.result(b.slice(x, at, 0, 0));
  return node.result(gatherAlong(b, x, b.integers(ids), at));
}

// Reverses the first elements of each sequence of a batch, as many as its
// length says. A position inside takes its mirror image length - 1 - t; one
// outside takes itself.
static LogicalResult reverseSequence(Node &node) {
  if (failed(node.expectInputs(2, 2)) ||
      failed(expectIndices(node, node.input(1))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0), lengths = node.input(1);
  auto batch = node.axis(node.getInt("batch_axis", 1), rankOf(x));
  auto time = node.axis(node.getInt("time_axis", 0), rankOf(x));
  if (!batch || !time)
    return failure();
  if (*batch == *time || *batch > 1 || *time > 1 ||
      shapeOf(lengths) != shapeOf(x).slice(*batch, 1))
    return node.refuse(
        "'batch_axis' and 'time_axis' must be 0 and 1, and there "
        "must be one length per sequence");
  Shape perBatch(rankOf(x), 1);
  perBatch[*batch] = shapeOf(x)[*batch];
  Value length = b.cast(lengths, b.builder.getI64Type());
  length = b.broadcast(b.reshape(length, perBatch), shapeOf(x));
  Value place = b.iota(shapeOf(x), *time);
  Value mirrored = b.binary<nn::SubOp>(
      b.binary<nn::SubOp>(length, b.like(length, 1)), place);
  Value isInside = b.compare(nn::Predicate::lt, place, length);
  return node.result(
      takeElements(b, x, b.select(isInside, mirrored, place), *time));
}

void frontend::registerRearrange(HandlerTable &table) {
  table.add("Pad", 2, pad);
  table.add("DepthToSpace", 1, depthToSpace);
  table.add("SpaceToDepth", 1, spaceToDepth);
  table.add("CenterCropPad", 18, centerCropPad);
  table.add("Compress", 9, compress);
  table.add("ReverseSequence", 10, reverseSequence);
}
