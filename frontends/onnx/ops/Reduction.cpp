// Reductions, running sums, and positions of extremes. nn reduces by sum, max,
// min and prod; all other reductions are elementwise ops around these.
// Positions are the smallest index that attains the extreme, which is ONNX's
// default.
#include "frontends/onnx/Node.h"

#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;
using nn::ReduceKind;

static Value sum(Node &node, Value x, ArrayRef<int64_t> axes) {
  return node.b.reduce(ReduceKind::sum, x, axes);
}
static Value max(Node &node, Value x, ArrayRef<int64_t> axes) {
  return node.b.reduce(ReduceKind::max, x, axes);
}
static Value min(Node &node, Value x, ArrayRef<int64_t> axes) {
  return node.b.reduce(ReduceKind::min, x, axes);
}
static Value prod(Node &node, Value x, ArrayRef<int64_t> axes) {
  return node.b.reduce(ReduceKind::prod, x, axes);
}
static Value average(Node &node, Value x, ArrayRef<int64_t> axes) {
  return node.b.mean(x, axes);
}
static Value l1(Node &node, Value x, ArrayRef<int64_t> axes) {
  return sum(node, node.b.unary<nn::AbsOp>(x), axes);
}
static Value sumSquare(Node &node, Value x, ArrayRef<int64_t> axes) {
  return sum(node, node.b.binary<nn::MulOp>(x, x), axes);
}
// The slope of the root is ∞ at 0. That of the norm of zeros is taken to be 0,
// as in PyTorch.
static Value l2(Node &node, Value x, ArrayRef<int64_t> axes) {
  Emitter &b = node.b;
  Value square = sumSquare(node, x, axes);
  Value isZero = b.compare(nn::Predicate::eq, square, b.like(square, 0));
  Value root = b.unary<nn::SqrtOp>(b.select(isZero, b.like(square, 1), square));
  return b.select(isZero, b.like(square, 0), root);
}
static Value logSum(Node &node, Value x, ArrayRef<int64_t> axes) {
  return node.b.unary<nn::LogOp>(sum(node, x, axes));
}
// Subtracts the maximum first, so that exp does not overflow; an infinite one
// would give ∞ - ∞.
static Value logSumExp(Node &node, Value x, ArrayRef<int64_t> axes) {
  Emitter &b = node.b;
  Value largest = max(node, x, axes);
  Value isInfinite =
      b.compare(nn::Predicate::eq, b.unary<nn::AbsOp>(largest),
                b.like(largest, std::numeric_limits<double>::infinity()));
  largest = b.select(isInfinite, b.like(largest, 0), largest);
  Value shifted = b.binary<nn::SubOp>(x, b.broadcast(largest, shapeOf(x)));
  Value total = sum(node, b.unary<nn::ExpOp>(shifted), axes);
  return b.binary<nn::AddOp>(b.unary<nn::LogOp>(total), largest);
}

// Makes a handler from a function that reduces along axes and keeps them.
template <Value (*build)(Node &, Value, ArrayRef<int64_t>), bool onlyFloat>
static LogicalResult reduction(Node &node) {
  if (failed(node.expectInputs(1, 2)))
    return failure();
  Value x = node.input(0);
  if (onlyFloat && failed(node.expectFloat(x)))
    return failure();
  if (elementOf(x).isInteger(1))
    return node.refuse("bool inputs are not supported");
  SmallVector<int64_t> given;
  if (node.has(1)) {
    auto values = node.integers(1, "'axes'");
    if (!values)
      return failure();
    given = *values;
  }
  // Without axes a reduction covers all of them, unless the attribute says that
  // it covers none.
  if (given.empty() && node.getInt("noop_with_empty_axes", 0))
    return node.result(x);
  if (given.empty())
    for (int64_t i = 0; i < rankOf(x); ++i)
      given.push_back(i);
  std::optional<Shape> axes = node.axes(given, rankOf(x));
  if (!axes)
    return failure();
  if (tensorType(x).getNumElements() == 0)
    return node.refuse("the input must not be empty");
  Value kept = build(node, x, *axes);
  if (node.getInt("keepdims", 1))
    return node.result(kept);
  Shape shape;
  for (auto [i, size] : llvm::enumerate(shapeOf(kept)))
    if (!llvm::is_contained(*axes, int64_t(i)))
      shape.push_back(size);
  return node.result(node.b.reshape(kept, shape));
}

