// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The adjoints of elementwise ops. An adjoint reads the op's result rather than
// its input if the derivative can be written with it, since the result is often
// saved for another op anyway. Where a function has no derivative, the choice
// is PyTorch's.
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc::nn;

namespace {
/// Builds arithmetic at one location, on tensors of one type.
struct Arithmetic {
  OpBuilder &builder;
  Location loc;
  // The type of the op's result, which constants and comparisons take.
  Type type;

  Arithmetic(OpBuilder &builder, Operation *op)
      : builder(builder), loc(op->getLoc()), type(op->getResult(0).getType()) {}

  Value constant(double value) const {
    return splat(builder, loc, type, value);
  }
  Value neg(Value x) const { return NegOp::create(builder, loc, x); }
  Value add(Value x, Value y) const {
    return AddOp::create(builder, loc, x, y);
  }
  Value sub(Value x, Value y) const {
    return SubOp::create(builder, loc, x, y);
  }
  Value mul(Value x, Value y) const {
    return MulOp::create(builder, loc, x, y);
  }
  Value mul(Value x, double y) const { return mul(x, constant(y)); }
  Value div(Value x, Value y) const {
    return DivOp::create(builder, loc, x, y);
  }
  Value cmp(Predicate predicate, Value x, Value y) const {
    auto bits = cast<RankedTensorType>(type).clone(builder.getI1Type());
    return CmpOp::create(builder, loc, bits, predicate, x, y);
  }
  Value select(Value condition, Value x, Value y) const {
    return SelectOp::create(builder, loc, condition, x, y);
  }
};
} // namespace

/// The adjoint of a unary op: `build(arithmetic, grad)`.
template <typename BuildFn>
static LogicalResult unary(Operation *op, OpBuilder &builder, ValueRange grads,
                           SmallVectorImpl<Value> &results, BuildFn build) {
  results[0] = build(Arithmetic(builder, op), grads[0]);
  return success();
}

#define FSDPC_UNARY_ADJOINT(OP, EXPRESSION)                                    \
  LogicalResult OP::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,   \
                                 ArrayRef<bool>,                               \
                                 SmallVectorImpl<Value> &operandGrads) {       \
    return unary(*this, builder, resultGrads, operandGrads,                    \
                 [&](const Arithmetic &a, Value g) -> Value {                  \
                   [[maybe_unused]] Value x = getInput(), y = getResult();     \
                   return EXPRESSION;                                          \
                 });                                                           \
  }

FSDPC_UNARY_ADJOINT(NegOp, a.neg(g))
FSDPC_UNARY_ADJOINT(ExpOp, a.mul(g, y))
FSDPC_UNARY_ADJOINT(LogOp, a.div(g, x))
FSDPC_UNARY_ADJOINT(Expm1Op, a.mul(g, ExpOp::create(a.builder, a.loc, x)))
FSDPC_UNARY_ADJOINT(Log1pOp, a.div(g, a.add(x, a.constant(1))))
FSDPC_UNARY_ADJOINT(SqrtOp, a.div(a.mul(g, 0.5), y))
FSDPC_UNARY_ADJOINT(RsqrtOp, a.mul(a.mul(g, -0.5), a.mul(y, a.mul(y, y))))
FSDPC_UNARY_ADJOINT(TanhOp, a.mul(g, a.sub(a.constant(1), a.mul(y, y))))
FSDPC_UNARY_ADJOINT(SigmoidOp, a.mul(g, a.mul(y, a.sub(a.constant(1), y))))
FSDPC_UNARY_ADJOINT(SoftplusOp,
                    a.mul(g, SigmoidOp::create(a.builder, a.loc, x)))
// The slope at 0 is 0. The result is positive exactly where the input is, so
// the input need not be kept.
FSDPC_UNARY_ADJOINT(ReluOp, a.select(a.cmp(Predicate::gt, y, a.constant(0)), g,
                                     a.constant(0)))
FSDPC_UNARY_ADJOINT(SinOp, a.mul(g, CosOp::create(a.builder, a.loc, x)))
FSDPC_UNARY_ADJOINT(AtanOp, a.div(g, a.add(a.mul(x, x), a.constant(1))))
FSDPC_UNARY_ADJOINT(CosOp, a.neg(a.mul(g, SinOp::create(a.builder, a.loc, x))))
// The derivatives are ops of their own: the formula in primitives would be
// rounded to bf16 after each step.
FSDPC_UNARY_ADJOINT(SiluOp, SiluGradOp::create(a.builder, a.loc, x, g))
FSDPC_UNARY_ADJOINT(GeluOp,
                    GeluGradOp::create(a.builder, a.loc, x, g, getForm()))
