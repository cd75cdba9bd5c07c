// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recognises logarithms and differences that lose their result in rounding, or
// overflow, as written: log(1 + x), exp(x) - 1, log(sigmoid(x)), softplus, and
// log(exp(x) + exp(y)). They become ops that are accurate everywhere, and so
// are their adjoints. Binary cross-entropy with logits comes out of exporters
// as sums of these, in several forms.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "passes/import/recognise/Match.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::passes::recognise;

// An op of x's type.
template <typename OpT> static Value unary(recognise::Builder &b, Value x) {
  return b.create<OpT>(x.getType(), x);
}

// Exact, unlike isSplat: a number near 1 is another function.
static bool isConstant(Value value, double expected) {
  return nn::matchSplat(value) == expected;
}

// Returns x if the value is -x, else null.
static Value negated(Value value) {
  if (auto neg = value.getDefiningOp<nn::NegOp>())
    return neg.getInput();
  return otherOperand<nn::MulOp>(value,
                                 [](Value v) { return isConstant(v, -1); });
}

// Returns x if the value is OpT(x), else null.
template <typename OpT> static Value operandOf(Value value) {
  auto op = value.getDefiningOp<OpT>();
  return op ? op.getInput() : Value();
}

// Returns x if the value is 1 - x, else null.
static Value complemented(Value value) {
  if (auto sub = value.getDefiningOp<nn::SubOp>())
    return isConstant(sub.getLhs(), 1) ? sub.getRhs() : Value();
  Value rest =
      otherOperand<nn::AddOp>(value, [](Value v) { return isConstant(v, 1); });
  return rest ? negated(rest) : Value();
}

// Returns x if the value is max(x, 0), else null.
static Value rectified(Value value) {
  if (Value x = operandOf<nn::ReluOp>(value))
    return x;
  return otherOperand<nn::MaximumOp>(value,
                                     [](Value v) { return isConstant(v, 0); });
}

// Returns true if the value is softplus(-|x|). The tail of softplus: log(1 +
// exp(-|x|)), which never overflows.
static bool isTail(Value value, Value x) {
  Value inner = operandOf<nn::SoftplusOp>(value);
  Value size = inner ? negated(inner) : Value();
  return size && operandOf<nn::AbsOp>(size) == x;
}

namespace {

// log(1 + x), log(1 + exp(x)), log(1 - x), log(sigmoid(x)), log(1 - sigmoid(x))
// and log(exp(x) + exp(y)).
struct Logarithm : OpRewritePattern<nn::LogOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::LogOp op,
                                PatternRewriter &rewriter) const override {
    recognise::Builder b(rewriter, op);
    Value result = rewritten(b, op.getInput());
    if (!result)
      return failure();
    rewriter.replaceOp(op, result);
    return success();
  }

  // The order of the cases matters: log(1 - sigmoid(x)) is also a logarithm of
  // 1 - y, and log(1 + exp(x)) one of 1 + y.
  static Value rewritten(recognise::Builder &b, Value value) {
    if (Value x = operandOf<nn::SigmoidOp>(value))
      return minusSoftplus(b, unary<nn::NegOp>(b, x));
    if (Value rest = complemented(value)) {
      if (Value x = operandOf<nn::SigmoidOp>(rest))
        return minusSoftplus(b, x);
      return unary<nn::Log1pOp>(b, unary<nn::NegOp>(b, rest));
    }
    Value other = otherOperand<nn::AddOp>(
        value, [](Value v) { return isConstant(v, 1); });
    if (other) {
      if (Value x = operandOf<nn::ExpOp>(other))
        return unary<nn::SoftplusOp>(b, x);
      return unary<nn::Log1pOp>(b, other);
    }
    auto sum = value.getDefiningOp<nn::AddOp>();
    Value x = sum ? operandOf<nn::ExpOp>(sum.getLhs()) : Value();
    Value y = sum ? operandOf<nn::ExpOp>(sum.getRhs()) : Value();
    return x && y ? logAddExp(b, x, y) : Value();
  }

  // log(sigmoid(x)) is -softplus(-x), and log(1 - sigmoid(x)) is -softplus(x).
  static Value minusSoftplus(recognise::Builder &b, Value x) {
    return unary<nn::NegOp>(b, unary<nn::SoftplusOp>(b, x));
  }

  // max(x, y) + softplus(-|x - y|), where x - y is 0 for equal infinities.
  static Value logAddExp(recognise::Builder &b, Value x, Value y) {
    RankedTensorType type = nn::tensorType(x);
    // inf - inf would be NaN.
    Value equal = b.create<nn::CmpOp>(type.clone(b.rewriter.getI1Type()),
                                      nn::Predicate::eq, x, y);
    auto zeros = DenseElementsAttr::get(
        type, b.rewriter.getFloatAttr(type.getElementType(), 0));
    Value zero = b.create<nn::ConstantOp>(type, zeros);
    Value distance = b.create<nn::SelectOp>(type, equal, zero,
                                            b.create<nn::SubOp>(type, x, y));
    Value tail = unary<nn::SoftplusOp>(
        b, unary<nn::NegOp>(b, unary<nn::AbsOp>(b, distance)));
    return b.create<nn::AddOp>(type, b.create<nn::MaximumOp>(type, x, y), tail);
  }
};

