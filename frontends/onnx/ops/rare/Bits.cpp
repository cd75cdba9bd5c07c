// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// BitShift, BitwiseAnd, Or, Xor and Not, and BitCast, in nn's arithmetic. All
// but BitCast of floats compute in i64, which wraps: a shift is a product with
// or a division by a power of two, a conjunction adds up the bits that both
// operands have, and the other two follow from it.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "frontends/onnx/ops/IntegerBounds.h"
#include "frontends/onnx/ops/Rounding.h"

#include "onnx-ml.pb.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;
using nn::Predicate;
using onnx::TensorProto;

static constexpr double kSmallest = -9223372036854775808.0; // -2^63

// Reads the operands, of one integer type, as i64 of one shape. Widening to i64
// keeps the value of every type but uint64, whose upper half becomes negative;
// the ops below hold modulo 2^64.
static LogicalResult readIntegers(Node &node, SmallVector<Value> &values,
                                  int64_t count) {
  if (failed(node.expectInputs(count, count)))
    return failure();
  int64_t type = node.elementType(0);
  for (int64_t i = 0; i < count; ++i) {
    if (node.elementType(i) != type ||
        !(isSignedInteger(type) || isUnsignedInteger(type)))
      return node.refuse("inputs must be integers of one type");
    values.push_back(node.b.cast(node.input(i), node.b.builder.getI64Type()));
  }
  return node.broadcast(values);
}

// Sets the result to the value modulo 2^bits of the type of the first input.
static LogicalResult setInteger(Node &node, Value value) {
  int64_t type = node.elementType(0);
  Emitter &b = node.b;
  IntegerBounds bounds = boundsOf(value);
  IntegerRange range = rangeOf(type);
  bool fits = bitsOf(type) < 64 && double(bounds.low) >= range.least &&
              double(bounds.high) <= range.most;
  return node.result(b.cast(fits ? value : wrapped(b, value, type),
                            importedType(type, b.builder.getContext())),
                     type);
}

// Returns the value of all elements, if it is known and from 0 to 2^62 - 1.
static std::optional<int64_t> sizeOf(Value value) {
  IntegerBounds bounds = boundsOf(value);
  if (bounds.low != bounds.high || bounds.low < 0 || bounds.low >> 62)
    return std::nullopt;
  return bounds.low;
}

// ---- bitwise logic ----

// nn.mod has the sign of the divisor, so this is 0 or 1 for negative x too.
static Value lowestBit(Emitter &b, Value x) {
  return b.binary<nn::ModOp>(x, 2.0);
}

// Takes bits off both operands, the lowest first. The rest is the sign: 0 or
// -1. A mask of the lowest bits leaves a remainder.
static Value conjunction(Emitter &b, Value x, Value y, int64_t onnxType) {
  for (auto [value, mask] : {std::pair(x, y), std::pair(y, x)})
    if (auto size = sizeOf(mask); size && llvm::isPowerOf2_64(*size + 1))
      return b.binary<nn::ModOp>(value, double(*size + 1));
  int bits = static_cast<int>(bitsOf(onnxType));
  bool hasSign = isSignedInteger(onnxType) || bits == 64;
  Value sum = b.like(x, 0);
  // The last bit of a signed type is its sign, whose weight is negative.
  for (int k = 0; k < bits - hasSign; ++k) {
    Value one = lowestBit(b, x), other = lowestBit(b, y);
    Value both = b.binary<nn::MulOp>(one, other);
    sum =
        b.binary<nn::AddOp>(sum, b.binary<nn::MulOp>(both, std::ldexp(1.0, k)));
    x = b.binary<nn::DivOp>(b.binary<nn::SubOp>(x, one), 2.0);
    y = b.binary<nn::DivOp>(b.binary<nn::SubOp>(y, other), 2.0);
  }
  if (!hasSign)
    return sum;
  Value sign = b.binary<nn::MulOp>(b.binary<nn::MulOp>(x, y),
                                   -std::ldexp(1.0, bits - 1));
  return b.binary<nn::AddOp>(sum, sign);
}

// x + y counts the common bits twice: once in a disjunction, never in an
// exclusive one.
enum class Logic { conjunction, disjunction, exclusive };

template <Logic logic> static LogicalResult bitwise(Node &node) {
  // Or and xor take no loop of their own: x | y = x + y - (x & y), x ^ y = x +
  // y - 2 (x & y).
  SmallVector<Value> x;
  if (failed(readIntegers(node, x, 2)))
    return failure();
  Emitter &b = node.b;
  Value common = conjunction(b, x[0], x[1], node.elementType(0));
  if (logic == Logic::conjunction)
    return setInteger(node, common);
  Value sum = b.binary<nn::AddOp>(x[0], x[1]);
  if (logic == Logic::exclusive)
    common = b.binary<nn::MulOp>(common, 2.0);
  return setInteger(node, b.binary<nn::SubOp>(sum, common));
}