// d erf(x) / dx = 2 / √π · exp(-x²).
FSDPC_UNARY_ADJOINT(ErfOp,
                    a.mul(a.mul(g, 2 / std::sqrt(M_PI)),
                          ExpOp::create(a.builder, a.loc, a.neg(a.mul(x, x)))))
// The slope is the sign of x, and 0 at 0, as in PyTorch.
FSDPC_UNARY_ADJOINT(AbsOp,
                    a.select(a.cmp(Predicate::gt, x, a.constant(0)), g,
                             a.select(a.cmp(Predicate::lt, x, a.constant(0)),
                                      a.neg(g), a.constant(0))))
#undef FSDPC_UNARY_ADJOINT

// The gradient is zero almost everywhere, so the entry stays null, which means
// zero and costs no op.
LogicalResult FloorOp::buildAdjoint(OpBuilder &, ValueRange, ArrayRef<bool>,
                                    SmallVectorImpl<Value> &) {
  return success();
}

LogicalResult RoundOp::buildAdjoint(OpBuilder &, ValueRange, ArrayRef<bool>,
                                    SmallVectorImpl<Value> &) {
  return success();
}

// `grad` does not differentiate through it; this is for the ops around it.
LogicalResult StopGradientOp::buildAdjoint(OpBuilder &, ValueRange,
                                           ArrayRef<bool>,
                                           SmallVectorImpl<Value> &) {
  return success();
}

// dx = dy for both operands.
LogicalResult AddOp::buildAdjoint(OpBuilder &, ValueRange resultGrads,
                                  ArrayRef<bool>,
                                  SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] = operandGrads[1] = resultGrads[0];
  return success();
}

// d(a - b): dy and -dy.
LogicalResult SubOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                                  ArrayRef<bool> needed,
                                  SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] = resultGrads[0];
  if (needed[1])
    operandGrads[1] = Arithmetic(builder, *this).neg(resultGrads[0]);
  return success();
}

// d(a · b): dy · b and dy · a.
LogicalResult MulOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                                  ArrayRef<bool> needed,
                                  SmallVectorImpl<Value> &operandGrads) {
  Arithmetic a(builder, *this);
  if (needed[0])
    operandGrads[0] = a.mul(resultGrads[0], getRhs());
  if (needed[1])
    operandGrads[1] = a.mul(resultGrads[0], getLhs());
  return success();
}

// d(a / b): dy / b and -dy · a / b², written with the result a / b.
LogicalResult DivOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                                  ArrayRef<bool> needed,
                                  SmallVectorImpl<Value> &operandGrads) {
  Arithmetic a(builder, *this);
  // Built even if only the second is wanted, which is a multiple of it.
  operandGrads[0] = a.div(resultGrads[0], getRhs());
  if (needed[1])
    operandGrads[1] = a.neg(a.mul(operandGrads[0], getResult()));
  return success();
}

// x mod y = x - y · floor(x / y).
LogicalResult ModOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                                  ArrayRef<bool> needed,
                                  SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] = resultGrads[0];
  if (needed[1]) {
    Arithmetic a(builder, *this);
    Value floor = FloorOp::create(builder, getLoc(), a.div(getLhs(), getRhs()));
    // The derivative of the floor is zero almost everywhere, so only its factor
    // y contributes.
    operandGrads[1] = a.neg(a.mul(resultGrads[0], floor));
  }
  return success();
}

