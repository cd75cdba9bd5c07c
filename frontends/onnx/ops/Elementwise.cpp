// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Arithmetic, comparisons and logic. ONNX broadcasts implicitly; here
// broadcasts become explicit ops. Functions that nn lacks are composed of its
// ops, and the adjoints follow from these.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "frontends/onnx/TorchExport.h"
#include "frontends/onnx/ops/TracedAttention.h"
#include "frontends/onnx/ops/Unary.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;
using nn::Predicate;

// ---- several operands ----

// Reads between `least` and `most` inputs of one element type, broadcast to
// their common shape.
static LogicalResult operands(Node &node, SmallVector<Value> &values,
                              int64_t least, int64_t most) {
  if (failed(node.expectInputs(std::max(least, node.numInputs()), most)))
    return failure();
  for (int64_t i = 0; i < node.numInputs(); ++i)
    values.push_back(node.input(i));
  for (Value value : values)
    if (elementOf(value) != elementOf(values[0]))
      return node.refuse("inputs must have the same element type");
  return node.broadcast(values);
}

// An op of two operands of any type.
template <typename OpT> static LogicalResult binary(Node &node) {
  SmallVector<Value> x;
  if (failed(operands(node, x, 2, 2)))
    return failure();
  return node.result(node.b.binary<OpT>(x[0], x[1]));
}

// An op of two booleans.
template <typename OpT> static LogicalResult logical(Node &node) {
  SmallVector<Value> x;
  if (failed(operands(node, x, 2, 2)))
    return failure();
  if (!elementOf(x[0]).isInteger(1))
    return node.refuse("inputs must be bool");
  return node.result(node.b.binary<OpT>(x[0], x[1]));
}

// An associative op of any number of operands, applied from left to right.
template <typename OpT> static LogicalResult variadic(Node &node) {
  SmallVector<Value> x;
  // A bound on inputs keeps a hostile node from making a chain of ops without
  // end.
  if (failed(operands(node, x, 1, 1024)))
    return failure();
  Value result = x[0];
  for (Value next : ArrayRef(x).drop_front())
    result = node.b.binary<OpT>(result, next);
  return node.result(result);
}

// The mean of several tensors, not of the elements of one.
static LogicalResult mean(Node &node) {
  SmallVector<Value> x;
  if (failed(operands(node, x, 1, 1024)) || failed(node.expectFloat(x[0])))
    return failure();
  Value result = x[0];
  for (Value next : ArrayRef(x).drop_front())
    result = node.b.binary<nn::AddOp>(result, next);
  return node.result(node.b.binary<nn::DivOp>(result, double(x.size())));
}

// The result is bool and has no gradient.
template <Predicate predicate> static LogicalResult compare(Node &node) {
  SmallVector<Value> x;
  if (failed(operands(node, x, 2, 2)))
    return failure();
  return node.result(node.b.compare(predicate, x[0], x[1]));
}

// Constant integer divisors are checked here, since a kernel cannot report a
// division by zero.
static LogicalResult expectDivisor(Node &node) {
  std::optional<SmallVector<int64_t>> divisors = integersOf(node.input(1));
  if (divisors && llvm::is_contained(*divisors, 0))
    return node.refuse("integer division by zero");
  return success();
}

// Integer division truncates, as in C; ONNX leaves it open.
static LogicalResult div(Node &node) {
  SmallVector<Value> x;
  if (failed(operands(node, x, 2, 2)) || failed(expectDivisor(node)))
    return failure();
  return node.result(node.b.binary<nn::DivOp>(x[0], x[1]));
}

