// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The scalar code of arithmetic ops, on floats and on integers. There are no
// fast-math flags: the vector body of a loop and its scalar tail must give the
// same bits.
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ScalarBuilder.h"

using namespace mlir;
using namespace fsdpc::nn;

namespace {

// Chooses by the operands: scalar code sees a float or a signless integer.
template <typename FloatOp, typename IntOp>
Value binary(OpBuilder &builder, Location loc, ValueRange xs) {
  if (isFloat(xs[0]))
    return FloatOp::create(builder, loc, xs[0], xs[1]);
  return IntOp::create(builder, loc, xs[0], xs[1]);
}

// Integer division traps or is undefined for a divisor of 0, and for the
// smallest integer divided by -1. Both divisors are replaced by 1 before the
// division, and the result is selected after it.
struct Division {
  Value byZero, byMinusOne; // true where the divisor is replaced
  Value divisor;            // what to divide by

  Division(ScalarBuilder &s, Value given) {
    auto equals = [&](int64_t value) {
      return s.make<arith::CmpIOp>(arith::CmpIPredicate::eq, given,
                                   s.constant(given, value));
    };
    byZero = equals(0);
    byMinusOne = equals(-1);
    Value one = s.constant(given, 1);
    divisor = s.make<arith::SelectOp>(
        byZero, one, s.make<arith::SelectOp>(byMinusOne, one, given));
  }
};

// The replacement for unsigned operands, which know no -1.
Value nonZero(ScalarBuilder &s, Value divisor) {
  Value zero = s.constant(divisor, 0);
  Value isZero = s.make<arith::CmpIOp>(arith::CmpIPredicate::eq, divisor, zero);
  return s.make<arith::SelectOp>(isZero, s.constant(divisor, 1), divisor);
}

} // namespace

// Integers wrap: no flag promises that they do not overflow.
Value AddOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return binary<arith::AddFOp, arith::AddIOp>(builder, loc, xs);
}

Value SubOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return binary<arith::SubFOp, arith::SubIOp>(builder, loc, xs);
}

Value MulOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return binary<arith::MulFOp, arith::MulIOp>(builder, loc, xs);
}

// Integers: x / 0 is 0, and x / -1 is -x, which wraps for the smallest one.
Value DivOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  ScalarBuilder s(builder, loc);
  if (isFloat(xs[0]))
    return s.div(xs[0], xs[1]);
  Value x = xs[0], zero = s.constant(x, 0);
  if (isUnsigned(getType())) {
    Value byZero = s.make<arith::CmpIOp>(arith::CmpIPredicate::eq, xs[1], zero);
    Value quotient = s.make<arith::DivUIOp>(x, nonZero(s, xs[1]));
    return s.make<arith::SelectOp>(byZero, zero, quotient);
  }
  Division division(s, xs[1]);
  Value quotient = s.make<arith::DivSIOp>(x, division.divisor);
  quotient = s.make<arith::SelectOp>(division.byMinusOne,
                                     s.make<arith::SubIOp>(zero, x), quotient);
  return s.make<arith::SelectOp>(division.byZero, zero, quotient);
}

Value ModOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  ScalarBuilder s(builder, loc);
  if (isFloat(xs[0])) {
    // x - floor(x / y) · y, which is exact enough for the indices that use it.
    Value quotient = s.make<math::FloorOp>(s.div(xs[0], xs[1]));
    return s.fma(s.neg(quotient), xs[1], xs[0]);
  }
  // The remainder of a division by 1 is 0, which is also that by -1 and 0.
  if (isUnsigned(getType()))
    return s.make<arith::RemUIOp>(xs[0], nonZero(s, xs[1]));
  Value divisor = Division(s, xs[1]).divisor;
  // The remainder has the sign of x; y is added if the signs differ.
  Value rest = s.make<arith::RemSIOp>(xs[0], divisor);
  Value zero = s.constant(rest, 0);
  Value inexact = s.make<arith::CmpIOp>(arith::CmpIPredicate::ne, rest, zero);
  Value differ = s.make<arith::CmpIOp>(
      arith::CmpIPredicate::slt, s.make<arith::XOrIOp>(rest, divisor), zero);
  return s.make<arith::SelectOp>(s.make<arith::AndIOp>(inexact, differ),
                                 s.make<arith::AddIOp>(rest, divisor), rest);
}

Value PowOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  ScalarBuilder s(builder, loc);
  if (isFloat(xs[0]))
    return s.make<math::PowFOp>(xs[0], xs[1]);
  return s.make<math::IPowIOp>(xs[0], xs[1]);
}

// arith.maximumf and minimumf give NaN if either operand is NaN, as PyTorch
// does; maxnumf would hide it.
Value MaximumOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  if (isUnsigned(getType()))
    return binary<arith::MaximumFOp, arith::MaxUIOp>(builder, loc, xs);
  return binary<arith::MaximumFOp, arith::MaxSIOp>(builder, loc, xs);
}

Value MinimumOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  if (isUnsigned(getType()))
    return binary<arith::MinimumFOp, arith::MinUIOp>(builder, loc, xs);
  return binary<arith::MinimumFOp, arith::MinSIOp>(builder, loc, xs);
}

// arith has no negation of integers; 0 - x wraps for the smallest one.
Value NegOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  ScalarBuilder s(builder, loc);
  if (isFloat(xs[0]))
    return s.neg(xs[0]);
  return s.make<arith::SubIOp>(s.constant(xs[0], 0), xs[0]);
}

Value AbsOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  ScalarBuilder s(builder, loc);
  if (isFloat(xs[0]))
    return s.make<math::AbsFOp>(xs[0]);
  if (isUnsigned(getType()))
    return xs[0];
  return s.make<math::AbsIOp>(xs[0]);
}

Value SqrtOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return math::SqrtOp::create(builder, loc, xs[0]);
}

Value RsqrtOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  // math.rsqrt is not used: its approximation has 12 bits.
  ScalarBuilder s(builder, loc);
  return s.div(s.constant(xs[0], 1), s.make<math::SqrtOp>(xs[0]));
}

Value FloorOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return math::FloorOp::create(builder, loc, xs[0]);
}

// Adds random bits to those that bf16 lacks: the carry is the step to the next
// number. It could turn a NaN into an infinity, so a NaN becomes the canonical
// quiet NaN.
Value RoundStochasticOp::buildScalar(OpBuilder &builder, Location loc,
                                     ValueRange xs) {
  ScalarBuilder s(builder, loc);
  Value word = xs[1];
  Value bits = s.make<arith::BitcastOp>(word.getType(), xs[0]);
  Value random = s.make<arith::ShRUIOp>(word, s.constant(word, 16));
  Value sum = s.make<arith::AddIOp>(bits, random);
  Value rounded = s.make<arith::AndIOp>(sum, s.constant(sum, -65536));
  Value isNan = s.make<arith::CmpFOp>(arith::CmpFPredicate::UNO, xs[0], xs[0]);
  rounded =
      s.make<arith::SelectOp>(isNan, s.constant(rounded, 0x7fc00000), rounded);
  return s.make<arith::BitcastOp>(xs[0].getType(), rounded);
}

Value RoundOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return math::RoundEvenOp::create(builder, loc, xs[0]);
}

Value StopGradientOp::buildScalar(OpBuilder &, Location, ValueRange xs) {
  return xs[0];
}