// dx = dz · y · xʸ⁻¹, without a power for the common exponents 0, ½, 2 and 3.
// For the exponent, dz · z · log x; the slope is 0 at x = 0 for exponents that
// are not negative, and NaN at negative x, as in PyTorch.
LogicalResult PowOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                                  ArrayRef<bool> needed,
                                  SmallVectorImpl<Value> &operandGrads) {
  Arithmetic a(builder, *this);
  Value g = resultGrads[0], x = getLhs();
  if (needed[1]) {
    Value log = LogOp::create(builder, getLoc(), x);
    Value slope = a.mul(g, a.mul(getResult(), log));
    Value atZero = a.select(a.cmp(Predicate::ge, getRhs(), a.constant(0)),
                            a.constant(0), slope);
    operandGrads[1] =
        a.select(a.cmp(Predicate::eq, x, a.constant(0)), atZero, slope);
  }
  std::optional<double> exponent = matchSplat(getRhs());
  if (exponent == 2.0)
    operandGrads[0] = a.mul(a.mul(g, 2), x);
  else if (exponent == 3.0)
    operandGrads[0] = a.mul(a.mul(g, 3), a.mul(x, x));
  else if (exponent == 0.5)
    operandGrads[0] = a.div(a.mul(g, 0.5), getResult());
  else if (exponent == 0.0)
    operandGrads[0] = nullptr; // also where x is 0
  // A constant exponent other than 0: x^(n - 1) needs no guard, since an
  // infinite slope at 0 is then the true one.
  else if (exponent)
    operandGrads[0] =
        a.mul(a.mul(g, *exponent),
              PowOp::create(builder, getLoc(), x, a.constant(*exponent - 1)));
  else {
    Value lower =
        PowOp::create(builder, getLoc(), x, a.sub(getRhs(), a.constant(1)));
    // Where the exponent is 0 the slope is 0, also at 0, where the power is ∞.
    Value isZero = a.cmp(Predicate::eq, getRhs(), a.constant(0));
    operandGrads[0] =
        a.select(isZero, a.constant(0), a.mul(a.mul(g, getRhs()), lower));
  }
  return success();
}

/// Maximum and minimum: the gradient goes to the operand that is chosen, and
/// half to each if they are equal.
static void adjointOfChoice(Operation *op, OpBuilder &builder, Value grad,
                            Predicate chosen, ArrayRef<bool> needed,
                            SmallVectorImpl<Value> &operandGrads) {
  Arithmetic a(builder, op);
  Value x = op->getOperand(0), y = op->getOperand(1);
  // Either operand may be the result at a tie; halves keep the sum of the two
  // gradients equal to the gradient.
  Value half =
      a.select(a.cmp(Predicate::eq, x, y), a.mul(grad, 0.5), a.constant(0));
  if (needed[0])
    operandGrads[0] = a.select(a.cmp(chosen, x, y), grad, half);
  if (needed[1])
    operandGrads[1] = a.select(a.cmp(chosen, y, x), grad, half);
}

LogicalResult MaximumOp::buildAdjoint(OpBuilder &builder,
                                      ValueRange resultGrads,
                                      ArrayRef<bool> needed,
                                      SmallVectorImpl<Value> &operandGrads) {
  adjointOfChoice(*this, builder, resultGrads[0], Predicate::gt, needed,
                  operandGrads);
  return success();
}

LogicalResult MinimumOp::buildAdjoint(OpBuilder &builder,
                                      ValueRange resultGrads,
                                      ArrayRef<bool> needed,
                                      SmallVectorImpl<Value> &operandGrads) {
  adjointOfChoice(*this, builder, resultGrads[0], Predicate::lt, needed,
                  operandGrads);
  return success();
}

// The gradient goes to the operand that was selected, the other gets 0.
LogicalResult SelectOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                                     ArrayRef<bool> needed,
                                     SmallVectorImpl<Value> &operandGrads) {
  Arithmetic a(builder, *this);
  Value zero = a.constant(0);
  if (needed[1])
    operandGrads[1] = a.select(getCondition(), resultGrads[0], zero);
  if (needed[2])
    operandGrads[2] = a.select(getCondition(), zero, resultGrads[0]);
  return success();
}

// Only casts between floats have a gradient.
LogicalResult CastOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                                   ArrayRef<bool>,
                                   SmallVectorImpl<Value> &operandGrads) {
  Type from = tensorType(getInput()).getElementType();
  Type to = tensorType(getResult()).getElementType();
  if (isa<FloatType>(from) && isa<FloatType>(to))
    operandGrads[0] = castTo(builder, getLoc(), resultGrads[0], from);
  return success();
}

// Dropout of the gradient with the same mask, which the same random numbers
// give.
LogicalResult DropoutOp::buildAdjoint(OpBuilder &builder,
                                      ValueRange resultGrads, ArrayRef<bool>,
                                      SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] =
      DropoutOp::create(builder, getLoc(), getType(), resultGrads[0],
                        getRandom(), getRatioAttr(), getOpAttr());
  return success();
}