// nn.mod has the sign of the divisor (Python). With `fmod`, the sign is that of
// the dividend (C), which for integers follows from truncating division.
static LogicalResult mod(Node &node) {
  SmallVector<Value> x;
  if (failed(operands(node, x, 2, 2)) || failed(expectDivisor(node)))
    return failure();
  if (!node.getInt("fmod", 0))
    return node.result(node.b.binary<nn::ModOp>(x[0], x[1]));
  Emitter &b = node.b;
  if (isa<FloatType>(elementOf(x[0]))) {
    // Absolute values have one sign; the dividend's is restored.
    Value size =
        b.binary<nn::ModOp>(b.unary<nn::AbsOp>(x[0]), b.unary<nn::AbsOp>(x[1]));
    Value negative = b.compare(Predicate::lt, x[0], b.like(x[0], 0));
    return node.result(b.select(negative, b.unary<nn::NegOp>(size), size));
  }
  Value whole = b.binary<nn::MulOp>(b.binary<nn::DivOp>(x[0], x[1]), x[1]);
  return node.result(b.binary<nn::SubOp>(x[0], whole));
}

// The power of integers, by squaring. Six bits of the exponent suffice: the
// 64th power of anything but 0 and ±1 is beyond every integer type. A negative
// exponent gives 0 but for ±1.
static Value wholePower(Emitter &b, Value base, Value exponent) {
  Value zero = b.like(base, 0), result = b.like(base, 1), square = base;
  Value rest = exponent;
  for (int bit = 0; bit < 6; ++bit) {
    Value parity = b.binary<nn::ModOp>(rest, 2.0);
    Value isSet = b.compare(Predicate::eq, parity, b.like(rest, 1));
    result = b.select(isSet, b.binary<nn::MulOp>(result, square), result);
    square = b.binary<nn::MulOp>(square, square);
    rest = b.binary<nn::DivOp>(b.binary<nn::SubOp>(rest, parity), 2.0);
  }
  Value isUnit =
      b.compare(Predicate::eq, b.unary<nn::AbsOp>(base), b.like(base, 1));
  Value isNull = b.binary<nn::AndOp>(b.compare(Predicate::eq, base, zero),
                                     b.compare(Predicate::gt, exponent, zero));
  Value isFraction = b.binary<nn::AndOp>(
      b.compare(Predicate::lt, exponent, zero), b.unary<nn::NotOp>(isUnit));
  return b.select(b.binary<nn::OrOp>(isNull, isFraction), zero, result);
}

static LogicalResult pow(Node &node) {
  if (failed(node.expectInputs(2, 2)))
    return failure();
  Emitter &b = node.b;
  Value base = node.input(0), exponent = node.input(1);
  if (std::optional<double> splat = matchSplat(exponent);
      splat && node.broadcastsTo(exponent, shapeOf(base))) {
    // Small powers become products, as in PyTorch.
    if (*splat == 1)
      return node.result(base);
    if (*splat == 0.5 && isa<FloatType>(elementOf(base)))
      return node.result(b.unary<nn::SqrtOp>(base));
    if (*splat == -0.5 && isa<FloatType>(elementOf(base)))
      return node.result(b.unary<nn::RsqrtOp>(base));
    if (*splat == 2 || *splat == 3) {
      Value square = b.binary<nn::MulOp>(base, base);
      return node.result(*splat == 2 ? square
                                     : b.binary<nn::MulOp>(square, base));
    }
  }
  // ONNX allows an exponent of another type; the result has the base's.
  bool isWhole =
      !isa<FloatType>(elementOf(base)) && !isa<FloatType>(elementOf(exponent));
  // An integer base with a float exponent computes in f32; the power is rounded
  // back.
  Type computed = isWhole || isa<FloatType>(elementOf(base))
                      ? elementOf(base)
                      : b.builder.getF32Type();
  SmallVector<Value> x = {b.cast(base, computed), b.cast(exponent, computed)};
  if (failed(node.broadcast(x)))
    return failure();
  if (isWhole)
    return node.result(wholePower(b, x[0], x[1]));
  Value power = b.binary<nn::PowOp>(x[0], x[1]);
  if (computed != elementOf(base))
    power = b.unary<nn::RoundOp>(power);
  return node.result(b.cast(power, elementOf(base)));
}

