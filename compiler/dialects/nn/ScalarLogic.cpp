// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The scalar code of comparisons, booleans, selection and conversion.
// Signedness is a property of the tensor's type; scalar code has signless
// integers, so these functions look at the op's types to choose between signed
// and unsigned.
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ScalarBuilder.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc::nn;

namespace {

// Comparisons with NaN are false, except `ne`, as in IEEE 754 and PyTorch.
arith::CmpFPredicate floatPredicate(Predicate predicate) {
  switch (predicate) {
  case Predicate::eq:
    return arith::CmpFPredicate::OEQ;
  case Predicate::ne:
    return arith::CmpFPredicate::UNE;
  case Predicate::lt:
    return arith::CmpFPredicate::OLT;
  case Predicate::le:
    return arith::CmpFPredicate::OLE;
  case Predicate::gt:
    return arith::CmpFPredicate::OGT;
  case Predicate::ge:
    return arith::CmpFPredicate::OGE;
  }
  llvm_unreachable("covered above");
}

arith::CmpIPredicate intPredicate(Predicate predicate, bool isUnsigned) {
  using P = arith::CmpIPredicate;
  switch (predicate) {
  case Predicate::eq:
    return P::eq;
  case Predicate::ne:
    return P::ne;
  case Predicate::lt:
    return isUnsigned ? P::ult : P::slt;
  case Predicate::le:
    return isUnsigned ? P::ule : P::sle;
  case Predicate::gt:
    return isUnsigned ? P::ugt : P::sgt;
  case Predicate::ge:
    return isUnsigned ? P::uge : P::sge;
  }
  llvm_unreachable("covered above");
}

// Returns the type in which scalar code computes with a tensor's elements: f32
// for the 16-bit floats, and signless integers.
Type scalarType(Type element) {
  if (isHalf(element))
    return Float32Type::get(element.getContext());
  if (auto integer = dyn_cast<IntegerType>(element))
    return IntegerType::get(element.getContext(), integer.getWidth());
  return element;
}

// Truncates towards zero. A number that the type cannot hold becomes its
// nearest integer, and NaN the smallest; the conversion itself is undefined for
// both.
Value toInteger(ScalarBuilder &s, Value x, Type type, bool isUnsigned) {
  unsigned bits = getElementTypeOrSelf(type).getIntOrFloatBitWidth();
  auto compare = [&](arith::CmpFPredicate predicate, double bound) {
    return s.make<arith::CmpFOp>(predicate, x, s.constant(x, bound));
  };
  // The integers from `low` to `high` lie between `below` and `above`. Rounded
  // to a float, `below` may be `low`, which is then selected, not converted.
  double above = std::ldexp(1.0, isUnsigned ? bits : bits - 1);
  double below = isUnsigned ? -1 : -above - 1;
  // The conversion runs on 0 wherever its result is not used, since LLVM makes
  // an out-of-range one poison.
  Value isLow = compare(arith::CmpFPredicate::ULE, below); // or NaN
  Value isHigh = compare(arith::CmpFPredicate::OGE, above);
  Value inside =
      s.make<arith::AndIOp>(compare(arith::CmpFPredicate::OGT, below),
                            compare(arith::CmpFPredicate::OLT, above));
  x = s.make<arith::SelectOp>(inside, x, s.constant(x, 0));
  Value result = isUnsigned ? s.make<arith::FPToUIOp>(type, x)
                            : s.make<arith::FPToSIOp>(type, x);
  // In two's complement the largest integer is the complement of the smallest,
  // which avoids a float constant that would round up.
  Value low = s.constant(result, isUnsigned ? 0 : -above);
  Value ones = s.constant(result, -1);
  Value high = isUnsigned ? ones : s.make<arith::XOrIOp>(low, ones);
  result = s.make<arith::SelectOp>(isHigh, high, result);
  return s.make<arith::SelectOp>(isLow, low, result);
}

} // namespace

static bool isDraw(Value value) {
  while (auto cast = value.getDefiningOp<CastOp>())
    value = cast.getInput();
  return value.getDefiningOp<UniformOp>() != nullptr;
}

bool CmpOp::computesInF32() { return isDraw(getLhs()) || isDraw(getRhs()); }

Value CmpOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  ScalarBuilder s(builder, loc);
  if (isFloat(xs[0]))
    return s.make<arith::CmpFOp>(floatPredicate(getPredicate()), xs[0], xs[1]);
  bool unsignedOperands = isUnsigned(getElementTypeOrSelf(getLhs().getType()));
  return s.make<arith::CmpIOp>(intPredicate(getPredicate(), unsignedOperands),
                               xs[0], xs[1]);
}

// Operands are i1, so a flip of the only bit negates.
Value NotOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  ScalarBuilder s(builder, loc);
  return s.make<arith::XOrIOp>(xs[0], s.constant(xs[0], 1));
}

Value AndOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return arith::AndIOp::create(builder, loc, xs[0], xs[1]);
}

Value OrOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return arith::OrIOp::create(builder, loc, xs[0], xs[1]);
}

Value XorOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return arith::XOrIOp::create(builder, loc, xs[0], xs[1]);
}

Value SelectOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return arith::SelectOp::create(builder, loc, xs[0], xs[1], xs[2]);
}

// A copy computes nothing; the emitter's load and store are the copy.
Value CopyOp::buildScalar(OpBuilder &, Location, ValueRange xs) {
  return xs[0];
}

// One case per pair of kinds. The 16-bit floats and f32 are the same scalar
// type here, since the emitter rounds when it stores.
Value CastOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  ScalarBuilder s(builder, loc);
  Value x = xs[0];
  Type from = getElementTypeOrSelf(getInput().getType());
  Type to = getElementTypeOrSelf(getType());
  Type fromScalar = scalarType(from), toScalar = scalarType(to);
  if (fromScalar == toScalar)
    return x;
  Type type = toScalar;
  if (auto vector = dyn_cast<VectorType>(x.getType()))
    type = VectorType::get(vector.getShape(), toScalar);

  // To a truth value, anything that is not zero is true, NaN too.
  if (to.isInteger(1)) {
    Value zero = s.constant(x, 0);
    if (isFloat(x))
      return s.make<arith::CmpFOp>(arith::CmpFPredicate::UNE, x, zero);
    return s.make<arith::CmpIOp>(arith::CmpIPredicate::ne, x, zero);
  }
  bool fromFloat = isa<FloatType>(fromScalar);
  if (fromFloat && isa<FloatType>(toScalar)) {
    if (toScalar.getIntOrFloatBitWidth() > fromScalar.getIntOrFloatBitWidth())
      return s.make<arith::ExtFOp>(type, x);
    return s.make<arith::TruncFOp>(type, x);
  }
  if (fromFloat)
    return toInteger(s, x, type, isUnsigned(to));
  if (isa<FloatType>(toScalar)) {
    if (isUnsigned(from))
      return s.make<arith::UIToFPOp>(type, x);
    return s.make<arith::SIToFPOp>(type, x);
  }
  // Between integers: a narrower type wraps, a wider one extends by the sign of
  // the source type.
  if (toScalar.getIntOrFloatBitWidth() < fromScalar.getIntOrFloatBitWidth())
    return s.make<arith::TruncIOp>(type, x);
  if (isUnsigned(from))
    return s.make<arith::ExtUIOp>(type, x);
  return s.make<arith::ExtSIOp>(type, x);
}
