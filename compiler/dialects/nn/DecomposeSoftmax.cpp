// Softmax and cross-entropy in primitives. The maximum is subtracted before the
// exponential; rows of -inf alone are left as NaN, as in PyTorch.
#include "compiler/dialects/nn/DecomposeBuilder.h"

using namespace mlir;
using namespace fsdpc::nn;

namespace {

struct RowExp {
  Value max, exps, sum; // R×1, R×C, R×1
};

RowExp rowExp(DecomposeBuilder &b, Value x) {
  int64_t axis = DecomposeBuilder::lastAxis(x);
  Value max = b.max(x, axis);
  Value exps = b.exp(b.sub(x, max));
  return {max, exps, b.sum(exps, axis)};
}

// What a row of cross-entropy counts: its target as a column, the row's weight
// (0 where ignored).
struct Targets {
  Value index, weight; // R×1, R×1 f32
};

Targets prepareTargets(DecomposeBuilder &b, Value logits, Value targets,
                       Value weights, std::optional<int64_t> ignoreIndex) {
  int64_t rows = shapeOf(logits)[0], classes = shapeOf(logits)[1];
  Value index = b.reshape(targets, {rows, 1});
  Value weight = b.constant(tensorType(logits).clone({rows, 1}), 1);
  if (weights) {
    Value table = b.broadcast(b.enter(weights), {rows, classes});
    weight = b.pick(table, index);
  }
  if (ignoreIndex) {
    Value ignored =
        b.compare(Predicate::eq, index, b.constant(index, *ignoreIndex));
    weight = b.select(ignored, b.constant(weight, 0), weight);
  }
  return {index, weight};
}

} // namespace

SmallVector<Value> SoftmaxOp::decompose(OpBuilder &builder) {
  DecomposeBuilder b(builder, getLoc());
  RowExp row = rowExp(b, b.enter(getInput()));
  Value inverse = b.div(b.constant(row.sum, 1), row.sum);
  return {b.leave(b.mul(row.exps, inverse), getType())};
}

SmallVector<Value> SoftmaxGradOp::decompose(OpBuilder &builder) {
  DecomposeBuilder b(builder, getLoc());
  Value y = b.enter(getOutput()), dy = b.enter(getGrad());
  Value dot = b.sum(b.mul(dy, y), DecomposeBuilder::lastAxis(y));
  return {b.leave(b.mul(y, b.sub(dy, dot)), getType())};
}

SmallVector<Value> LogSoftmaxOp::decompose(OpBuilder &builder) {
  DecomposeBuilder b(builder, getLoc());
  Value x = b.enter(getInput());
  RowExp row = rowExp(b, x);
  Value shifted = b.sub(x, row.max);
  return {b.leave(b.sub(shifted, b.log(row.sum)), getType())};
}

SmallVector<Value> CrossEntropyOp::decompose(OpBuilder &builder) {
  DecomposeBuilder b(builder, getLoc());
  Value logits = b.enter(getLogits());
  RowExp row = rowExp(b, logits);
  Value lse = b.add(row.max, b.log(row.sum));
  Targets targets =
      prepareTargets(b, logits, getTargets(), getWeights(), getIgnoreIndex());
  // A weight of 0 must hide a non-finite row too: select, not multiply.
  // Out of the logits as they are, which need not be widened for it.
  Value picked = b.enter(b.pick(getLogits(), targets.index));
  Value terms = b.mul(targets.weight, b.sub(lse, picked));
  Value zero = b.constant(terms, 0);
  Value counts = b.compare(Predicate::ne, targets.weight, zero);
  Value loss = b.sum(b.select(counts, terms, zero), {0});
  Value valid = b.sum(targets.weight, {0});
  if (getReduction() == Reduction::mean) {
    Value none = b.compare(Predicate::eq, valid, b.constant(valid, 0));
    loss = b.div(loss, b.select(none, b.constant(valid, 1), valid));
  }
  return {b.leave(loss, getLoss().getType()), b.leave(lse, getLse().getType()),
          b.leave(valid, getValid().getType())};
}

SmallVector<Value> CrossEntropyGradOp::decompose(OpBuilder &builder) {
  // (softmax - onehot) · weight · grad (/ valid for the mean)
  DecomposeBuilder b(builder, getLoc());
  Value logits = b.enter(getLogits());
  int64_t rows = shapeOf(logits)[0];
  Targets targets =
      prepareTargets(b, logits, getTargets(), getWeights(), getIgnoreIndex());
  Value grad = b.reshape(getGrad(), {1, 1});
  if (getReduction() == Reduction::mean) {
    Value valid = b.reshape(getValid(), {1, 1});
    Value none = b.compare(Predicate::eq, valid, b.constant(valid, 0));
    grad = b.div(grad, b.select(none, b.constant(valid, 1), valid));
  }
  Value factor = b.mul(targets.weight, grad);
  Value lse = b.reshape(getLse(), {rows, 1});
  Value probability = b.exp(b.sub(logits, lse));
  // 32 bits hold a column, and compare twice as many a vector.
  Type i32 = builder.getI32Type();
  Value column = b.iota(tensorType(logits).clone(i32), 1);
  Value isTarget = b.compare(Predicate::eq, column, b.cast(targets.index, i32));
  Value difference =
      b.sub(probability,
            b.select(isTarget, b.constant(logits, 1), b.constant(logits, 0)));
  Value product = b.mul(difference, factor);
  Value counts =
      b.compare(Predicate::ne, targets.weight, b.constant(targets.weight, 0));
  Value result = b.select(counts, product, b.constant(product, 0));
  return {b.leave(result, getType())};
}
