// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// TopK, ArgMax, ArgMin and Hardmax. There is no sort in nn: few of many
// elements are found one extreme after the other; else each element's rank is
// counted by comparing it with all others of its row. Both give the order of
// ONNX: among equal elements the smaller index comes first. NaN counts as the
// largest, as in PyTorch.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/ops/Gather.h"

#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;
using nn::Predicate;
using nn::ReduceKind;

// Returns, along `axis` (kept as 1), the first or last position at which
// `attained` holds. Holds where `attained` is false everywhere too: the result
// is then outside of the dimension.
static Value position(Emitter &b, Value attained, int64_t axis, bool last) {
  Value places = b.iota(shapeOf(attained), axis);
  double none = last ? -1 : double(shapeOf(attained)[axis]);
  Value found = b.select(attained, places, b.like(places, none));
  return b.reduce(last ? ReduceKind::max : ReduceKind::min, found, {axis});
}

// Returns where the extreme of all elements that are not `taken` stands;
// `taken` may be null. The extreme is NaN if any element is, and NaN equals
// nothing, so it is found by that. Elements that are taken are replaced by the
// value that never wins. For integers the least value has no negation, hence
// one more.
static Value attains(Emitter &b, Value x, Value taken, int64_t axis,
                     bool largest) {
  bool isFloat = isa<FloatType>(elementOf(x));
  double least = isFloat ? -std::numeric_limits<double>::infinity()
                         : double(std::numeric_limits<int64_t>::min());
  if (elementOf(x).isInteger(32))
    least = std::numeric_limits<int32_t>::min();
  Value left = x;
  if (taken)
    left = b.select(taken, b.like(x, largest ? least : -(least + !isFloat)), x);
  Value extreme = b.broadcast(
      b.reduce(largest ? ReduceKind::max : ReduceKind::min, left, {axis}),
      shapeOf(x));
  Value attained = b.compare(Predicate::eq, x, extreme);
  if (isFloat)
    attained = b.binary<nn::OrOp>(attained, b.compare(Predicate::ne, x, x));
  if (taken)
    attained = b.binary<nn::AndOp>(attained, b.unary<nn::NotOp>(taken));
  return attained;
}

// Removes the dimension `axis` of size 1.
static Value squeezed(Emitter &b, Value x, int64_t axis) {
  Shape shape(shapeOf(x));
  shape.erase(shape.begin() + axis);
  return b.reshape(x, shape);
}

Value frontend::takeExtreme(Emitter &b, Value x, int64_t axis, bool largest) {
  Value place = position(b, attains(b, x, Value(), axis, largest), axis,
                         /*last=*/false);
  if (axis == rankOf(x) - 1)
    return b.make<nn::TakeAlongAxisOp>(tensorType(x).clone(shapeOf(place)), x,
                                       place);
  return takeElements(b, x, place, axis);
}

static LogicalResult expectOrdered(Node &node, Value x) {
  if (elementOf(x).isInteger(1) || tensorType(x).getNumElements() == 0)
    return node.refuse("the input must not be bool or empty");
  return success();
}