// Running sums by doubling: after step k each position holds the sum of 2^k
// positions (Hillis and Steele, Data Parallel Algorithms, 1986).
static LogicalResult cumSum(Node &node) {
  if (failed(node.expectInputs(2, 2)))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  auto place = node.wholeNumber(1, "'axis'");
  auto axis = place ? node.axis(*place, rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  if (elementOf(x).isInteger(1))
    return node.refuse("bool inputs are not supported");
  int64_t size = shapeOf(x)[*axis];
  bool reverse = node.getInt("reverse", 0);
  // Moves elements by `by` along the axis, or back if `reverse`, and fills with
  // zeros.
  auto shift = [&](Value value, int64_t by) -> Value {
    if (by >= size)
      return b.like(value, 0);
    Shape offsets(rankOf(x), 0), strides(rankOf(x), 1);
    Value part = b.slice(value, *axis, reverse ? by : 0, size - by);
    offsets[*axis] = reverse ? 0 : by;
    return b.make<nn::PadOp>(value.getType(), part, offsets, strides);
  };
  for (int64_t by = 1; by < size; by *= 2)
    x = b.binary<nn::AddOp>(x, shift(x, by));
  if (node.getInt("exclusive", 0))
    x = shift(x, 1);
  return node.result(x);
}

// ArgMax and ArgMin: the smallest position whose element equals the extreme.
// The extreme is NaN if any element is; NaN equals nothing, so its position is
// found by that, as in PyTorch.
template <ReduceKind kind> static LogicalResult argument(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  auto axis = node.axis(node.getInt("axis", 0), rankOf(x));
  if (!axis)
    return failure();
  if (node.getInt("select_last_index", 0))
    return node.refuse("attribute 'select_last_index' must be 0");
  if (elementOf(x).isInteger(1) || tensorType(x).getNumElements() == 0)
    return node.refuse("the input must not be bool or empty");
  Value extreme = b.broadcast(b.reduce(kind, x, {*axis}), shapeOf(x));
  Value places = b.iota(shapeOf(x), *axis);
  Value attained = b.select(b.compare(nn::Predicate::eq, x, extreme), places,
                            b.like(places, shapeOf(x)[*axis]));
  if (isa<FloatType>(elementOf(x)))
    attained = b.select(b.compare(nn::Predicate::ne, x, x), places, attained);
  Value first = b.reduce(ReduceKind::min, attained, {*axis});
  if (node.getInt("keepdims", 1))
    return node.result(first);
  Shape shape(shapeOf(first));
  shape.erase(shape.begin() + *axis);
  return node.result(b.reshape(first, shape));
}

void frontend::registerReduction(HandlerTable &table) {
  table.add("ReduceSum", 13, reduction<sum, false>);
  table.add("ReduceMax", 18, reduction<max, false>);
  table.add("ReduceMin", 18, reduction<min, false>);
  table.add("ReduceProd", 18, reduction<prod, false>);
  table.add("ReduceMean", 18, reduction<average, true>);
  table.add("ReduceL1", 18, reduction<l1, true>);
  table.add("ReduceL2", 18, reduction<l2, true>);
  table.add("ReduceSumSquare", 18, reduction<sumSquare, false>);
  table.add("ReduceLogSum", 18, reduction<logSum, true>);
  table.add("ReduceLogSumExp", 18, reduction<logSumExp, true>);
  table.add("CumSum", 14, cumSum);
  table.add("ArgMax", 13, argument<ReduceKind::max>);
  table.add("ArgMin", 13, argument<ReduceKind::min>);
}
