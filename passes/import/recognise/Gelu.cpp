// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recognises GELU in both forms, with the error function and with tanh
// (Hendrycks and Gimpel, 2016), in whatever order its factors are multiplied.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "passes/import/recognise/Match.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::passes::recognise;

// Matches x·x·x and pow(x, 3).
static bool isCube(const Product &product, Value x) {
  auto isX = [&](Value factor) { return factor == x; };
  if (product.factors.size() == 3)
    return llvm::all_of(product.factors, isX);
  if (product.factors.size() != 1)
    return false;
  auto power = product.factors[0].getDefiningOp<nn::PowOp>();
  return power && power.getLhs() == x && isSplat(power.getRhs(), 3);
}

// Matches √(2/π) · (x + 0.044715 · x³) or √(2/π) · x · (1 + 0.044715 · x²).
static bool isTanhArgument(Value value, Value x) {
  Product product = factorise(value);
  if (!isNear(product.number, std::sqrt(2 / M_PI)))
    return false;
  auto isCoefficient = [](const Product &term) {
    return isNear(term.number, 0.044715);
  };
  // x + 0.044715 · x³: the sum is one factor.
  if (product.factors.size() == 1) {
    Value cubic = otherOperand<nn::AddOp>(
        product.factors[0], [&](Value operand) { return operand == x; });
    if (!cubic)
      return false;
    Product term = factorise(cubic);
    return isCoefficient(term) && isCube(term, x);
  }
  // x · (1 + 0.044715 · x²): two factors, in either order.
  if (product.factors.size() != 2)
    return false;
  // The index is a truth value: it picks the factor that is not x.
  Value sum = product.factors[product.factors[0] == x];
  Value square =
      otherOperand<nn::AddOp>(sum, [](Value v) { return isSplat(v, 1); });
  if (!square || product.factors[product.factors[0] != x] != x)
    return false;
  Product term = factorise(square);
  return isCoefficient(term) && term.factors.size() == 2 &&
         term.factors[0] == x && term.factors[1] == x;
}

namespace {
struct Gelu : OpRewritePattern<nn::MulOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::MulOp op,
                                PatternRewriter &rewriter) const override {
    // 0.5 · x · (1 + gate(x)), as one flat product.
    Product product = factorise(op);
    if (product.factors.size() != 2 || !isNear(product.number, 0.5))
      return failure();
    // Either factor may be x.
    for (int i : {0, 1}) {
      Value x = product.factors[i];
      Value gate = otherOperand<nn::AddOp>(
          product.factors[1 - i], [](Value v) { return isSplat(v, 1); });
      if (!gate)
        continue;
      std::optional<nn::GeluForm> form;
      if (auto erf = gate.getDefiningOp<nn::ErfOp>()) {
        // x / sqrt(2), however it is written.
        double factor = 1;
        if (throughScaling(erf.getInput(), factor) == x &&
            isNear(factor, M_SQRT1_2))
          form = nn::GeluForm::erf;
      } else if (auto tanh = gate.getDefiningOp<nn::TanhOp>()) {
        if (isTanhArgument(tanh.getInput(), x))
          form = nn::GeluForm::tanh;
      }
      if (!form)
        continue;
      recognise::Builder b(rewriter, op);
      rewriter.replaceOp(op, b.create<nn::GeluOp>(op.getType(), x, *form));
      return success();
    }
    return failure();
  }
};
} // namespace

void recognise::populateGelu(RewritePatternSet &patterns) {
  patterns.add<Gelu>(patterns.getContext());
}
