// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rounds and wraps with nn's arithmetic. A float is rounded to a mantissa of m
// bits by dividing it by 2^(e - m), where 2^e is its leading bit, rounding to a
// whole number, and multiplying it again: both products only change the
// exponent, so the result is exact. The exponent stops at the format's least
// one, below which values are evenly spaced.
#include "frontends/onnx/ops/Rounding.h"

#include "compiler/dialects/nn/ElementwiseOps.h"

#include "onnx-ml.pb.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;
using llvm::APFloat;
using nn::Predicate;
using onnx::TensorProto;

// Doubles hold all of these but the ends of 64-bit types.
IntegerRange frontend::rangeOf(int64_t onnxType) {
  int bits = static_cast<int>(bitsOf(onnxType));
  if (isSignedInteger(onnxType))
    return {-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - 1};
  return {0, std::ldexp(1.0, bits) - 1};
}

Value frontend::saturated(Emitter &b, Value x, int64_t onnxType) {
  IntegerRange range = rangeOf(onnxType);
  x = b.binary<nn::MinimumOp>(b.binary<nn::MaximumOp>(x, range.least),
                              range.most);
  return b.cast(x, importedType(onnxType, b.builder.getContext()));
}

// Bisects the exponent. No factor exceeds 2^64, since 2^128 is not a float.
Value frontend::powerOfTwo(Emitter &b, Value magnitude, int least, int most,
                           Value *place) {
  Value limit = b.binary<nn::MinimumOp>(magnitude, std::ldexp(1.0, most));
  Value power = b.like(magnitude, std::ldexp(1.0, least));
  if (place)
    *place = b.splat(tensorType(power).clone(b.builder.getI64Type()), 0);
  // Raises the power by 2^step where it still fits.
  auto raise = [&](int step) {
    Value next = b.binary<nn::MulOp>(power, std::ldexp(1.0, step));
    Value fits = b.compare(Predicate::le, next, limit);
    power = b.select(fits, next, power);
    if (place)
      *place =
          b.select(fits, b.binary<nn::AddOp>(*place, double(step)), *place);
  };
  int span = most - least;
  for (int i = 0; i < span / 64; ++i)
    raise(64);
  for (int step = 32; step > 0; step /= 2)
    if (step <= span)
      raise(step);
  return power;
}

// An x of exactly so many bits is in range already.
Value frontend::wrapped(Emitter &b, Value x, int64_t onnxType) {
  int bits = static_cast<int>(bitsOf(onnxType));
  if (elementOf(x).isInteger(bits))
    return x;
  double count = std::ldexp(1.0, bits);
  Value rest = b.binary<nn::ModOp>(x, count);
  if (!isSignedInteger(onnxType))
    return rest;
  // The upper half stands for negative numbers in two's complement.
  Value isNegative = b.compare(Predicate::ge, rest, b.like(rest, count / 2));
  return b.select(isNegative, b.binary<nn::AddOp>(rest, -count), rest);
}

Conversion frontend::readConversion(Node &node) {
  return {node.getInt("saturate", 1) != 0, node.getString("round_mode", "up")};
}

// float8e8m0 has powers of two and NaN only; the sign is dropped. The
// exponent-only type of microscaling formats (OCP MX), used for scales.
static Value roundedToPower(Emitter &b, Value x, const Conversion &conversion) {
  constexpr int largest = 127;
  Value magnitude = b.unary<nn::AbsOp>(x);
  Value power = powerOfTwo(b, magnitude, -largest, largest);
  // Half of the value, so that twice the largest power is still a float.
  Value half = b.binary<nn::MulOp>(magnitude, 0.5);
  double threshold = conversion.roundMode == "nearest" ? 0.75 : 0.5;
  Predicate above =
      conversion.roundMode == "nearest" ? Predicate::ge : Predicate::gt;
  Value isAbove = b.compare(above, half, b.binary<nn::MulOp>(power, threshold));
  Value next = b.binary<nn::MulOp>(power, 2.0);
  Value isLargest =
      b.compare(Predicate::eq, power, b.like(power, std::ldexp(1.0, largest)));
  double beyond = conversion.saturate
                      ? std::ldexp(1.0, largest)
                      : std::numeric_limits<double>::quiet_NaN();
  next = b.select(isLargest, b.like(power, beyond), next);
  Value result =
      conversion.roundMode == "down" ? power : b.select(isAbove, next, power);
  Value isFinite =
      b.compare(Predicate::lt, magnitude,
                b.like(magnitude, std::numeric_limits<double>::infinity()));
  return b.select(isFinite, result,
                  b.like(x, std::numeric_limits<double>::quiet_NaN()));
}

