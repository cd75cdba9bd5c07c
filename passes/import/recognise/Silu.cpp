// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recognises SiLU: x · sigmoid(x).
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "passes/import/recognise/Match.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::passes::recognise;

namespace {
struct Silu : OpRewritePattern<nn::MulOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::MulOp op,
                                PatternRewriter &rewriter) const override {
    auto isSigmoidOf = [](Value gate, Value x) {
      auto sigmoid = gate.getDefiningOp<nn::SigmoidOp>();
      return sigmoid && sigmoid.getInput() == x;
    };
    Value x = isSigmoidOf(op.getRhs(), op.getLhs())   ? op.getLhs()
              : isSigmoidOf(op.getLhs(), op.getRhs()) ? op.getRhs()
                                                      : Value();
    if (!x)
      return failure();
    recognise::Builder b(rewriter, op);
    rewriter.replaceOp(op, b.create<nn::SiluOp>(op.getType(), x));
    return success();
  }
};
} // namespace

void recognise::populateSilu(RewritePatternSet &patterns) {
  patterns.add<Silu>(patterns.getContext());
}
