// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions, running sums and running products. nn reduces by sum, max, min
// and prod; all other reductions are elementwise ops around these. Over no
// elements a reduction gives its neutral element, as ONNX says.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/TorchExport.h"
#include "frontends/onnx/ops/Gather.h"

#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;
using nn::ReduceKind;

// Each function reduces along axes and keeps them with extent 1.
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
// Not stable for large values; logSumExp is.
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

// The result over no elements.
enum class OfNone { zero, one, least, most, notANumber };

static double valueOf(OfNone none) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  switch (none) {
  case OfNone::zero:
    return 0;
  case OfNone::one:
    return 1;
  case OfNone::least:
    return -infinity;
  case OfNone::most:
    return infinity;
  case OfNone::notANumber:
    return std::numeric_limits<double>::quiet_NaN();
  }
  llvm_unreachable("all cases return");
}

// Makes a handler from a function that reduces along axes and keeps them, and
// from the result over no elements.
// 'axes' is an attribute before opset 13 (ReduceSum) or 18 (the others) and an
// input since.
template <Value (*build)(Node &, Value, ArrayRef<int64_t>), bool onlyFloat,
          OfNone none>
static LogicalResult reduction(Node &node) {
  if (failed(node.expectInputs(1, 2)))
    return failure();
  Value x = node.input(0);
  if (onlyFloat && failed(node.expectFloat(x)))
    return failure();
  constexpr bool isExtreme = none == OfNone::least || none == OfNone::most;
  // Bools have extremes: those of 0 and 1.
  bool isBool = elementOf(x).isInteger(1);
  if (isBool && !isExtreme)
    return node.refuse("bool inputs are not supported");
  if (isBool)
    x = node.b.cast(x, node.b.builder.getI32Type());
  SmallVector<int64_t> given;
  if (node.has(1, "axes")) {
    auto values = node.integersOrAttribute(1, "axes");
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
  Shape reduced(shapeOf(x)), shape;
  for (auto [i, size] : llvm::enumerate(reduced)) {
    bool isReduced = llvm::is_contained(*axes, int64_t(i));
    size = isReduced ? 1 : size;
    if (!isReduced || node.getInt("keepdims", 1))
      shape.push_back(size);
  }
  if (tensorType(x).getNumElements() > 0) {
    // torch's metadata says whether extremes that are equal share the gradient.
    bool picks = isExtreme && axes->size() == 1 &&
                 isa<FloatType>(elementOf(x)) &&
                 picksExtreme(tracedCall(node.proto));
    Value kept =
        picks ? takeExtreme(node.b, x, axes->front(), none == OfNone::least)
              : build(node, x, *axes);
    kept = node.b.reshape(kept, shape);
    return node.result(isBool ? node.b.cast(kept, node.b.builder.getI1Type())
                              : kept);
  }
  if (!isa<FloatType>(elementOf(x)) && none != OfNone::zero &&
      none != OfNone::one)
    return node.refuse("an extreme over no elements");
  return node.result(node.b.splat(tensorType(x).clone(shape), valueOf(none)));
}

// Running sums or products by doubling: after step k each position combines 2^k
// positions (Hillis and Steele, Data Parallel Algorithms, 1986).
// log₂(size) steps of elementwise ops instead of a sequential kernel. The sums
// associate otherwise than a loop's, so floats may differ in the last digit.
template <typename OpT, bool isProduct>
static LogicalResult running(Node &node) {
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
  // the value that changes nothing.
  auto shift = [&](Value value, int64_t by) -> Value {
    if (by >= size)
      return b.like(value, isProduct);
    Value part = b.slice(value, *axis, reverse ? by : 0, size - by);
    if (isProduct) {
      Shape shape(shapeOf(x));
      shape[*axis] = by;
      Value ones = b.splat(tensorType(x).clone(shape), 1);
      return reverse ? b.concat({part, ones}, *axis)
                     : b.concat({ones, part}, *axis);
    }
    Shape offsets(rankOf(x), 0), strides(rankOf(x), 1);
    offsets[*axis] = reverse ? 0 : by;
    return b.make<nn::PadOp>(value.getType(), part, offsets, strides);
  };
  // It may be that over the samples of a microbatch of one (Emitter::reduce).
  if (size == 1)
    x = b.reduce(isProduct ? ReduceKind::prod : ReduceKind::sum, x, {*axis});
  for (int64_t by = 1; by < size; by *= 2)
    x = b.binary<OpT>(x, shift(x, by));
  // The exclusive sum is the inclusive one moved by one.
  if (node.getInt("exclusive", 0))
    x = shift(x, 1);
  return node.result(x);
}

void frontend::registerReduction(HandlerTable &table) {
  table.add("ReduceSum", 1, reduction<sum, false, OfNone::zero>);
  table.add("ReduceMax", 1, reduction<max, false, OfNone::least>);
  table.add("ReduceMin", 1, reduction<min, false, OfNone::most>);
  table.add("ReduceProd", 1, reduction<prod, false, OfNone::one>);
  table.add("ReduceMean", 1, reduction<average, true, OfNone::notANumber>);
  table.add("ReduceL1", 1, reduction<l1, true, OfNone::zero>);
  table.add("ReduceL2", 1, reduction<l2, true, OfNone::zero>);
  table.add("ReduceSumSquare", 1, reduction<sumSquare, false, OfNone::zero>);
  table.add("ReduceLogSum", 1, reduction<logSum, true, OfNone::least>);
  table.add("ReduceLogSumExp", 1, reduction<logSumExp, true, OfNone::least>);
  table.add("CumSum", 11, running<nn::AddOp, false>);
  table.add("CumProd", 26, running<nn::MulOp, true>);
}
