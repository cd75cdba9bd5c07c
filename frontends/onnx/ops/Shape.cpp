// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ops that move elements: reshapes, slices, joins and padding; and Shape and
// Size, which are constants here since all shapes are static. Each becomes one
// or two of nn's primitives (reshape, transpose, slice, concat, broadcast),
// which kernels read through without copying.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "frontends/onnx/Node.h"

#include <numeric>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// ---- reshapes ----

// A size of 0 copies the input's dimension, and -1 takes the elements that
// remain.
static LogicalResult reshape(Node &node) {
  if (failed(node.expectInputs(2, 2)))
    return failure();
  Value x = node.input(0);
  auto wanted = node.integers(1, "'shape'");
  if (!wanted)
    return failure();
  bool allowZero = node.getInt("allowzero", 0);
  Shape shape;
  int64_t unknown = -1, known = 1;
  for (auto [i, size] : llvm::enumerate(*wanted)) {
    if (size == 0 && !allowZero) {
      if (int64_t(i) >= rankOf(x))
        return node.refuse("dimension " + Twine(i) +
                           " of 'shape' is 0, which copies the input's, but "
                           "the input has no such dimension");
      size = shapeOf(x)[i];
    }
    if (size == -1 && unknown >= 0)
      return node.refuse("'shape' has more than one -1");
    if (size < -1)
      return node.refuse("'shape' has a negative dimension other than -1");
    if (size == -1)
      unknown = i;
    shape.push_back(size == -1 ? 1 : size);
  }
  // nullopt if it overflows.
  std::optional<int64_t> product = countElements(shape);
  // A shape that is known to be invalid, for checkShape's message.
  if (!product)
    return node.checkShape({-1});
  // The unknown dimension counts as 1 here, so this is the product of the
  // others.
  known = *product;
  int64_t elements = tensorType(x).getNumElements();
  if (unknown >= 0 && known > 0)
    shape[unknown] = elements / known;
  if (countElements(shape) != elements)
    return node.refuse("cannot reshape " + Twine(elements) + " elements to " +
                       printShape(shape));
  return node.result(node.b.reshape(x, shape));
}

// Flattens to a matrix: dimensions before and from `axis`. ONNX allows axis =
// rank, which gives one column.
static LogicalResult flatten(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  Value x = node.input(0);
  int64_t at = node.getInt("axis", 1), rank = rankOf(x);
  if (at < -rank || at > rank)
    return node.refuse("axis " + Twine(at) + " is out of range for rank " +
                       Twine(rank));
  at = at < 0 ? at + rank : at;
  auto product = [](ArrayRef<int64_t> sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t(1),
                           std::multiplies<>());
  };
  ArrayRef<int64_t> sizes = shapeOf(x);
  return node.result(node.b.reshape(
      x, {product(sizes.take_front(at)), product(sizes.drop_front(at))}));
}

// Without axes, all dimensions of size 1 are removed.
static LogicalResult squeeze(Node &node) {
  if (failed(node.expectInputs(1, 2)))
    return failure();
  Value x = node.input(0);
  std::optional<Shape> axes = Shape();
  bool isGiven = node.has(1, "axes");
  if (isGiven) {
    auto given = node.integersOrAttribute(1, "axes");
    if (!given || !(axes = node.axes(*given, rankOf(x))))
      return failure();
  }
  Shape shape;
  for (auto [i, size] : llvm::enumerate(shapeOf(x))) {
    bool removed = isGiven ? llvm::is_contained(*axes, int64_t(i)) : size == 1;
    if (removed && size != 1)
      return node.refuse("cannot squeeze dimension " + Twine(i) + " of size " +
                         Twine(size));
    if (!removed)
      shape.push_back(size);
  }
  return node.result(node.b.reshape(x, shape));
}

// The axes count in the result.
static LogicalResult unsqueeze(Node &node) {
  if (failed(node.expectInputs(1, 2)))
    return failure();
  Value x = node.input(0);
  auto given = node.integersOrAttribute(1, "axes");
  if (!given)
    return failure();
  int64_t rank = rankOf(x) + given->size();
  std::optional<Shape> axes = node.axes(*given, rank);
  if (!axes)
    return failure();
  Shape shape;
  for (int64_t i = 0, from = 0; i < rank; ++i)
    shape.push_back(llvm::is_contained(*axes, i) ? 1 : shapeOf(x)[from++]);
  return node.result(node.b.reshape(x, shape));
}

// Without `perm`, the axes are reversed.
static LogicalResult transpose(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  Value x = node.input(0);
  Shape reversed;
  for (int64_t i = rankOf(x) - 1; i >= 0; --i)
    reversed.push_back(i);
  auto given = node.getInts("perm");
  Shape permutation = given ? Shape(*given) : reversed;
  if (int64_t(permutation.size()) != rankOf(x))
    return node.refuse(
        "attribute 'perm' must have one entry per dimension of the input");
  if (!node.axes(permutation, rankOf(x)))
    return failure();
  for (int64_t &axis : permutation)
    axis = axis < 0 ? axis + rankOf(x) : axis;
  return node.result(node.b.transpose(x, permutation));
}

