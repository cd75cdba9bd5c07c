// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recognises RMSNorm (Zhang and Sennrich, 2019) and LayerNorm (Ba et al.,
// 2016). A value divided by its root mean square is an RMSNorm, and if the
// value is centred it is a LayerNorm. Further patterns then absorb the weight
// and the bias, one at a time.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/NormOps.h"
#include "passes/import/recognise/Match.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::passes::recognise;

// Matches x · x and pow(x, 2). The same x: a product of two equal values that
// are computed twice does not match.
static bool isSquareOf(Value square, Value x) {
  if (auto mul = square.getDefiningOp<nn::MulOp>())
    return mul.getLhs() == x && mul.getRhs() == x;
  auto power = square.getDefiningOp<nn::PowOp>();
  return power && power.getLhs() == x && isSplat(power.getRhs(), 2);
}

// Returns epsilon if `value` is mean(x²) + epsilon.
static std::optional<double> meanSquareEpsilon(Value value, Value x) {
  auto add = value.getDefiningOp<nn::AddOp>();
  if (!add)
    return std::nullopt;
  // Addition commutes, and epsilon must be a constant.
  for (auto [mean, epsilon] : {std::pair(add.getLhs(), add.getRhs()),
                               std::pair(add.getRhs(), add.getLhs())}) {
    std::optional<double> number = nn::matchSplat(epsilon);
    Value square = number ? meanOfLastAxis(mean) : Value();
    if (square && isSquareOf(square, x))
      return number;
  }
  return std::nullopt;
}

// Returns epsilon if `scale` is 1 / sqrt(mean(x²) + epsilon), broadcast to x.
// rsqrt, or a quotient that the exporter did not fold.
static std::optional<double> rstdEpsilon(Value scale, Value x) {
  scale = throughBroadcasts(scale);
  if (auto rsqrt = scale.getDefiningOp<nn::RsqrtOp>())
    return meanSquareEpsilon(rsqrt.getInput(), x);
  auto div = scale.getDefiningOp<nn::DivOp>();
  if (!div || !isSplat(div.getLhs(), 1))
    return std::nullopt;
  auto root = div.getRhs().getDefiningOp<nn::SqrtOp>();
  return root ? meanSquareEpsilon(root.getInput(), x) : std::nullopt;
}

// Builds a LayerNorm if x is centred by its own mean, else an RMSNorm. The new
// op reads the value before it was centred, and the subtraction may be left
// without users.
static void replaceByNorm(PatternRewriter &rewriter, Operation *op, Value x,
                          double epsilon) {
  recognise::Builder b(rewriter, op);
  auto type = nn::tensorType(x);
  RankedTensorType statistics = b.statistics(type.getShape().drop_back());
  FloatAttr attribute = rewriter.getF64FloatAttr(epsilon);
  // The mean must be that of the value that it is subtracted from.
  if (auto centred = x.getDefiningOp<nn::SubOp>())
    if (Value mean = meanOfLastAxis(throughBroadcasts(centred.getRhs()));
        mean && mean == centred.getLhs()) {
      auto norm =
          b.create<nn::LayerNormOp>(TypeRange{type, statistics, statistics},
                                    mean, Value(), Value(), attribute);
      rewriter.replaceOp(op, norm.getResult());
      return;
    }
  auto norm = b.create<nn::RmsNormOp>(TypeRange{type, statistics}, x, Value(),
                                      attribute);
  rewriter.replaceOp(op, norm.getResult());
}

// Returns the vector if `value` has one number per position of the last axis of
// `type`.
static std::optional<Value> perChannel(Value value, RankedTensorType type) {
  Value small = throughBroadcasts(value);
  ArrayRef<int64_t> shape = nn::shapeOf(small);
  bool fits = !shape.empty() && shape.back() == type.getShape().back() &&
              nn::tensorType(small).getNumElements() == shape.back();
  return fits ? std::optional(small) : std::nullopt;
}