// In two's complement ~x is -1 - x.
static LogicalResult bitwiseNot(Node &node) {
  SmallVector<Value> x;
  if (failed(readIntegers(node, x, 1)))
    return failure();
  return setInteger(node,
                    node.b.binary<nn::SubOp>(node.b.like(x[0], -1), x[0]));
}

// ---- shifts ----

// 2^n for whole numbers n from 0 to 63; 2^63 wraps to the smallest i64. Square
// and multiply over the six bits of n: nn has no shift.
static Value powerOfTwoAt(Emitter &b, Value n) {
  Value power = b.like(n, 1);
  for (int bit = 0; bit < 6; ++bit) {
    Value isSet = b.compare(Predicate::eq, lowestBit(b, n), b.like(n, 1));
    Value raised = b.binary<nn::MulOp>(power, std::ldexp(1.0, 1 << bit));
    power = b.select(isSet, raised, power);
    n = b.binary<nn::DivOp>(n, 2.0);
  }
  return power;
}

// x / 2^n of an unsigned x. The first bit is shifted out so that x, of which
// i64 makes a negative number if its highest bit is set, is positive after it.
static Value shiftedRight(Emitter &b, Value x, Value n) {
  Value half =
      b.binary<nn::DivOp>(b.binary<nn::SubOp>(x, lowestBit(b, x)), 2.0);
  Value isHigh = b.compare(Predicate::lt, x, b.like(x, 0));
  half =
      b.select(isHigh, b.binary<nn::SubOp>(half, b.like(x, kSmallest)), half);
  Value isZero = b.compare(Predicate::eq, n, b.like(n, 0));
  Value rest = b.select(isZero, n, b.binary<nn::SubOp>(n, 1.0));
  Value quotient = b.binary<nn::DivOp>(half, powerOfTwoAt(b, rest));
  return b.select(isZero, x, quotient);
}

static LogicalResult bitShift(Node &node) {
  SmallVector<Value> x;
  if (failed(readIntegers(node, x, 2)))
    return failure();
  Emitter &b = node.b;
  std::string direction = node.getString("direction", "");
  // ONNX allows unsigned types only, so a right shift never copies a sign.
  if (!isUnsignedInteger(node.elementType(0)))
    return node.refuse("inputs must be unsigned");
  if (direction != "LEFT" && direction != "RIGHT")
    return node.refuse("attribute 'direction' is '" + direction +
                       "'; use LEFT or RIGHT");
  if (auto places = sizeOf(x[1]);
      places && *places < 63 && direction == "RIGHT" && boundsOf(x[0]).low >= 0)
    return setInteger(node,
                      b.binary<nn::DivOp>(x[0], std::ldexp(1.0, *places)));
  // A shift by 64 or more, which an uint64 may hold as a negative i64, leaves
  // nothing.
  Value isInside =
      b.binary<nn::AndOp>(b.compare(Predicate::ge, x[1], b.like(x[1], 0)),
                          b.compare(Predicate::lt, x[1], b.like(x[1], 64)));
  Value count = b.select(isInside, x[1], b.like(x[1], 0));
  Value shifted = direction == "LEFT"
                      ? b.binary<nn::MulOp>(x[0], powerOfTwoAt(b, count))
                      : shiftedRight(b, x[0], count);
  return setInteger(node, b.select(isInside, shifted, b.like(shifted, 0)));
}

// ---- BitCast ----

// The bits of an f32 as an i64 from 0 to 2^32 - 1. The exponent's field counts
// from the least normal exponent, -126; a value below has the field 0, and the
// same unit.
static Value bitsOfFloat(Emitter &b, Value x) {
  Type i64 = b.builder.getI64Type();
  constexpr int least = -126, most = 127;
  Value magnitude = b.unary<nn::AbsOp>(x);
  Value exponent, power = powerOfTwo(b, magnitude, least, most, &exponent);
  // From 0 to 2^24; infinity is twice the largest power.
  Value ratio =
      b.binary<nn::MinimumOp>(b.binary<nn::DivOp>(magnitude, power), 2.0);
  Value mantissa = b.cast(b.binary<nn::MulOp>(ratio, 0x1p23), i64);
  // The field of the exponent and the mantissa are added, since the mantissa of
  // a normal number carries its leading 1 into the field.
  Value bits =
      b.binary<nn::AddOp>(mantissa, b.binary<nn::MulOp>(exponent, 0x1p23));
  Value isNaN = b.compare(Predicate::ne, x, x);
  // Every NaN becomes the quiet one: which NaN it was cannot be seen by
  // arithmetic.
  bits = b.select(isNaN, b.like(bits, 0x7FC00000), bits);
  // Only the quotient tells the sign of a zero.
  Value isBelow = b.compare(Predicate::lt, x, b.like(x, 0));
  Value isZero = b.compare(Predicate::eq, x, b.like(x, 0));
  Value inverse = b.binary<nn::DivOp>(b.like(x, 1), x);
  Value isNegativeZero = b.binary<nn::AndOp>(
      isZero, b.compare(Predicate::lt, inverse, b.like(x, 0)));
  Value isNegative = b.binary<nn::OrOp>(isBelow, isNegativeZero);
  return b.select(isNegative, b.binary<nn::AddOp>(bits, 0x1p31), bits);
}

