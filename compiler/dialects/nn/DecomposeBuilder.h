// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shorthand for decompositions: builds primitives in f32 (f64 for f64
// operands), and broadcasts by NumPy's rule what a reduction has kept with size
// 1. Constants and results are converted here, so that decompositions read like
// formulas.
#pragma once

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

namespace fsdpc::nn {

/// Borrows the builder, and inserts where it stands. All ops get the location
/// of the composite that is decomposed.
class DecomposeBuilder {
public:
  DecomposeBuilder(mlir::OpBuilder &builder, mlir::Location loc)
      : builder(builder), loc(loc) {}

  /// Returns the operand in the type in which statistics are computed. The
  /// decompositions call it on every float operand, so bf16 is widened once at
  /// the start and rounded once at the end.
  mlir::Value enter(mlir::Value value) {
    mlir::Type element = tensorType(value).getElementType();
    if (!element.isF64())
      element = builder.getF32Type();
    return castTo(builder, loc, value, element);
  }
  /// Returns the result in its declared element type and shape.
  mlir::Value leave(mlir::Value value, mlir::Type type) {
    auto tensor = llvm::cast<mlir::RankedTensorType>(type);
    value = castTo(builder, loc, value, tensor.getElementType());
    return reshapeTo(builder, loc, value, tensor.getShape());
  }

  /// Changes of shape and type, without a check: callers pass shapes that the
  /// verifiers of the composite have accepted. None builds an op if the value
  /// has the wanted type already.
  mlir::Value broadcast(mlir::Value value, llvm::ArrayRef<int64_t> shape) {
    return broadcastTo(builder, loc, value, shape);
  }
  mlir::Value reshape(mlir::Value value, llvm::ArrayRef<int64_t> shape) {
    return reshapeTo(builder, loc, value, shape);
  }
  mlir::Value cast(mlir::Value value, mlir::Type element) {
    return castTo(builder, loc, value, element);
  }
  /// A splat of the given type, or of the type of another value.
  mlir::Value constant(mlir::Type type, double value) {
    return splat(builder, loc, type, value);
  }
  mlir::Value constant(mlir::Value like, double value) {
    return constant(like.getType(), value);
  }

  /// Ops whose result has the type of their operands. There are no integer
  /// forms.
  template <typename OpTy> mlir::Value unary(mlir::Value x) {
    return OpTy::create(builder, loc, x.getType(), x);
  }
  /// Broadcasts the smaller operand to the larger one.
  template <typename OpTy> mlir::Value binary(mlir::Value x, mlir::Value y) {
    align(x, y);
    return OpTy::create(builder, loc, x.getType(), x, y);
  }
  mlir::Value add(mlir::Value x, mlir::Value y) { return binary<AddOp>(x, y); }
  mlir::Value sub(mlir::Value x, mlir::Value y) { return binary<SubOp>(x, y); }
  mlir::Value mul(mlir::Value x, mlir::Value y) { return binary<MulOp>(x, y); }
  mlir::Value div(mlir::Value x, mlir::Value y) { return binary<DivOp>(x, y); }
  mlir::Value add(mlir::Value x, double y) { return add(x, constant(x, y)); }
  mlir::Value mul(mlir::Value x, double y) { return mul(x, constant(x, y)); }
  mlir::Value exp(mlir::Value x) { return unary<ExpOp>(x); }
  mlir::Value log(mlir::Value x) { return unary<LogOp>(x); }
  mlir::Value rsqrt(mlir::Value x) { return unary<RsqrtOp>(x); }

  /// Returns i1 elements; operands are aligned as for arithmetic.
  mlir::Value compare(Predicate predicate, mlir::Value x, mlir::Value y) {
    align(x, y);
    auto type = tensorType(x).clone(builder.getI1Type());
    return CmpOp::create(builder, loc, type, predicate, x, y);
  }
  /// Aligns the two values first: the condition may be smaller than both, but
  /// not larger.
  mlir::Value select(mlir::Value condition, mlir::Value x, mlir::Value y) {
    align(x, y);
    condition = broadcast(condition, shapeOf(x));
    return SelectOp::create(builder, loc, x.getType(), condition, x, y);
  }
  /// Returns a tensor of integers that count from 0 along `axis`.
  mlir::Value iota(mlir::RankedTensorType type, int64_t axis) {
    return IotaOp::create(builder, loc, type, axis);
  }
  /// Returns one element per row of the last axis. `index` has the shape of `x`
  /// with a last dimension of 1. An index outside of the row gives NaN.
  mlir::Value takeAlongAxis(mlir::Value x, mlir::Value index) {
    auto type = tensorType(x).clone(shapeOf(index));
    return TakeAlongAxisOp::create(builder, loc, type, x, index);
  }

  /// Reductions along `axes`, kept with size 1, so that the result broadcasts
  /// to the operand again. The order of additions is that of the kernel's
  /// template.
  mlir::Value sum(mlir::Value x, llvm::ArrayRef<int64_t> axes) {
    return reduceAlong(builder, loc, ReduceKind::sum, x, axes);
  }
  /// Multiplies by the reciprocal, a constant, instead of dividing each sum.
  mlir::Value mean(mlir::Value x, llvm::ArrayRef<int64_t> axes) {
    int64_t count = 1;
    for (int64_t axis : axes)
      count *= shapeOf(x)[axis];
    return mul(sum(x, axes), 1.0 / count);
  }
  mlir::Value max(mlir::Value x, llvm::ArrayRef<int64_t> axes) {
    return reduceAlong(builder, loc, ReduceKind::max, x, axes);
  }

  static int64_t lastAxis(mlir::Value x) { return tensorType(x).getRank() - 1; }

private:
  /// Brings both operands to the larger shape. Only one of them may need it:
  /// shapes that grow in different dimensions (R×1 and 1×C) are not supported.
  void align(mlir::Value &x, mlir::Value &y) {
    if (broadcastsTo(shapeOf(x), shapeOf(y)))
      x = broadcast(x, shapeOf(y));
    else
      y = broadcast(y, shapeOf(x));
  }

  mlir::OpBuilder &builder;
  mlir::Location loc;
};

} // namespace fsdpc::nn