// The gradient flows through the chosen branch alone, even if the other is NaN.
static LogicalResult where(Node &node) {
  if (failed(node.expectInputs(3, 3)))
    return failure();
  SmallVector<Value> x = {node.input(0), node.input(1), node.input(2)};
  if (!elementOf(x[0]).isInteger(1) || elementOf(x[1]) != elementOf(x[2]))
    return node.refuse("the condition must be bool, and both branches must "
                       "have the same element type");
  if (failed(node.broadcast(x)))
    return failure();
  if (Value known = whereOfAttention(node, x))
    return node.result(known);
  return node.result(node.b.select(x[0], x[1], x[2]));
}

// Raises elements to a bound of x's shape, or lowers them to it. No gradient
// passes at a bound that is a number, as in torch 2.14; where two tensors are
// equal a maximum shares it.
template <bool isLower>
static Value bounded(Node &node, Value x, Value bound, bool isNumber) {
  if (!isNumber)
    return node.b
        .binary<std::conditional_t<isLower, nn::MaximumOp, nn::MinimumOp>>(
            x, bound);
  Value beyond =
      node.b.compare(isLower ? Predicate::le : Predicate::ge, x, bound);
  return node.b.select(beyond, bound, x);
}

// torch exports a clamp as a maximum and a minimum with scalars.
template <bool isLower> static LogicalResult extreme(Node &node) {
  if (node.numInputs() != 2 || !isClamp(tracedCall(node.proto)))
    return variadic<std::conditional_t<isLower, nn::MaximumOp, nn::MinimumOp>>(
        node);
  SmallVector<Value> x;
  if (failed(operands(node, x, 2, 2)))
    return failure();
  return node.result(
      bounded<isLower>(node, x[0], x[1], bool(constantOf(node.input(1)))));
}

// Both bounds are optional inputs. The lower one first: if min > max the result
// is max, as ONNX says.
static LogicalResult clip(Node &node) {
  if (failed(node.expectInputs(1, 3)))
    return failure();
  Value x = node.input(0);
  for (int64_t i : {1, 2}) {
    Value bound = node.input(i);
    if (!bound)
      continue;
    if (!node.broadcastsTo(bound, shapeOf(x)) ||
        elementOf(bound) != elementOf(x))
      return node.refuse("'min' and 'max' must be scalars of the input's type");
    bool isNumber = bool(constantOf(bound));
    bound = node.b.broadcast(bound, shapeOf(x));
    x = i == 1 ? bounded<true>(node, x, bound, isNumber)
               : bounded<false>(node, x, bound, isNumber);
  }
  return node.result(x);
}

// The form of opset 10 and before. The bounds are attributes there.
static LogicalResult clipToAttributes(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  Value x = node.input(0);
  if (node.attribute("min"))
    x = bounded<true>(node, x, node.b.like(x, node.getFloat("min", 0)), true);
  if (node.attribute("max"))
    x = bounded<false>(node, x, node.b.like(x, node.getFloat("max", 0)), true);
  return node.result(x);
}

// ---- one operand ----

// A unary op that also accepts integers.
template <typename OpT> static LogicalResult anyType(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  Value x = node.input(0);
  if (elementOf(x).isInteger(1))
    return node.refuse("bool inputs are not supported");
  return node.result(node.b.unary<OpT>(x));
}

static LogicalResult logicalNot(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  if (!elementOf(node.input(0)).isInteger(1))
    return node.refuse("the input must be bool");
  return node.result(node.b.unary<nn::NotOp>(node.input(0)));
}

// The input is a tensor, a sequence or an optional.
static LogicalResult identity(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  std::optional<Item> item = node.item(0);
  if (!item)
    return failure();
  if (item->value)
    return node.result(item->value);
  node.setItem(0, *std::move(item));
  return success();
}