// Broadcasts both ways: a dimension of the shape may be 1. numpy.broadcast_to
// would only widen the input.
static LogicalResult expand(Node &node) {
  if (failed(node.expectInputs(2, 2)))
    return failure();
  Value x = node.input(0);
  auto wanted = node.integers(1, "'shape'");
  if (!wanted || failed(node.checkShape(*wanted)))
    return failure();
  std::optional<Shape> shape = broadcastShapes(shapeOf(x), *wanted);
  if (!shape)
    return node.refuse("the input does not broadcast to 'shape'");
  return node.result(node.b.broadcast(x, *shape));
}

// A tile is a broadcast of an added dimension, merged with the one it repeats.
static LogicalResult tile(Node &node) {
  if (failed(node.expectInputs(2, 2)))
    return failure();
  Value x = node.input(0);
  auto repeats = node.integers(1, "'repeats'");
  if (!repeats)
    return failure();
  if (int64_t(repeats->size()) != rankOf(x))
    return node.refuse(
        "'repeats' must have one entry per dimension of the input");
  // Each dimension becomes (repeats, size), by a broadcast between two
  // reshapes.
  Shape split, repeated, shape;
  for (auto [size, times] : llvm::zip(shapeOf(x), *repeats)) {
    if (times < 0 || !countElements({size, times}))
      return node.checkShape({-1});
    split.append({1, size});
    repeated.append({times, size});
    shape.push_back(times * size);
  }
  if (failed(node.checkShape(shape)))
    return failure();
  Value pairs = node.b.broadcast(node.b.reshape(x, split), repeated);
  return node.result(node.b.reshape(pairs, shape));
}

// ---- joins and parts ----

// Empty inputs add nothing and are dropped.
static LogicalResult concat(Node &node) {
  if (failed(node.expectInputs(std::max<int64_t>(1, node.numInputs()), 65536)))
    return failure();
  SmallVector<Value> inputs;
  auto axis = node.axis(node.getInt("axis", 0), rankOf(node.input(0)));
  if (!axis)
    return failure();
  Shape total(shapeOf(node.input(0)));
  total[*axis] = 0;
  for (int64_t i = 0; i < node.numInputs(); ++i) {
    Value x = node.input(i);
    if (rankOf(x) != int64_t(total.size()) ||
        elementOf(x) != elementOf(node.input(0)))
      return node.refuse("input " + Twine(i) +
                         " differs from the first in rank or element type");
    for (auto [d, size] : llvm::enumerate(shapeOf(x)))
      if (int64_t(d) != *axis && size != total[d])
        return node.refuse("input " + Twine(i) +
                           " differs from the first in dimension " + Twine(d));
    total[*axis] += shapeOf(x)[*axis];
    if (shapeOf(x)[*axis] > 0) // an empty part adds nothing
      inputs.push_back(x);
  }
  if (failed(node.checkShape(total)))
    return failure();
  if (inputs.empty())
    return node.result(node.input(0));
  return node.result(node.b.concat(inputs, *axis));
}

// Without sizes, the input is split into equal parts, the last of which may be
// smaller.
static LogicalResult split(Node &node) {
  if (failed(node.expectInputs(1, 2)))
    return failure();
  Value x = node.input(0);
  auto axis = node.axis(node.getInt("axis", 0), rankOf(x));
  if (!axis)
    return failure();
  int64_t size = shapeOf(x)[*axis], parts = node.numOutputs();
  SmallVector<int64_t> sizes;
  if (node.has(1, "split")) {
    auto given = node.integersOrAttribute(1, "split");
    if (!given)
      return failure();
    sizes = *given;
  } else {
    int64_t each = (size + parts - 1) / std::max<int64_t>(1, parts);
    for (int64_t i = 0; i < parts; ++i)
      sizes.push_back(std::min(each, std::max<int64_t>(0, size - i * each)));
  }
  // Each part is bounded before they are added up, so the sum cannot overflow.
  auto fits = [&](int64_t part) { return part >= 0 && part <= size; };
  if (!llvm::all_of(sizes, fits) || int64_t(sizes.size()) != parts ||
      std::accumulate(sizes.begin(), sizes.end(), int64_t(0)) != size)
    return node.refuse("the sizes in 'split' do not add up to dimension " +
                       Twine(*axis) + " of size " + Twine(size));
  int64_t begin = 0;
  for (int64_t i = 0; i < parts; begin += sizes[i++])
    node.setOutput(i, node.b.slice(x, *axis, begin, sizes[i]));
  return success();
}