// The inverse, of an i64 from 0 to 2^32 - 1.
static Value floatOfBits(Emitter &b, Value bits) {
  Type f32 = b.builder.getF32Type();
  Value isNegative = b.compare(Predicate::ge, bits, b.like(bits, 0x1p31));
  bits = b.binary<nn::ModOp>(bits, 0x1p31);
  Value mantissa = b.binary<nn::ModOp>(bits, 0x1p23);
  Value field = b.binary<nn::DivOp>(bits, 0x1p23);
  Value isSmall = b.compare(Predicate::eq, field, b.like(field, 0));
  Value isSpecial = b.compare(Predicate::eq, field, b.like(field, 255));
  Value ratio = b.binary<nn::MulOp>(b.cast(mantissa, f32), 0x1p-23);
  Value value = b.select(isSmall, ratio, b.binary<nn::AddOp>(ratio, 1.0));
  // The power 2^(field - 127), of which 2^-126 stands for the fields 0 and 1.
  Value rest = b.select(isSmall, field, b.binary<nn::SubOp>(field, 1.0));
  value = b.binary<nn::MulOp>(value, 0x1p-126);
  // Multiplied up from the smallest normal, so that no factor overflows before
  // the value does.
  for (int bit = 0; bit < 8; ++bit) {
    Value isSet = b.compare(Predicate::eq, lowestBit(b, rest), b.like(rest, 1));
    Value raised = value;
    // 2^128 is not a float.
    for (int part = 0; part < (bit == 7 ? 2 : 1); ++part)
      raised =
          b.binary<nn::MulOp>(raised, std::ldexp(1.0, std::min(1 << bit, 64)));
    value = b.select(isSet, raised, value);
    rest = b.binary<nn::DivOp>(rest, 2.0);
  }
  Value isInfinite = b.compare(Predicate::eq, mantissa, b.like(mantissa, 0));
  Value special = b.select(
      isInfinite, b.like(value, std::numeric_limits<double>::infinity()),
      b.like(value, std::numeric_limits<double>::quiet_NaN()));
  value = b.select(isSpecial, special, value);
  return b.select(isNegative, b.unary<nn::NegOp>(value), value);
}

// Other floats than f32 do not keep their bits here.
static bool hasBits(int64_t type) {
  return isSignedInteger(type) || isUnsignedInteger(type) ||
         type == TensorProto::FLOAT || type == TensorProto::BOOL;
}

static LogicalResult bitCast(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  Emitter &b = node.b;
  int64_t from = node.elementType(0), to = node.getInt("to", 0);
  if (bitsOf(from) != bitsOf(to))
    return node.refuse("element types " + nameOf(from) + " and " + nameOf(to) +
                       " differ in size");
  if (from == to)
    return node.result(node.input(0), to);
  if (!hasBits(from) || !hasBits(to) || to == TensorProto::BOOL)
    return node.refuse("the bits of " + nameOf(hasBits(from) ? to : from) +
                       " are not kept, since it is carried by another type");
  Type i64 = b.builder.getI64Type();
  Value x = node.input(0);
  x = from == TensorProto::FLOAT ? bitsOfFloat(b, x) : b.cast(x, i64);
  if (to == TensorProto::FLOAT)
    return node.result(floatOfBits(b, wrapped(b, x, TensorProto::UINT32)), to);
  return node.result(
      b.cast(wrapped(b, x, to), importedType(to, b.builder.getContext())), to);
}

void frontend::registerBits(HandlerTable &table) {
  table.add("BitShift", 11, bitShift, CodeUse::unpacks);
  table.add("BitwiseAnd", 18, bitwise<Logic::conjunction>, CodeUse::unpacks);
  table.add("BitwiseOr", 18, bitwise<Logic::disjunction>);
  table.add("BitwiseXor", 18, bitwise<Logic::exclusive>);
  table.add("BitwiseNot", 18, bitwiseNot);
  table.add("BitCast", 26, bitCast);
}
