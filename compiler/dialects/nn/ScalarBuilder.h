// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shorthand for the scalar code of elementwise ops: builds arith and math ops
// on scalars, or on vectors of one length, with constants of the operands'
// shape.
#pragma once

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"

namespace fsdpc::nn {

/// Borrows the builder, and inserts where it stands. Float operands are f32 or
/// f64: emitters widen bf16 before and round after. An op with vectors as
/// operands takes them all of the same length.
class ScalarBuilder {
public:
  ScalarBuilder(mlir::OpBuilder &builder, mlir::Location loc)
      : builder(builder), loc(loc) {}

  /// Builds any op at the location of the elementwise op that is expanded.
  template <typename OpTy, typename... Args> mlir::Value make(Args &&...args) {
    return OpTy::create(builder, loc, std::forward<Args>(args)...);
  }

  /// Builds a constant of the type of `like`: a scalar, or a splat over its
  /// lanes.
  mlir::Value constant(mlir::Value like, double value) {
    mlir::Type element = mlir::getElementTypeOrSelf(like.getType());
    mlir::TypedAttr scalar;
    if (llvm::isa<mlir::FloatType>(element))
      scalar = builder.getFloatAttr(element, value);
    else
      scalar = builder.getIntegerAttr(element, static_cast<int64_t>(value));
    if (auto vector = llvm::dyn_cast<mlir::VectorType>(like.getType()))
      scalar = mlir::DenseElementsAttr::get(vector, scalar);
    return mlir::arith::ConstantOp::create(builder, loc, scalar);
  }

  /// Arithmetic on floats. Nothing is folded or reassociated here, so the order
  /// of the calls is the order of the roundings.
  mlir::Value add(mlir::Value x, mlir::Value y) {
    return make<mlir::arith::AddFOp>(x, y);
  }
  mlir::Value sub(mlir::Value x, mlir::Value y) {
    return make<mlir::arith::SubFOp>(x, y);
  }
  mlir::Value mul(mlir::Value x, mlir::Value y) {
    return make<mlir::arith::MulFOp>(x, y);
  }
  mlir::Value mul(mlir::Value x, double y) { return mul(x, constant(x, y)); }
  mlir::Value div(mlir::Value x, mlir::Value y) {
    return make<mlir::arith::DivFOp>(x, y);
  }
  mlir::Value fma(mlir::Value x, mlir::Value y, mlir::Value z) {
    return make<mlir::math::FmaOp>(x, y, z);
  }
  /// Functions of math. Kernels do not call libm: ExpandMath.cpp replaces these
  /// by polynomials, whose bits are the same on every processor.
  mlir::Value exp(mlir::Value x) { return make<mlir::math::ExpOp>(x); }
  mlir::Value tanh(mlir::Value x) { return make<mlir::math::TanhOp>(x); }
  mlir::Value erf(mlir::Value x) { return make<mlir::math::ErfOp>(x); }
  mlir::Value neg(mlir::Value x) { return make<mlir::arith::NegFOp>(x); }
  /// 1 / (1 + e^-x). For large negative x the exponential is ∞ and the quotient
  /// 0, so no case is needed.
  mlir::Value sigmoid(mlir::Value x) {
    mlir::Value one = constant(x, 1);
    return div(one, add(one, exp(neg(x))));
  }
  /// Returns y, or x where |x| is so small that a function with y = x + O(x²)
  /// gives x. This keeps the sign of a zero, which y may have lost.
  mlir::Value orTiny(mlir::Value x, mlir::Value y) {
    mlir::Value tiny = make<mlir::arith::CmpFOp>(
        mlir::arith::CmpFPredicate::OLT, make<mlir::math::AbsFOp>(x),
        constant(x, 1e-18));
    return make<mlir::arith::SelectOp>(tiny, x, y);
  }
  /// Builds log(1 + x), given `log`. The sum u = 1 + x is rounded; what it has
  /// lost is added to log(u), divided by u, to first order. That correction is
  /// NaN where u is 0 or ∞ (x = -1 and x = ∞), and log(u) is already exact
  /// there.
  mlir::Value log1p(mlir::Value x,
                    llvm::function_ref<mlir::Value(mlir::Value)> log) {
    mlir::Value one = constant(x, 1), u = add(x, one);
    mlir::Value lost = div(sub(x, sub(u, one)), u);
    mlir::Value counts = make<mlir::arith::CmpFOp>(
        mlir::arith::CmpFPredicate::OLT, make<mlir::math::AbsFOp>(lost), one);
    mlir::Value y = log(u);
    y = make<mlir::arith::SelectOp>(counts, add(y, lost), y);
    return orTiny(x, y);
  }

private:
  mlir::OpBuilder &builder;
  mlir::Location loc;
};

/// Returns true for a float scalar or a vector or tensor of floats.
inline bool isFloat(mlir::Value value) {
  return llvm::isa<mlir::FloatType>(
      mlir::getElementTypeOrSelf(value.getType()));
}

} // namespace fsdpc::nn