Value frontend::rounded(Emitter &b, Value x, int64_t onnxType,
                        const Conversion &conversion) {
  if (onnxType == TensorProto::FLOAT8E8M0)
    return roundedToPower(b, x, conversion);
  const llvm::fltSemantics &format = semanticsOf(onnxType);
  int mantissa = static_cast<int>(APFloat::semanticsPrecision(format)) - 1;
  double most = APFloat::getLargest(format).convertToDouble();
  Value power = powerOfTwo(b, b.unary<nn::AbsOp>(x),
                           APFloat::semanticsMinExponent(format),
                           static_cast<int>(std::floor(std::log2(most))));
  // The distance of neighbouring values at this magnitude.
  Value unit = b.binary<nn::MulOp>(power, std::ldexp(1.0, -mantissa));
  Value y = b.binary<nn::MulOp>(
      b.unary<nn::RoundOp>(b.binary<nn::DivOp>(x, unit)), unit);

  // float4 has neither infinities nor NaN, and always saturates.
  bool isFloat4 = onnxType == TensorProto::FLOAT4E2M1;
  // E5M2 follows IEEE and has infinities; the other 8-bit formats have only
  // NaN.
  double above = most;
  if (!conversion.saturate && !isFloat4)
    above = onnxType == TensorProto::FLOAT8E5M2
                ? std::numeric_limits<double>::infinity()
                : std::numeric_limits<double>::quiet_NaN();
  y = b.select(b.compare(Predicate::gt, y, b.like(y, most)), b.like(y, above),
               y);
  y = b.select(b.compare(Predicate::lt, y, b.like(y, -most)), b.like(y, -above),
               y);
  if (isFloat4)
    return b.select(b.compare(Predicate::ne, x, x), b.like(y, 0), y);
  // The formats without a negative zero.
  if (onnxType == TensorProto::FLOAT8E4M3FNUZ ||
      onnxType == TensorProto::FLOAT8E5M2FNUZ)
    y = b.select(b.compare(Predicate::eq, y, b.like(y, 0)), b.like(y, 0), y);
  return y;
}

// Returns true if every value of an integer type or bool is one of another.
static bool holds(int64_t to, int64_t from) {
  if (from == TensorProto::BOOL)
    return true;
  return rangeOf(from).least >= rangeOf(to).least &&
         rangeOf(from).most <= rangeOf(to).most;
}

// Floats are truncated. Beyond the range of integers of at least 8 bits that is
// undefined in ONNX; narrower ones keep the low bits, as its reference does.
static Value toInteger(Emitter &b, Value x, int64_t from, int64_t to) {
  Type carrier = importedType(to, b.builder.getContext());
  bool isFloat = isa<FloatType>(elementOf(x));
  // A cast to a carrier of the type's own width drops the higher bits itself.
  bool wraps = isFloat ? isStorageType(to)
                       : naturalType(carrier) != to && !holds(to, from);
  if (!wraps)
    return b.cast(x, carrier);
  bool isWide = elementOf(x).isInteger(64) || bitsOf(to) >= 32;
  Type computed = isWide ? b.builder.getI64Type() : b.builder.getI32Type();
  return b.cast(wrapped(b, b.cast(x, computed), to), carrier);
}

// `from` and `to` are ONNX types; `x` has the carrier of `from`.
Value frontend::converted(Emitter &b, Value x, int64_t from, int64_t to,
                          const Conversion &conversion) {
  if (from == to)
    return x;
  if (isNarrowFloat(to))
    return rounded(b, b.cast(x, b.builder.getF32Type()), to, conversion);
  if (isSignedInteger(to) || isUnsignedInteger(to))
    return toInteger(b, x, from, to);
  return b.cast(x, importedType(to, b.builder.getContext()));
}
