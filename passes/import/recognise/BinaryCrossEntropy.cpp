// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gives binary cross-entropy of probabilities PyTorch's gradient. PyTorch
// differentiates the loss as one op, and exports it as logarithms that are
// clamped at -100. The adjoints of these divide 0 by 0 where a probability is 0
// or 1. The loss keeps its value, and its gradient is
// (p - t) / max(p · (1 - p), 1e-12).
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "passes/import/recognise/Match.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::passes::recognise;

// Returns x if the value is max(OpT(x), -100), else null.
template <typename OpT> static Value clampedLog(Value value) {
  Value log = otherOperand<nn::MaximumOp>(
      value, [](Value v) { return isSplat(v, -100); });
  auto op = log ? log.getDefiningOp<OpT>() : OpT();
  return op ? op.getInput() : Value();
}

// Returns p if the value is max(log(1 - p), -100), else null. The logarithm may
// be a log1p already.
static Value clampedComplement(Value value) {
  if (Value minus = clampedLog<nn::Log1pOp>(value)) {
    auto neg = minus.getDefiningOp<nn::NegOp>();
    return neg ? neg.getInput() : Value();
  }
  Value rest = clampedLog<nn::LogOp>(value);
  if (!rest)
    return Value();
  if (auto sub = rest.getDefiningOp<nn::SubOp>())
    return isSplat(sub.getLhs(), 1) ? sub.getRhs() : Value();
  Value minus =
      otherOperand<nn::AddOp>(rest, [](Value v) { return isSplat(v, 1); });
  auto neg = minus ? minus.getDefiningOp<nn::NegOp>() : nn::NegOp();
  return neg ? neg.getInput() : Value();
}

// Returns true if both are one value, or loads of one parameter.
static bool areSame(Value a, Value b) {
  auto one = a.getDefiningOp<fsdp::LoadOp>(),
       other = b.getDefiningOp<fsdp::LoadOp>();
  return a == b ||
         (one && other && one.getSymbolAttr() == other.getSymbolAttr());
}

namespace {

// A product with one clamped logarithm: the logarithm's p, and the other
// factor, which is the number where `factor` is null. A number folds away or
// into the sign, as labels of all zeros or ones do.
struct Term {
  Value p, factor;
  double number;
};

template <typename LogOf> std::optional<Term> termOf(Value value, LogOf logOf) {
  Product product = factorise(value);
  if (product.factors.empty() || product.factors.size() > 2)
    return std::nullopt;
  for (Value factor : product.factors)
    if (Value p = logOf(factor)) {
      Value other = product.factors.size() == 1
                        ? Value()
                        : product.factors[factor == product.factors[0]];
      return Term{p, other, product.number};
    }
  return std::nullopt;
}

// (t - 1) · max(log(1 - p), -100) - t · max(log(p), -100).
struct BinaryCrossEntropy : OpRewritePattern<nn::SubOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::SubOp op,
                                PatternRewriter &rewriter) const override {
    std::optional<Term> ofZero = termOf(op.getLhs(), clampedComplement),
                        ofOne = termOf(op.getRhs(), clampedLog<nn::LogOp>);
    // A sigmoid's logarithms have stable forms of their own.
    if (!ofZero || !ofOne || !areSame(ofZero->p, ofOne->p) ||
        isDone(ofZero->p) || ofZero->p.getDefiningOp<nn::SigmoidOp>())
      return failure();
    recognise::Builder b(rewriter, op);
    Type type = op.getType();
    Value target = targetOf(b, *ofZero, *ofOne, nn::tensorType(op));
    if (!target)
      return failure();
    Value p = ofZero->p;
    Value fixed = b.create<nn::StopGradientOp>(type, p);
    Value slope =
        b.create<nn::StopGradientOp>(type, slopeAt(b, fixed, target, type));
    Value loss = lossAt(b, fixed, target, type);
    // 0, with the gradient `slope`.
    Value change =
        b.create<nn::MulOp>(type, b.create<nn::SubOp>(type, p, fixed), slope);
    rewriter.replaceOp(op, b.create<nn::AddOp>(type, loss, change));
    return success();
  }

  // Returns t, of the loss's shape, if the factors are t - 1 and t; else null.
  static Value targetOf(recognise::Builder &b, const Term &ofZero,
                        const Term &ofOne, RankedTensorType type) {
    if (!ofZero.factor && !ofOne.factor &&
        isNear(ofZero.number, ofOne.number - 1))
      return splat(b, type, ofOne.number);
    if (!ofZero.factor || !ofOne.factor || ofZero.number != 1 ||
        ofOne.number != 1)
      return nullptr;
    auto before = throughBroadcasts(ofZero.factor).getDefiningOp<nn::SubOp>();
    Value target = throughBroadcasts(ofOne.factor);
    if (!before || !isSplat(before.getRhs(), 1) ||
        throughBroadcasts(before.getLhs()) != target)
      return nullptr;
    return ofOne.factor;
  }

  // The loss that this pattern builds has its own form.
  static bool isDone(Value p) {
    return bool(p.getDefiningOp<nn::StopGradientOp>());
  }

  static Value splat(recognise::Builder &b, Type type, double value) {
    return nn::splat(b.rewriter, b.root->getLoc(), type, value);
  }

  static Value slopeAt(recognise::Builder &b, Value p, Value t, Type type) {
    Value rest = b.create<nn::SubOp>(type, splat(b, type, 1), p);
    Value spread = b.create<nn::MaximumOp>(
        type, b.create<nn::MulOp>(type, p, rest), splat(b, type, 1e-12));
    return b.create<nn::DivOp>(type, b.create<nn::SubOp>(type, p, t), spread);
  }

  // The loss as it was written, of another p.
  static Value lossAt(recognise::Builder &b, Value p, Value t, Type type) {
    Value least = splat(b, type, -100);
    auto clamped = [&](Value log) {
      return b.create<nn::MaximumOp>(type, log, least);
    };
    Value ofZero = clamped(
              b.create<nn::Log1pOp>(type, b.create<nn::NegOp>(type, p))),
          ofOne = clamped(b.create<nn::LogOp>(type, p));
    Value before = b.create<nn::SubOp>(type, t, splat(b, type, 1));
    return b.create<nn::SubOp>(type, b.create<nn::MulOp>(type, before, ofZero),
                               b.create<nn::MulOp>(type, t, ofOne));
  }
};

} // namespace

void recognise::populateBinaryCrossEntropy(RewritePatternSet &patterns) {
  patterns.add<BinaryCrossEntropy>(patterns.getContext());
}