// 1 / sqrt(x) is how exporters write rsqrt. The pair becomes one op with one
// adjoint; 1 / x alone stays a division.
static Value reciprocal(Node &node, Value x) {
  if (auto root = x.getDefiningOp<nn::SqrtOp>())
    return node.b.unary<nn::RsqrtOp>(root.getInput());
  return node.b.binary<nn::DivOp>(node.b.like(x, 1), x);
}

// Only NaN differs from itself.
static Value isNaN(Node &node, Value x) {
  return node.b.compare(Predicate::ne, x, x);
}

// One sign, both, or neither. Comparing with infinity needs no bits.
static Value isInf(Node &node, Value x) {
  Emitter &b = node.b;
  bool above = node.getInt("detect_positive", 1);
  bool below = node.getInt("detect_negative", 1);
  if (above && below)
    x = b.unary<nn::AbsOp>(x);
  if (!above && !below)
    return b.splat(tensorType(x).clone(b.builder.getI1Type()), 0);
  return b.compare(Predicate::eq, x, b.like(x, above ? INFINITY : -INFINITY));
}

// ⌈x⌉ = -⌊-x⌋.
static Value ceil(Node &node, Value x) {
  return node.b.unary<nn::NegOp>(
      node.b.unary<nn::FloorOp>(node.b.unary<nn::NegOp>(x)));
}

// 0 for NaN, for which both comparisons are false. Integers have signs too.
static LogicalResult sign(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  Value negative = b.compare(Predicate::lt, x, b.like(x, 0));
  Value below = b.select(negative, b.like(x, -1), b.like(x, 0));
  Value positive = b.compare(Predicate::gt, x, b.like(x, 0));
  return node.result(b.select(positive, b.like(x, 1), below));
}

// The numbers are the versions of the op since which the handler is right. Many
// later versions only add element types.
void frontend::registerElementwise(HandlerTable &table) {
  table.add("Add", 7, binary<nn::AddOp>);
  table.add("Sub", 7, binary<nn::SubOp>);
  table.add("Mul", 7, binary<nn::MulOp>);
  table.add("Div", 7, div, CodeUse::unpacks);
  table.add("Mod", 10, mod, CodeUse::unpacks);
  table.add("Pow", 7, pow);
  table.add("Max", 6, extreme<true>);
  table.add("Min", 6, extreme<false>);
  table.add("Sum", 6, variadic<nn::AddOp>);
  table.add("Mean", 6, mean);
  table.add("And", 7, logical<nn::AndOp>);
  table.add("Or", 7, logical<nn::OrOp>);
  table.add("Xor", 7, logical<nn::XorOp>);
  table.add("Not", 1, logicalNot);
  table.add("Equal", 7, compare<Predicate::eq>, CodeUse::compares);
  table.add("Less", 7, compare<Predicate::lt>, CodeUse::compares);
  table.add("LessOrEqual", 12, compare<Predicate::le>, CodeUse::compares);
  table.add("Greater", 7, compare<Predicate::gt>, CodeUse::compares);
  table.add("GreaterOrEqual", 12, compare<Predicate::ge>, CodeUse::compares);
  table.add("Where", 9, where);
  table.add("Clip", 6, clipToAttributes);
  table.add("Clip", 11, clip);
  table.add("Identity", 1, identity, CodeUse::rearranges);
  table.add("Neg", 6, anyType<nn::NegOp>);
  table.add("Abs", 6, anyType<nn::AbsOp>);
  table.add("Exp", 6, activation<unary<nn::ExpOp>>);
  table.add("Log", 6, activation<unary<nn::LogOp>>);
  table.add("Sqrt", 6, activation<unary<nn::SqrtOp>>);
  table.add("Floor", 6, activation<unary<nn::FloorOp>>);
  table.add("Round", 11, activation<unary<nn::RoundOp>>);
  table.add("Ceil", 6, activation<ceil>);
  table.add("Sign", 9, sign);
  table.add("Reciprocal", 6, activation<reciprocal>);
  table.add("IsNaN", 9, activation<isNaN>);
  table.add("IsInf", 10, activation<isInf>);
}