namespace {

// x · rsqrt(mean(x²) + ε).
struct Multiplied : OpRewritePattern<nn::MulOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::MulOp op,
                                PatternRewriter &rewriter) const override {
    for (auto [x, scale] : {std::pair(op.getLhs(), op.getRhs()),
                            std::pair(op.getRhs(), op.getLhs())})
      if (std::optional<double> epsilon = rstdEpsilon(scale, x)) {
        replaceByNorm(rewriter, op, x, *epsilon);
        return success();
      }
    return failure();
  }
};

// x / sqrt(mean(x²) + ε).
struct Divided : OpRewritePattern<nn::DivOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::DivOp op,
                                PatternRewriter &rewriter) const override {
    auto root = throughBroadcasts(op.getRhs()).getDefiningOp<nn::SqrtOp>();
    auto epsilon =
        root ? meanSquareEpsilon(root.getInput(), op.getLhs()) : std::nullopt;
    if (!epsilon)
      return failure();
    replaceByNorm(rewriter, op, op.getLhs(), *epsilon);
    return success();
  }
};

// norm(x) · weight. Only a norm without a weight takes one, and only before its
// bias: (norm + bias) · weight is another function.
template <typename NormOp> struct AbsorbWeight : OpRewritePattern<nn::MulOp> {
  using OpRewritePattern<nn::MulOp>::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::MulOp op,
                                PatternRewriter &rewriter) const override {
    for (auto [value, scale] : {std::pair(op.getLhs(), op.getRhs()),
                                std::pair(op.getRhs(), op.getLhs())}) {
      auto norm = value.template getDefiningOp<NormOp>();
      auto weight = perChannel(scale, op.getType());
      // The weight has one number per channel. The unweighted norm must not
      // have other readers.
      if (!norm || !weight || norm.getWeight() || !value.hasOneUse() ||
          hasBias(norm))
        continue;
      // The weight may be computed after the norm, so the new op goes where the
      // product is.
      recognise::Builder b(rewriter, op);
      Value shaped = b.reshape(*weight, {op.getType().getShape().back()});
      Operation *weighted = build(b, norm, shaped);
      rewriter.replaceOp(op, weighted->getResult(0));
      return success();
    }
    return failure();
  }

  static bool hasBias(nn::LayerNormOp norm) { return bool(norm.getBias()); }
  static bool hasBias(nn::RmsNormOp) { return false; }
  static Operation *build(recognise::Builder &b, nn::LayerNormOp norm,
                          Value weight) {
    return b.create<nn::LayerNormOp>(norm->getResultTypes(), norm.getInput(),
                                     weight, Value(), norm.getEpsilonAttr());
  }
  static Operation *build(recognise::Builder &b, nn::RmsNormOp norm,
                          Value weight) {
    return b.create<nn::RmsNormOp>(norm->getResultTypes(), norm.getInput(),
                                   weight, norm.getEpsilonAttr());
  }
};

// Matches norm(x) · weight + bias. The bias follows the weight, so a norm
// without a weight cannot have a bias.
struct AbsorbBias : OpRewritePattern<nn::AddOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::AddOp op,
                                PatternRewriter &rewriter) const override {
    for (auto [value, shift] : {std::pair(op.getLhs(), op.getRhs()),
                                std::pair(op.getRhs(), op.getLhs())}) {
      auto norm = value.getDefiningOp<nn::LayerNormOp>();
      auto bias = perChannel(shift, op.getType());
      if (!norm || !bias || norm.getBias() || !norm.getWeight() ||
          !value.hasOneUse())
        continue;
      recognise::Builder b(rewriter, op);
      Value shaped = b.reshape(*bias, {op.getType().getShape().back()});
      auto shifted = b.create<nn::LayerNormOp>(
          norm->getResultTypes(), norm.getInput(), norm.getWeight(), shaped,
          norm.getEpsilonAttr());
      rewriter.replaceOp(op, shifted.getResult());
      return success();
    }
    return failure();
  }
};

} // namespace

void recognise::populateNorms(RewritePatternSet &patterns) {
  patterns.add<Multiplied, Divided, AbsorbWeight<nn::LayerNormOp>,
               AbsorbWeight<nn::RmsNormOp>, AbsorbBias>(patterns.getContext());
}
