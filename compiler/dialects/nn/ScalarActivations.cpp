// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The scalar code of transcendental functions and activations: what one element
// of the result is. Kernels use it for scalars and for vectors, so it must be
// branch-free.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ScalarBuilder.h"

using namespace mlir;
using namespace fsdpc::nn;

namespace {

constexpr double kSqrtHalf = 0.70710678118654752440;      // √½
constexpr double kSqrtTwoOverPi = 0.79788456080286535588; // √(2/π)
constexpr double kInvSqrtTwoPi = 0.39894228040143267794;  // 1/√(2π)
constexpr double kGeluCubic = 0.044715;

// The normal distribution's Φ(x) = (1 + erf(x / √2)) / 2.
Value normalCdf(ScalarBuilder &s, Value x) {
  Value one = s.constant(x, 1);
  return s.mul(s.add(one, s.erf(s.mul(x, kSqrtHalf))), 0.5);
}

// tanh(√(2/π) · (x + 0.044715 · x³))
Value geluTanh(ScalarBuilder &s, Value x) {
  Value square = s.mul(x, x);
  Value factor = s.fma(square, s.constant(x, kGeluCubic * kSqrtTwoOverPi),
                       s.constant(x, kSqrtTwoOverPi));
  return s.tanh(s.mul(x, factor));
}

// x <= 0 ? 0 : x, so that a NaN is not hidden.
Value rectified(ScalarBuilder &s, Value x) {
  Value zero = s.constant(x, 0);
  Value negative = s.make<arith::CmpFOp>(arith::CmpFPredicate::OLE, x, zero);
  return s.make<arith::SelectOp>(negative, zero, x);
}

// x within ±16, where the derivative of GELU is 0 or 1. Further out its
// products would be 0 · ∞.
Value within16(ScalarBuilder &s, Value x) {
  auto bound = [&](arith::CmpFPredicate beyond, double limit) {
    Value end = s.constant(x, limit);
    x = s.make<arith::SelectOp>(s.make<arith::CmpFOp>(beyond, x, end), end, x);
  };
  bound(arith::CmpFPredicate::OGT, 16);
  bound(arith::CmpFPredicate::OLT, -16);
  return x;
}

} // namespace

// Code generation expands the ops of math (ExpandMath.cpp for the host,
// DeviceMath.cpp for GPUs).
Value ExpOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return math::ExpOp::create(builder, loc, xs[0]);
}

Value LogOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return math::LogOp::create(builder, loc, xs[0]);
}

Value Expm1Op::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return math::ExpM1Op::create(builder, loc, xs[0]);
}

Value Log1pOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return math::Log1pOp::create(builder, loc, xs[0]);
}

Value TanhOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return math::TanhOp::create(builder, loc, xs[0]);
}

Value ErfOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return math::ErfOp::create(builder, loc, xs[0]);
}

Value SinOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return math::SinOp::create(builder, loc, xs[0]);
}

Value CosOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return math::CosOp::create(builder, loc, xs[0]);
}

Value AtanOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return math::AtanOp::create(builder, loc, xs[0]);
}

// No clamp is needed: see ScalarBuilder::sigmoid.
Value SigmoidOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  return ScalarBuilder(builder, loc).sigmoid(xs[0]);
}

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|).
Value SoftplusOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  // The exponent is never positive, so nothing overflows.
  ScalarBuilder s(builder, loc);
  Value decay = s.exp(s.neg(s.make<math::AbsFOp>(xs[0])));
  return s.add(rectified(s, xs[0]), s.make<math::Log1pOp>(decay));
}

Value ReluOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  ScalarBuilder s(builder, loc);
  return rectified(s, xs[0]);
}

Value SiluOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  // x / (1 + e^-x): one division, and -0 for large negative x.
  ScalarBuilder s(builder, loc);
  Value x = xs[0];
  return s.div(x, s.add(s.constant(x, 1), s.exp(s.neg(x))));
}

Value SiluGradOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  // dy · σ · (1 + x · (1 - σ))
  ScalarBuilder s(builder, loc);
  Value x = xs[0], sigma = s.sigmoid(x), one = s.constant(x, 1);
  Value slope = s.mul(sigma, s.fma(x, s.sub(one, sigma), one));
  return s.mul(xs[1], slope);
}

// x · Φ(x), or its approximation by tanh (Hendrycks and Gimpel, Gaussian Error
// Linear Units, 2016).
Value GeluOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  ScalarBuilder s(builder, loc);
  Value x = xs[0];
  if (getForm() == GeluForm::erf)
    return s.mul(x, normalCdf(s, x));
  Value one = s.constant(x, 1);
  return s.mul(s.mul(x, 0.5), s.add(one, geluTanh(s, x)));
}

// dy times the derivative, in one expression, so that nothing between is
// rounded to bf16.
Value GeluGradOp::buildScalar(OpBuilder &builder, Location loc, ValueRange xs) {
  ScalarBuilder s(builder, loc);
  Value x = within16(s, xs[0]), one = s.constant(x, 1), square = s.mul(x, x);
  if (getForm() == GeluForm::erf) {
    // Φ(x) + x · φ(x)
    Value density = s.mul(s.exp(s.mul(square, -0.5)), kInvSqrtTwoPi);
    return s.mul(xs[1], s.fma(x, density, normalCdf(s, x)));
  }
  // (1 + t) / 2 + x / 2 · (1 - t²) · √(2/π) · (1 + 3 · 0.044715 · x²)
  Value t = geluTanh(s, x);
  Value inner = s.fma(square, s.constant(x, 3 * kGeluCubic * kSqrtTwoOverPi),
                      s.constant(x, kSqrtTwoOverPi));
  Value slope = s.mul(s.sub(one, s.mul(t, t)), inner);
  Value twice = s.fma(x, slope, s.add(one, t));
  return s.mul(xs[1], s.mul(twice, 0.5));
}