// A slice along several axes is one nn.slice. An empty result becomes a slice
// of size 0 at offset 0.
static LogicalResult slice(Node &node) {
  if (failed(node.expectInputs(1, 5)))
    return failure();
  Value x = node.input(0);
  auto starts = node.integersOrAttribute(1, "starts");
  auto ends = starts ? node.integersOrAttribute(2, "ends") : std::nullopt;
  if (!starts || !ends)
    return failure();
  SmallVector<int64_t> given, steps(starts->size(), 1);
  for (size_t i = 0; i < starts->size(); ++i)
    given.push_back(i);
  if (node.has(3, "axes")) {
    auto axes = node.integersOrAttribute(3, "axes");
    if (!axes)
      return failure();
    given = *axes;
  }
  if (node.has(4)) {
    auto values = node.integers(4, "'steps'");
    if (!values)
      return failure();
    steps = *values;
  }
  if (ends->size() != starts->size() || given.size() != starts->size() ||
      steps.size() != starts->size())
    return node.refuse(
        "'starts', 'ends', 'axes' and 'steps' must have the same length");
  if (!node.axes(given, rankOf(x)))
    return failure();
  Shape offsets(rankOf(x), 0), strides(rankOf(x), 1), shape(shapeOf(x));
  for (size_t i = 0; i < given.size(); ++i) {
    int64_t axis = given[i] < 0 ? given[i] + rankOf(x) : given[i];
    int64_t size = shapeOf(x)[axis], step = steps[i];
    if (step == 0 || step == INT64_MIN)
      return node.refuse("a step in 'steps' is 0");
    // As in Python, negative positions count from the end, and both are
    // clamped.
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    // Clamped before the size is added, so no position overflows.
    auto place = [&](int64_t at) {
      at = at < 0 ? std::max<int64_t>(at, -size - 1) + size : at;
      return std::clamp(at, low, high);
    };
    int64_t begin = place((*starts)[i]), end = place((*ends)[i]);
    int64_t span = step > 0 ? end - begin : begin - end;
    int64_t stride = step > 0 ? step : -step;
    offsets[axis] = begin;
    shape[axis] = span <= 0 ? 0 : (span - 1) / stride + 1;
    // A stride has no meaning for a single element, and may exceed the
    // dimension.
    strides[axis] = shape[axis] > 1 ? step : 1;
    if (shape[axis] == 0)
      offsets[axis] = 0;
  }
  return node.result(node.b.slice(x, offsets, strides, shape));
}

// Keeps a triangle by comparing row and column numbers, which never make a mask
// of the input's size in memory. The input may be a batch of matrices.
static LogicalResult trilu(Node &node) {
  if (failed(node.expectInputs(1, 2)))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  double diagonal = 0;
  if (node.has(1)) {
    auto number = node.wholeNumber(1, "'k'");
    if (!number)
      return failure();
    diagonal = double(*number);
  }
  if (rankOf(x) < 2)
    return node.refuse("the input must have rank 2 or more");
  ArrayRef<int64_t> matrix = shapeOf(x).take_back(2);
  Value row = b.binary<nn::AddOp>(b.iota(matrix, 0), diagonal);
  auto side = node.getInt("upper", 1) ? nn::Predicate::ge : nn::Predicate::le;
  Value kept = b.broadcast(b.compare(side, b.iota(matrix, 1), row), shapeOf(x));
  return node.result(b.select(kept, x, b.like(x, 0)));
}

// ---- shapes as values ----

// `start` and `end` select dimensions as a slice in Python does.
static LogicalResult shapeOp(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  ArrayRef<int64_t> shape = shapeOf(node.input(0));
  int64_t rank = shape.size();
  auto clamp = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  int64_t start = clamp(node.getInt("start", 0)),
          end = clamp(node.getInt("end", rank));
  return node.result(
      node.b.integers(shape.slice(start, std::max<int64_t>(0, end - start))));
}

static LogicalResult size(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  int64_t elements = tensorType(node.input(0)).getNumElements();
  return node.result(node.b.reshape(node.b.integers({elements}), {}));
}

void frontend::registerShape(HandlerTable &table) {
  table.add("Reshape", 5, reshape, CodeUse::rearranges);
  table.add("Flatten", 1, flatten, CodeUse::rearranges);
  table.add("Squeeze", 1, squeeze, CodeUse::rearranges);
  table.add("Unsqueeze", 1, unsqueeze, CodeUse::rearranges);
  table.add("Transpose", 1, transpose, CodeUse::rearranges);
  table.add("Expand", 8, expand, CodeUse::rearranges);
  table.add("Tile", 6, tile);
  table.add("Concat", 4, concat);
  table.add("Split", 2, split);
  table.add("Slice", 1, slice, CodeUse::takesPart);
  table.add("Trilu", 14, trilu);
  table.add("Shape", 1, shapeOp);
  table.add("Size", 1, size);
}
