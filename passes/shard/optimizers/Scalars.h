// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The vocabulary of the optimizers' programs: scalar arithmetic, and the
// parts that several algorithms of torch.optim share.
//
// The programs keep torch's order of operations and its types, so that results
// can be compared with PyTorch's. Hyperparameters, the learning rate and the
// step are f64 until they meet an element, as the Python floats of torch.optim
// are; parameter, gradient and states are f32.
//
// Callers write a statement per op where operands are ops too: compilers
// evaluate arguments in orders of their own, and the order of the ops should
// not depend on the compiler.
#pragma once

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace fsdpc::passes {

/// Builds scalar arithmetic, in f32 or f64 as the operands are.
struct Scalars {
  using Value = mlir::Value;
  mlir::OpBuilder &builder;
  mlir::Location loc;

  /// An f64. The location names the constant, for readers of a dump.
  Value number(double value, llvm::StringRef name) {
    return mlir::arith::ConstantOp::create(
        builder, mlir::NameLoc::get(builder.getStringAttr(name), loc),
        builder.getF64FloatAttr(value));
  }
  /// Rounds a number that is combined with an element, as PyTorch does.
  Value toElement(Value x) {
    return mlir::arith::TruncFOp::create(builder, loc, builder.getF32Type(), x);
  }
  Value element(double value, llvm::StringRef name) {
    return toElement(number(value, name));
  }
  /// Exact, unlike `toElement`.
  Value toNumber(Value x) {
    return mlir::arith::ExtFOp::create(builder, loc, builder.getF64Type(), x);
  }
  Value add(Value x, Value y) {
    return mlir::arith::AddFOp::create(builder, loc, x, y);
  }
  Value sub(Value x, Value y) {
    return mlir::arith::SubFOp::create(builder, loc, x, y);
  }
  Value mul(Value x, Value y) {
    return mlir::arith::MulFOp::create(builder, loc, x, y);
  }
  Value div(Value x, Value y) {
    return mlir::arith::DivFOp::create(builder, loc, x, y);
  }
  Value neg(Value x) { return mlir::arith::NegFOp::create(builder, loc, x); }
  Value abs(Value x) { return mlir::math::AbsFOp::create(builder, loc, x); }
  Value sqrt(Value x) { return mlir::math::SqrtOp::create(builder, loc, x); }
  Value exp(Value x) { return mlir::math::ExpOp::create(builder, loc, x); }
  Value expm1(Value x) { return mlir::math::ExpM1Op::create(builder, loc, x); }
  Value pow(Value x, Value y) {
    return mlir::math::PowFOp::create(builder, loc, x, y);
  }
  /// As torch.minimum and maximum, these return NaN if either operand is one.
  Value min(Value x, Value y) {
    return mlir::arith::MinimumFOp::create(builder, loc, x, y);
  }
  Value max(Value x, Value y) {
    return mlir::arith::MaximumFOp::create(builder, loc, x, y);
  }
  /// The square of an element in f64, where it is exact.
  Value squareOf(Value x) {
    Value wide = toNumber(x);
    return mul(wide, wide);
  }
  /// Comparisons with NaN are false.
  Value equal(Value x, Value y) {
    return mlir::arith::CmpFOp::create(builder, loc,
                                       mlir::arith::CmpFPredicate::OEQ, x, y);
  }
  Value isAbove(Value x, Value y) {
    return mlir::arith::CmpFOp::create(builder, loc,
                                       mlir::arith::CmpFPredicate::OGT, x, y);
  }
  /// Both sides are computed; there are no branches in a program.
  Value select(Value condition, Value x, Value y) {
    return mlir::arith::SelectOp::create(builder, loc, condition, x, y);
  }

  /// Returns -1, 0 or 1. NaN gives 0.
  Value sign(Value x);
  /// Returns one of three values, as x is negative, zero or positive. NaN
  /// counts as zero.
  Value choose(Value x, Value below, Value at, Value above);

  /// Tensor.lerp_(value, 1 - beta): an average that keeps `beta` of itself.
  /// `one` and `beta` are f64, and `number` is beta's value.
  Value average(Value old, Value value, Value one, Value beta, double number);
  /// Tensor.mul_(beta).addcmul_(value, value, value=1 - beta).
  Value averageSquare(Value old, Value value, Value one, Value beta);
};

/// The arguments of the region, in the order that fsdp.optimizer documents:
/// parameter, gradient, variance or update, and states are f32; learning rate,
/// step (from 1), decay and sums are f64, and a random word is an i32.
struct Arguments {
  Arguments(mlir::Block &body, unsigned states, bool takesNumber, bool rounds)
      : parameter(body.getArgument(0)), gradient(body.getArgument(1)),
        number(takesNumber ? body.getArgument(2) : mlir::Value()),
        states(body.getArguments().slice(2 + takesNumber, states)),
        lr(body.getArgument(2 + takesNumber + states)),
        step(body.getArgument(3 + takesNumber + states)),
        decay(body.getArgument(4 + takesNumber + states)),
        sums(body.getArguments()
                 .drop_front(5 + takesNumber + states)
                 .drop_back(rounds)),
        word(rounds ? body.getArguments().back() : mlir::Value()) {}
  mlir::Value parameter, gradient;
  /// The average of squares that follows from factors, or the update of
  /// fsdp.orthogonalize; null without either.
  mlir::Value number;
  mlir::ValueRange states;
  mlir::Value lr, step, decay;
  mlir::ValueRange sums; ///< of the member, over all ranks
  /// With which the new parameter is rounded; null if it is not.
  mlir::Value word;

  /// Adds the decay to the gradient. In torch's terms: grad.add(param,
  /// alpha=weight_decay).
  void decayGradient(Scalars s);
  /// Shrinks the parameter by the learning rate times the decay. In torch's
  /// terms: param.mul_(1 - lr * weight_decay), the decoupled decay.
  void decayParameter(Scalars s, mlir::Value one);
};

} // namespace fsdpc::passes
