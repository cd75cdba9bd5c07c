// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recognises cross-entropy written with a gather: the sum of
// -log_softmax(x)[target] over rows.
#include "compiler/dialects/nn/CompositeOps.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "passes/import/recognise/Match.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::passes::recognise;

// Returns true for an input of the program, or one whose elements were only
// moved. Data names classes from 0 on; another target gives a loss of NaN. Only
// of integer type, so nothing is rounded on the way.
static bool isInput(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<nn::ReshapeOp, nn::SliceOp, nn::TransposeOp, nn::CastOp>(op) ||
        !isa<IntegerType>(nn::tensorType(op->getOperand(0)).getElementType()))
      return false;
    value = op->getOperand(0);
  }
  return true;
}

// Returns the targets without the code that wraps negative indices, if they
// cannot be negative. The code is select(i < 0, i + n, i).
static Value throughWrap(Value index) {
  auto select = index.getDefiningOp<nn::SelectOp>();
  auto isNegative =
      select ? select.getCondition().getDefiningOp<nn::CmpOp>() : nullptr;
  bool isWrap = isNegative && isNegative.getPredicate() == nn::Predicate::lt &&
                isNegative.getLhs() == select.getOnFalse() &&
                nn::matchSplat(isNegative.getRhs()) == 0.0 &&
                isInput(select.getOnFalse());
  return isWrap ? select.getOnFalse() : index;
}

namespace {
struct CrossEntropy : OpRewritePattern<nn::ReduceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::ReduceOp op,
                                PatternRewriter &rewriter) const override {
    // The mean is a scale of the sum, which stays behind.
    if (op.getKind() != nn::ReduceKind::sum ||
        op.getType().getNumElements() != 1)
      return failure();
    bool negated = false;
    Value value = throughReshapes(op.getInput());
    // The negation may stand on either side of reshapes, and twice.
    while (auto neg = value.getDefiningOp<nn::NegOp>()) {
      negated = !negated;
      value = throughReshapes(neg.getInput());
    }
    auto take = value.getDefiningOp<nn::TakeAlongAxisOp>();
    auto softmax =
        take
            ? throughReshapes(take.getInput()).getDefiningOp<nn::LogSoftmaxOp>()
            : nullptr;
    if (!softmax)
      return failure();
    Value logits = softmax.getInput();
    int64_t classes = nn::shapeOf(logits).back();
    // Reshapes between the softmax and the gather may move rows, but must leave
    // the classes together.
    if (nn::shapeOf(take.getInput()).back() != classes)
      return failure();
    // The rows of the softmax become one axis, so that the loss has the form
    // rows × classes.
    int64_t rows = nn::tensorType(logits).getNumElements() / classes;
    recognise::Builder b(rewriter, op);
    auto scalar = b.statistics({});
    auto loss = b.create<nn::CrossEntropyOp>(
        TypeRange{scalar, b.statistics({rows}), scalar},
        b.reshape(logits, {rows, classes}),
        b.reshape(throughWrap(take.getIndex()), {rows}), Value(),
        nn::Reduction::sum, IntegerAttr());
    // The op computes the negated sum; a sum without negation is negated back.
    Value result = b.reshape(loss.getLoss(), op.getType().getShape());
    if (!negated)
      result = b.create<nn::NegOp>(result.getType(), result);
    rewriter.replaceOp(op, result);
    return success();
  }
};
} // namespace

void recognise::populateCrossEntropy(RewritePatternSet &patterns) {
  patterns.add<CrossEntropy>(patterns.getContext());
}
