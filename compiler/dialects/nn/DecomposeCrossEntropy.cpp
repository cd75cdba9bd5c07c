// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decomposes cross-entropy into primitives. An ignored row has weight 0 and is
// removed by a select, not by the multiplication: 0 · NaN would let an ignored
// row that is not finite spoil the loss.
#include "compiler/dialects/nn/DecomposeRows.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LossOps.h"

using namespace mlir;
using namespace fsdpc::nn;

// Ignored rows have targets such as -100, for which the table of class weights
// has no entry. Reading it gives NaN, which the select then replaces by 0.
TargetRows fsdpc::nn::targetRows(DecomposeBuilder &b, RankedTensorType logits,
                                 Value targets, Value weights,
                                 std::optional<int64_t> ignoreIndex) {
  int64_t rows = logits.getDimSize(0), classes = logits.getDimSize(1);
  Value index = b.reshape(targets, {rows, 1});
  Value weight = b.constant(logits.clone({rows, 1}), 1);
  if (weights) {
    Value table = b.broadcast(b.enter(weights), {rows, classes});
    weight = b.takeAlongAxis(table, index);
  }
  if (ignoreIndex) {
    Value ignored =
        b.compare(Predicate::eq, index, b.constant(index, *ignoreIndex));
    weight = b.select(ignored, b.constant(weight, 0), weight);
  }
  return {index, weight};
}

// Returns the value of rows that count, and 0 for the others. The comparison is
// true for a weight of NaN, so a target outside of the classes spoils the loss
// visibly instead of being skipped.
static Value counted(DecomposeBuilder &b, const TargetRows &targets,
                     Value value) {
  Value counts =
      b.compare(Predicate::ne, targets.weight, b.constant(targets.weight, 0));
  return b.select(counts, value, b.constant(value, 0));
}

// weight · (lse - logits[target]) for each row, R×1, as log Σ exp(x - max) -
// (logits[target] - max): next to a large maximum the lse has few digits left.
// The target is picked from the logits in their own type, so that they need not
// be widened for it.
static Value rowLosses(DecomposeBuilder &b, Value logits, Value max,
                       Value logSum, const TargetRows &targets) {
  Value target = b.enter(b.takeAlongAxis(logits, targets.index));
  Value loss = b.sub(logSum, b.sub(target, max));
  return counted(b, targets, b.mul(targets.weight, loss));
}

// (probability - onehot) · factor, R×C.
static Value rowGradients(DecomposeBuilder &b, Value probability, Value factor,
                          const TargetRows &targets) {
  // 32 bits suffice for a column, and a vector compares twice as many of them.
  Type i32 = IntegerType::get(probability.getContext(), 32);
  Value column = b.iota(tensorType(probability).clone(i32), 1);
  Value isTarget = b.compare(Predicate::eq, column, b.cast(targets.index, i32));
  Value onehot = b.select(isTarget, b.constant(probability, 1),
                          b.constant(probability, 0));
  return counted(b, targets, b.mul(b.sub(probability, onehot), factor));
}

// If all rows are ignored, the sum of the losses is 0, and a divisor of 1 gives
// a loss of 0 where PyTorch gives NaN.
Value fsdpc::nn::divisorOf(DecomposeBuilder &b, Reduction reduction,
                           Value valid) {
  if (reduction == Reduction::sum)
    return b.constant(valid, 1);
  Value none = b.compare(Predicate::eq, valid, b.constant(valid, 0));
  return b.select(none, b.constant(valid, 1), valid);
}

// lse = max + log Σ exp(x - max) for each row; the gradient op reads it, so
// that it needs no reduction of its own.
SmallVector<Value> CrossEntropyOp::decompose(OpBuilder &builder) {
  DecomposeBuilder b(builder, getLoc());
  // Statistics and gradients are of the widened logits; only the target's logit
  // is read in the logits' own type.
  Value logits = b.enter(getLogits());
  RowExp row = rowExp(b, logits);
  Value logSum = b.log(row.sum), lse = b.add(row.max, logSum);
  TargetRows targets = targetRows(b, tensorType(logits), getTargets(),
                                  getWeights(), getIgnoreIndex());
  Value loss = b.sum(rowLosses(b, getLogits(), row.max, logSum, targets), {0});
  Value valid = b.sum(targets.weight, {0});
  loss = b.div(loss, divisorOf(b, getReduction(), valid));
  return {b.leave(loss, getLoss().getType()), b.leave(lse, getLse().getType()),
          b.leave(valid, getValid().getType())};
}

SmallVector<Value> CrossEntropyGradOp::decompose(OpBuilder &builder) {
  // (softmax - onehot) · weight · grad (/ valid for the mean)
  DecomposeBuilder b(builder, getLoc());
  Value logits = b.enter(getLogits());
  TargetRows targets = targetRows(b, tensorType(logits), getTargets(),
                                  getWeights(), getIgnoreIndex());
  Value grad =
      b.div(b.reshape(getGrad(), {1, 1}),
            divisorOf(b, getReduction(), b.reshape(getValid(), {1, 1})));
  Value lse = b.reshape(getLse(), {shapeOf(logits)[0], 1});
  Value probability = b.exp(b.sub(logits, lse));
  Value result =
      rowGradients(b, probability, b.mul(targets.weight, grad), targets);
  return {b.leave(result, getType())};
}

// Loss and gradient of a block of rows in one kernel, while their logits are at
// hand. Weights and factors come from the caller, since the divisor depends on
// all blocks.
SmallVector<Value> CrossEntropyRowsOp::decompose(OpBuilder &builder) {
  DecomposeBuilder b(builder, getLoc());
  Value logits = b.enter(getLogits());
  int64_t rows = shapeOf(logits)[0];
  TargetRows targets{b.reshape(getTargets(), {rows, 1}),
                     b.reshape(getWeights(), {rows, 1})};
  RowExp row = rowExp(b, logits);
  Value losses = rowLosses(b, getLogits(), row.max, b.log(row.sum), targets);
  // One division per row, and a multiplication per element.
  Value inverse = b.div(b.constant(row.sum, 1), row.sum);
  Value factor = b.reshape(getFactors(), {rows, 1});
  Value gradient = rowGradients(b, b.mul(row.exps, inverse), factor, targets);
  return {b.leave(losses, getLosses().getType()),
          b.leave(gradient, getDlogits().getType())};
}