// The result is i64 and has no gradient.
template <bool largest> static LogicalResult argument(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(expectOrdered(node, node.input(0))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  auto axis = node.axis(node.getInt("axis", 0), rankOf(x));
  if (!axis)
    return failure();
  Value found = position(b, attains(b, x, Value(), *axis, largest), *axis,
                         node.getInt("select_last_index", 0));
  return node.result(node.getInt("keepdims", 1) ? found
                                                : squeezed(b, found, *axis));
}

// 1 at the first maximum of each row, else 0. Before opset 13 the dimensions
// from `axis` on are one row.
template <bool asRows> static LogicalResult hardmax(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  auto axis = node.axis(node.getInt("axis", asRows ? 1 : -1), rankOf(x));
  if (!axis || failed(expectOrdered(node, x)))
    return failure();
  Value rows = x;
  if (asRows) {
    Shape shape(shapeOf(x).take_front(*axis));
    shape.push_back(1);
    for (int64_t size : shapeOf(x).drop_front(*axis))
      shape.back() *= size;
    rows = b.reshape(x, shape);
  }
  Value first = position(b, attains(b, rows, Value(), *axis, true), *axis,
                         /*last=*/false);
  Value hot = b.compare(Predicate::eq, b.broadcast(first, shapeOf(rows)),
                        b.iota(shapeOf(rows), *axis));
  return node.result(b.reshape(b.cast(hot, elementOf(x)), shapeOf(x)));
}

// Finds one extreme after the other along the last axis. count passes over the
// row: cheaper than ranks for few of many.
static Value byExtremes(Emitter &b, Value x, int64_t count, bool largest) {
  int64_t last = rankOf(x) - 1;
  Value taken, places = b.iota(shapeOf(x), last);
  SmallVector<Value> found;
  for (int64_t i = 0; i < count; ++i) {
    found.push_back(
        position(b, attains(b, x, taken, last, largest), last, false));
    Value now =
        b.compare(Predicate::eq, places, b.broadcast(found.back(), shapeOf(x)));
    taken = taken ? b.binary<nn::OrOp>(taken, now) : now;
  }
  return b.concat(found, last);
}

// Counts how many elements come before each one, which is its place. size²
// comparisons per row, all independent. Equal elements keep their order, so
// every place occurs once.
static Value byRanks(Emitter &b, Value x, int64_t count, bool largest) {
  int64_t rank = rankOf(x), size = shapeOf(x).back();
  Shape pairs(shapeOf(x)), column(shapeOf(x)), row(shapeOf(x));
  pairs.push_back(size);
  column.push_back(1);
  row.insert(row.end() - 1, 1);
  Value mine = b.broadcast(b.reshape(x, column), pairs);
  Value other = b.broadcast(b.reshape(x, row), pairs);
  Value before =
      b.compare(largest ? Predicate::gt : Predicate::lt, other, mine);
  Value equal = b.compare(Predicate::eq, other, mine);
  if (isa<FloatType>(elementOf(x))) {
    Value isMineNaN = b.compare(Predicate::ne, mine, mine);
    Value isOtherNaN = b.compare(Predicate::ne, other, other);
    equal =
        b.binary<nn::OrOp>(equal, b.binary<nn::AndOp>(isMineNaN, isOtherNaN));
    Value first = largest ? isOtherNaN : isMineNaN;
    Value second = largest ? isMineNaN : isOtherNaN;
    before = b.binary<nn::OrOp>(
        before, b.binary<nn::AndOp>(first, b.unary<nn::NotOp>(second)));
  }
  Value earlier =
      b.compare(Predicate::lt, b.iota(pairs, rank), b.iota(pairs, rank - 1));
  before = b.binary<nn::OrOp>(before, b.binary<nn::AndOp>(equal, earlier));
  Value place =
      b.reduce(ReduceKind::sum, b.cast(before, b.builder.getI64Type()), {rank});
  // The element at place p is the only one whose place is p.
  Shape chosen(shapeOf(x));
  chosen.push_back(count);
  Value at = b.compare(Predicate::eq, b.broadcast(place, chosen),
                       b.iota(chosen, rank));
  Value places = b.iota(chosen, rank - 1);
  Value found = b.reduce(ReduceKind::sum,
                         b.select(at, places, b.like(places, 0)), {rank - 1});
  return squeezed(b, found, rank - 1);
}

// The gradient of the values flows through the lookup by index.
static LogicalResult topK(Node &node) {
  if (failed(node.expectInputs(1, 2)) ||
      failed(expectOrdered(node, node.input(0))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  auto axis = node.axis(node.getInt("axis", -1), rankOf(x));
  std::optional<int64_t> count = node.getInt("k", -1);
  if (axis && node.has(1))
    count = node.wholeNumber(1, "'K'");
  if (!axis || !count)
    return failure();
  int64_t size = shapeOf(x)[*axis];
  if (*count < 0 || *count > size)
    return node.refuse("'K' is " + Twine(*count) + "; dimension " +
                       Twine(*axis) + " has " + Twine(size) + " elements");
  bool largest = node.getInt("largest", 1);
  Shape swap;
  for (int64_t i = 0; i < rankOf(x); ++i)
    swap.push_back(i);
  std::swap(swap[*axis], swap.back());
  Value rows = b.transpose(x, swap), indices;
  if (*count == 0) {
    Shape none(shapeOf(rows));
    none.back() = 0;
    indices = b.splat(tensorType(rows).clone(none, b.builder.getI64Type()), 0);
  } else {
    // An extreme costs three passes over a row, a rank `size` comparisons per
    // element.
    constexpr int64_t mostExtremes = 64;
    bool isFew = *count <= mostExtremes && 4 * *count < size;
    Shape pairs(shapeOf(rows));
    pairs.push_back(size);
    if (!isFew && failed(node.checkShape(pairs)))
      return failure();
    indices = isFew ? byExtremes(b, rows, *count, largest)
                    : byRanks(b, rows, *count, largest);
  }
  indices = b.transpose(indices, swap);
  node.setOutput(1, indices);
  if (node.isUsed(0))
    node.setOutput(0, takeElements(b, x, indices, *axis));
  return success();
}

void frontend::registerSort(HandlerTable &table) {
  table.add("TopK", 1, topK);
  table.add("ArgMax", 1, argument<true>);
  table.add("ArgMin", 1, argument<false>);
  table.add("Hardmax", 1, hardmax<true>);
  table.add("Hardmax", 13, hardmax<false>);
}
