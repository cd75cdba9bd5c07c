// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recognises the cross-entropy of a linear layer: a matmul, then a bias,
// reshapes, casts and slices of rows (labels shifted by one), then the loss.
// The fused op never holds all logits at once, which are the largest tensor of
// a language model. It applies only if nothing else reads the logits.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "passes/import/recognise/Match.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::passes::recognise;

namespace {

// The ops between a product and its loss, collected from the loss backwards.
struct Head {
  nn::MatmulOp product;
  // C elements of any shape, such as 1xC of BART's final_logits_bias, or null.
  Value bias;
  // Reshapes and slices of rows, the last one first.
  SmallVector<Operation *> rearranged;
};

// Returns the `classes` elements that `value` broadcasts along the last axis,
// or null. The broadcast tells a row from a column, so it decides before
// reshapes are looked through.
Value vectorOf(Value value, int64_t classes) {
  value = throughBroadcasts(value);
  ArrayRef<int64_t> shape = nn::shapeOf(value);
  bool isRow = !shape.empty() && shape.back() == classes &&
               nn::tensorType(value).getNumElements() == classes;
  return isRow ? throughReshapes(value) : Value();
}

// Returns true if the op only moves rows and leaves each intact. A reshape or
// slice that keeps the last axis whole can be applied to the rows of the
// product's input instead.
bool keepsRows(Operation *op, int64_t classes) {
  // Loads and constants have no operand.
  if (!isa<nn::SliceOp, nn::ReshapeOp>(op))
    return false;
  if (nn::shapeOf(op->getResult(0)).back() != classes ||
      nn::shapeOf(op->getOperand(0)).empty() ||
      nn::shapeOf(op->getOperand(0)).back() != classes)
    return false;
  if (auto slice = dyn_cast<nn::SliceOp>(op))
    return slice.getOffsets().back() == 0 && slice.getStrides().back() == 1;
  return true;
}

// Returns true for a cast to f32, in which the loss is computed anyway.
bool widens(Operation *op) {
  auto cast = dyn_cast<nn::CastOp>(op);
  if (!cast)
    return false;
  auto from =
      dyn_cast<FloatType>(nn::tensorType(cast.getInput()).getElementType());
  return from && cast.getType().getElementType().isF32() &&
         from.getWidth() < 32;
}

std::optional<Head> findHead(Value logits, int64_t classes) {
  Head head;
  // One chain: each op has one operand that leads on to the product.
  while (Operation *op = logits.getDefiningOp()) {
    // Another reader needs the logits in memory, and then nothing is saved.
    if (!logits.hasOneUse())
      return std::nullopt;
    if (keepsRows(op, classes)) {
      head.rearranged.push_back(op);
      logits = op->getOperand(0);
    } else if (widens(op)) {
      logits = op->getOperand(0);
    } else if (auto add = dyn_cast<nn::AddOp>(op); add && !head.bias) {
      // A second addition is not a bias. It takes the branch below and ends the
      // match, since it is not a product.
      Value left = vectorOf(add.getLhs(), classes);
      head.bias = left ? left : vectorOf(add.getRhs(), classes);
      if (!head.bias)
        return std::nullopt;
      logits = left ? add.getRhs() : add.getLhs();
    } else {
      head.product = dyn_cast<nn::MatmulOp>(op);
      break;
    }
  }
  nn::MatmulOp product = head.product;
  // One weight for all rows, and rows that the product keeps as they are.
  bool isLinear = product && !product.getAccumulator() &&
                  !product.getTransposeA() &&
                  nn::shapeOf(product.getRhs()).size() == 2 &&
                  nn::shapeOf(product.getLhs()).drop_back() ==
                      nn::shapeOf(product.getResult()).drop_back();
  return isLinear ? std::optional(head) : std::nullopt;
}

// Applies to the product's operand what was done to the rows of logits.
Value moveRows(recognise::Builder &b, Head &head) {
  Value rows = head.product.getLhs();
  int64_t depth = nn::shapeOf(rows).back();
  for (Operation *op : llvm::reverse(head.rearranged)) {
    SmallVector<int64_t> shape(nn::shapeOf(op->getResult(0)));
    shape.back() = depth;
    if (auto slice = dyn_cast<nn::SliceOp>(op))
      rows = b.create<nn::SliceOp>(nn::tensorType(rows).clone(shape), rows,
                                   slice.getOffsets(), slice.getStrides());
    else
      rows = b.reshape(rows, shape);
  }
  return rows;
}

struct LinearCrossEntropy : OpRewritePattern<nn::CrossEntropyOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::CrossEntropyOp op,
                                PatternRewriter &rewriter) const override {
    // The fused op has no such result.
    if (!op.getLse().use_empty())
      return failure();
    int64_t classes = nn::shapeOf(op.getLogits())[1];
    std::optional<Head> head = findHead(op.getLogits(), classes);
    if (!head)
      return failure();
    // The fused op belongs to the module of the product, whose weight it reads.
    recognise::Builder b(rewriter, head->product);
    Value input = moveRows(b, *head), weight = head->product.getRhs(),
          bias = head->bias;
    if (bias)
      bias = b.reshape(bias, classes);
    auto loss = b.create<nn::LinearCrossEntropyOp>(
        op.getLoss().getType(), op.getValid().getType(), input.getType(),
        weight.getType(), bias ? bias.getType() : Type(), input, weight, bias,
        op.getTargets(), op.getWeights(), /*scale=*/Value(),
        op.getReductionAttr(), op.getIgnoreIndexAttr(),
        head->product.getTransposeBAttr());
    // The head's ops lose their last reader and are removed later.
    op.getLoss().replaceAllUsesWith(loss.getLoss());
    op.getValid().replaceAllUsesWith(loss.getValid());
    rewriter.eraseOp(op);
    return success();
  }
};

} // namespace

void recognise::populateLinearCrossEntropy(RewritePatternSet &patterns) {
  patterns.add<LinearCrossEntropy>(patterns.getContext());
}
