// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference of cross-entropy and its gradient. Ignored rows are skipped
// rather than multiplied by 0, as in the kernels: a row that is not finite must
// not spoil the loss if it does not count.
#include "compiler/dialects/nn/reference/Families.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace fsdpc::nn::reference {

/// Returns the element of a target, or NaN for a target that is not a class.
static double at(const double *values, int64_t classes, int64_t target) {
  return target >= 0 && target < classes
             ? values[target]
             : std::numeric_limits<double>::quiet_NaN();
}

/// Returns the weight of a row's target, or 0 if the row is ignored. NaN for a
/// target that is not a class, if there are weights.
template <typename LossOp>
static double weightOf(LossOp op, Inputs in, int64_t target) {
  if (op.getIgnoreIndexAttr() &&
      target == op.getIgnoreIndexAttr().getValue().getSExtValue())
    return 0;
  auto weights = optionalInput(in, op.getWeightsMutable());
  return weights ? at(weights->floats.data(), weights->size(), target) : 1;
}

// Results are loss, the log-sum-exp of each row, and the sum of the weights
// that count. Rows of weight 0 still have a log-sum-exp.
static void crossEntropy(CrossEntropyOp op, Inputs in, ReferenceTensors &out) {
  int64_t classes = in[0].shape[1];
  double &loss = out[0].floats[0], &valid = out[2].floats[0];
  for (int64_t r = 0; r < in[0].shape[0]; ++r) {
    const double *logits = &in[0].floats[r * classes];
    // The maximum is subtracted before the exponentials, so that none
    // overflows.
    double maximum = *std::max_element(logits, logits + classes), sum = 0;
    for (int64_t j = 0; j < classes; ++j)
      sum += std::exp(logits[j] - maximum);
    double lse = out[1].floats[r] = maximum + std::log(sum);
    int64_t target = in[1].ints[r];
    double weight = weightOf(op, in, target);
    if (weight == 0)
      continue;
    valid += weight;
    loss += weight * (lse - at(logits, classes, target));
  }
  // A mean over no row is 0.
  if (op.getReduction() == Reduction::mean && valid != 0)
    loss /= valid;
}

// Operands are grad, logits, targets, lse, valid and weights.
static void crossEntropyGrad(CrossEntropyGradOp op, Inputs in,
                             ReferenceTensors &outs) {
  ReferenceTensor &out = outs.front();
  int64_t classes = out.shape[1];
  double scale = in[0].floats[0], valid = in[4].floats[0];
  if (op.getReduction() == Reduction::mean)
    scale = valid == 0 ? 0 : scale / valid;
  for (int64_t r = 0; r < out.shape[0]; ++r) {
    int64_t target = in[2].ints[r];
    double weight = scale * weightOf(op, in, target);
    if (weight == 0)
      continue;
    for (int64_t j = 0; j < classes; ++j) {
      double softmax =
          std::exp(in[1].floats[r * classes + j] - in[3].floats[r]);
      out.floats[r * classes + j] = weight * (softmax - (j == target));
    }
  }
}

// Operands are logits, targets, weights and factors, the last three per row.
// The factor is the weight times what the caller multiplies each gradient by,
// so it is not applied to the loss.
static void crossEntropyRows(CrossEntropyRowsOp, Inputs in,
                             ReferenceTensors &out) {
  int64_t classes = in[0].shape[1];
  for (int64_t r = 0; r < in[0].shape[0]; ++r) {
    const double *logits = &in[0].floats[r * classes];
    double maximum = *std::max_element(logits, logits + classes), sum = 0;
    for (int64_t j = 0; j < classes; ++j)
      sum += std::exp(logits[j] - maximum);
    double weight = in[2].floats[r], factor = in[3].floats[r];
    int64_t target = in[1].ints[r];
    if (weight == 0)
      continue;
    out[0].floats[r] =
        weight * (maximum + std::log(sum) - at(logits, classes, target));
    for (int64_t j = 0; j < classes; ++j)
      out[1].floats[r * classes + j] =
          factor * (std::exp(logits[j] - maximum) / sum - (j == target));
  }
}

/// Computes the loss over all logits, then its gradients by the chain rule,
/// times the scale.
static void linearCrossEntropy(LinearCrossEntropyOp op, Inputs in,
                               ReferenceTensors &out) {
  const ReferenceTensor &x = in[0], &w = in[1];
  auto bias = optionalInput(in, op.getBiasMutable());
  auto scaleInput = optionalInput(in, op.getScaleMutable());
  double scale = scaleInput ? scaleInput->floats[0] : 1;
  const ReferenceTensor &targets =
      in[op.getTargetsMutable().getOperandNumber()];
  bool transposed = op.getTransposeWeight();
  int64_t rows = x.shape[0], depth = x.shape[1],
          classes = w.shape[transposed ? 0 : 1];
  // The position of weight (k, j) in memory, k along the depth and j along the
  // classes.
  auto weightAt = [&](int64_t k, int64_t j) {
    return transposed ? j * depth + k : k * classes + j;
  };
  // The divisor depends on all rows, so it comes before any gradient.
  double &loss = out[0].floats[0], &valid = out[1].floats[0];
  for (int64_t r = 0; r < rows; ++r)
    valid += weightOf(op, in, targets.ints[r]);
  double divisor =
      op.getReduction() == Reduction::mean && valid != 0 ? valid : 1;
  std::vector<double> logits(classes);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < classes; ++j) {
      logits[j] = bias ? bias->floats[j] : 0;
      for (int64_t k = 0; k < depth; ++k)
        logits[j] += x.floats[r * depth + k] * w.floats[weightAt(k, j)];
    }
    double maximum = *std::max_element(logits.begin(), logits.end()), sum = 0;
    for (double logit : logits)
      sum += std::exp(logit - maximum);
    int64_t target = targets.ints[r];
    // The weight of the row in the mean or sum; rows without weight add
    // nothing, even if they are not finite.
    double weight = weightOf(op, in, target) / divisor;
    if (weight == 0)
      continue;
    loss +=
        weight * (maximum + std::log(sum) - at(logits.data(), classes, target));
    for (int64_t j = 0; j < classes; ++j) {
      // The gradient of this logit, before the row's weight.
      double grad =
          scale * (std::exp(logits[j] - maximum) / sum - (j == target));
      for (int64_t k = 0; k < depth; ++k) {
        out[2].floats[r * depth + k] +=
            weight * grad * w.floats[weightAt(k, j)];
        out[3].floats[weightAt(k, j)] +=
            weight * grad * x.floats[r * depth + k];
      }
      if (bias)
        out[4].floats[j] += weight * grad;
    }
  }
}

void addLosses(ReferenceTable &table) {
  table.add<CrossEntropyOp>(crossEntropy);
  table.add<CrossEntropyGradOp>(crossEntropyGrad);
  table.add<CrossEntropyRowsOp>(crossEntropyRows);
  table.add<LinearCrossEntropyOp>(linearCrossEntropy);
}

} // namespace fsdpc::nn::reference