// exp(x) - 1, also written exp(x) + -1.
template <typename OpT> struct Expm1 : OpRewritePattern<OpT> {
  using OpRewritePattern<OpT>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpT op,
                                PatternRewriter &rewriter) const override {
    constexpr bool isSub = std::is_same_v<OpT, nn::SubOp>;
    Value x = operandOf<nn::ExpOp>(op.getLhs());
    if (!x || !isConstant(op.getRhs(), isSub ? 1 : -1))
      return failure();
    recognise::Builder b(rewriter, op);
    rewriter.replaceOp(op, unary<nn::Expm1Op>(b, x));
    return success();
  }
};

// max(x, 0) + softplus(-|x|), and with a term between them: (max(x, 0) - t) +
// softplus(-|x|). Its slope at 0 is that of softplus.
struct Softplus : OpRewritePattern<nn::AddOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::AddOp op,
                                PatternRewriter &rewriter) const override {
    recognise::Builder b(rewriter, op);
    for (auto [sum, tail] : {std::pair(op.getLhs(), op.getRhs()),
                             std::pair(op.getRhs(), op.getLhs())})
      if (Value result = joined(b, sum, tail)) {
        rewriter.replaceOp(op, result);
        return success();
      }
    return failure();
  }

  static Value joined(recognise::Builder &b, Value sum, Value tail) {
    // The ramp must be of the same x as the tail.
    auto isRamp = [&](Value value) {
      Value x = rectified(value);
      return x && isTail(tail, x);
    };
    auto softplus = [&](Value ramp) {
      return unary<nn::SoftplusOp>(b, rectified(ramp));
    };
    Type type = sum.getType();
    if (isRamp(sum))
      return softplus(sum);
    // A term that is subtracted or added between ramp and tail is moved behind
    // the softplus.
    if (auto sub = sum.getDefiningOp<nn::SubOp>())
      return isRamp(sub.getLhs())
                 ? Value(b.create<nn::SubOp>(type, softplus(sub.getLhs()),
                                             sub.getRhs()))
                 : Value();
    auto add = sum.getDefiningOp<nn::AddOp>();
    if (!add)
      return Value();
    for (auto [ramp, rest] : {std::pair(add.getLhs(), add.getRhs()),
                              std::pair(add.getRhs(), add.getLhs())})
      if (isRamp(ramp))
        return b.create<nn::AddOp>(type, softplus(ramp), rest);
    return Value();
  }
};

// min(x, 0) - softplus(-|x|), which is log(sigmoid(x)).
struct LogSigmoid : OpRewritePattern<nn::SubOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::SubOp op,
                                PatternRewriter &rewriter) const override {
    Value x = otherOperand<nn::MinimumOp>(
        op.getLhs(), [](Value v) { return isConstant(v, 0); });
    if (!x || !isTail(op.getRhs(), x))
      return failure();
    recognise::Builder b(rewriter, op);
    rewriter.replaceOp(op, Logarithm::minusSoftplus(b, unary<nn::NegOp>(b, x)));
    return success();
  }
};

} // namespace

void recognise::populateStableForms(RewritePatternSet &patterns) {
  patterns
      .add<Logarithm, Expm1<nn::SubOp>, Expm1<nn::AddOp>, Softplus, LogSigmoid>(
          patterns.getContext());
}
