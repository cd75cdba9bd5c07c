// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The verifiers of softmax, norms, attention and losses, and of their
// gradients. They check shapes and element types; what each op requires is
// listed under Constraints in NNComposite.td. A gradient op obeys the rules of
// its forward op, since a dump may hold either after an edit.
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/CompositeOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/NormOps.h"

using namespace mlir;
using namespace fsdpc::nn;

/// Checks that statistics have the expected shape, and are f32, or f64 for f64
/// tensors.
static LogicalResult verifyStatistic(Operation *op, StringRef name,
                                     Value statistic, Value input,
                                     ArrayRef<int64_t> shape) {
  Type element = tensorType(input).getElementType();
  if (!element.isF64())
    element = Float32Type::get(op->getContext());
  auto expected = RankedTensorType::get(shape, element);
  if (statistic.getType() != expected)
    return op->emitOpError(name)
           << " must be " << expected << ", not " << statistic.getType();
  return success();
}

// Checks that an optional weight or bias is a vector of the given size.
static LogicalResult verifyVector(Operation *op, StringRef name, Value vector,
                                  int64_t length) {
  if (vector && shapeOf(vector) != ArrayRef<int64_t>{length})
    return op->emitOpError(name) << " must be a vector of " << length
                                 << " elements, not " << vector.getType();
  return success();
}

// Checks that a value has the type of another one, which `like` names in the
// genitive.
static LogicalResult verifySameType(Operation *op, StringRef name, Value value,
                                    StringRef like, Value other) {
  if (value.getType() != other.getType())
    return op->emitOpError(name) << " " << value.getType() << " must have the "
                                 << like << " type " << other.getType();
  return success();
}

// A scalar has no rows; every other shape has rows of its last axis.
static LogicalResult verifyRows(Operation *op, Value input) {
  if (shapeOf(input).empty())
    return op->emitOpError("input must have an axis to normalise");
  return success();
}

// ODS requires all operands and results of softmax and its gradient to have one
// type.
LogicalResult SoftmaxOp::verify() { return verifyRows(*this, getInput()); }
LogicalResult SoftmaxGradOp::verify() { return verifyRows(*this, getOutput()); }
LogicalResult LogSoftmaxOp::verify() { return verifyRows(*this, getInput()); }

// Checks what layer_norm, rms_norm and their gradients share: they normalise
// rows of the last axis, with one statistic per row.
static LogicalResult verifyNorm(Operation *op, Value input, Value weight,
                                Value bias, ValueRange statistics) {
  if (failed(verifyRows(op, input)))
    return failure();
  ArrayRef<int64_t> shape = shapeOf(input);
  if (failed(verifyVector(op, "weight", weight, shape.back())) ||
      failed(verifyVector(op, "bias", bias, shape.back())))
    return failure();
  for (Value statistic : statistics)
    if (failed(verifyStatistic(op, "statistic", statistic, input,
                               shape.drop_back())))
      return failure();
  return success();
}

LogicalResult LayerNormOp::verify() {
  if (getBias() && !getWeight())
    return emitOpError("has a bias but no weight");
  if (failed(
          verifySameType(*this, "result", getResult(), "input's", getInput())))
    return failure();
  return verifyNorm(*this, getInput(), getWeight(), getBias(),
                    {getMean(), getRstd()});
}

LogicalResult LayerNormGradOp::verify() {
  if (failed(
          verifySameType(*this, "result", getResult(), "input's", getInput())))
    return failure();
  return verifyNorm(*this, getInput(), getWeight(), nullptr,
                    {getMean(), getRstd()});
}

LogicalResult RmsNormOp::verify() {
  if (failed(
          verifySameType(*this, "result", getResult(), "input's", getInput())))
    return failure();
  return verifyNorm(*this, getInput(), getWeight(), nullptr, {getRstd()});
}

LogicalResult RmsNormGradOp::verify() {
  if (failed(
          verifySameType(*this, "result", getResult(), "input's", getInput())))
    return failure();
  return verifyNorm(*this, getInput(), getWeight(), nullptr, {getRstd()});
}

// The result is the gradient of the weight, so it is checked as the weight.
LogicalResult NormWeightGradOp::verify() {
  SmallVector<Value> statistics = {getRstd()};
  if (getMean())
    statistics.push_back(getMean());
  if (failed(verifyNorm(*this, getInput(), nullptr, nullptr, statistics)))
    return failure();
  return verifyVector(*this, "result", getResult(), shapeOf(getInput()).back());
}

// Checks what batch_norm and its gradient share. The bias needs no check: ODS
// requires it to have the weight's type.
static LogicalResult verifyBatchNorm(Operation *op, Value input, Value weight,
                                     Value mean, Value variance) {
  ArrayRef<int64_t> shape = shapeOf(input);
  if (shape.size() < 2)
    return op->emitOpError("input must have channels on axis 1, but has type ")
           << input.getType();
  if (failed(verifyVector(op, "weight", weight, shape[1])) ||
      failed(verifyStatistic(op, "mean", mean, input, shape[1])))
    return failure();
  return verifyStatistic(op, "variance", variance, input, shape[1]);
}

LogicalResult BatchNormOp::verify() {
  if (failed(
          verifySameType(*this, "result", getResult(), "input's", getInput())))
    return failure();
  return verifyBatchNorm(*this, getInput(), getWeight(), getMean(),
                         getVariance());
}

LogicalResult BatchNormGradOp::verify() {
  if (failed(verifySameType(*this, "dinput", getDinput(), "input's",
                            getInput())) ||
      failed(verifySameType(*this, "dweight", getDweight(), "weight's",
                            getWeight())) ||
      failed(
          verifySameType(*this, "dbias", getDbias(), "weight's", getWeight())))
    return failure();
  return verifyBatchNorm(*this, getInput(), getWeight(), getMean(),
                         getVariance());
}

// The tables must have the input's rank, so that index arithmetic needs no
// alignment of ranks. They often are 1 in the batch and in the heads.
LogicalResult RotaryOp::verify() {
  ArrayRef<int64_t> shape = shapeOf(getInput());
  if (shape.empty() || shape.back() % 2)
    return emitOpError("last dimension must be even to be split in halves, but "
                       "the input has type ")
           << getInput().getType();
  for (Value table : {getCos(), getSin()})
    if (shapeOf(table).size() != shape.size() ||
        !broadcastsTo(shapeOf(table), shape))
      return emitOpError("cos and sin must have the input's rank, and each "
                         "dimension must be 1 or the input's, but the type is ")
             << table.getType();
  return success();
}

// Query heads must be a multiple of key heads (grouped heads), and the mask
// must broadcast to the scores.
template <typename AttentionLike>
static LogicalResult verifyAttention(AttentionLike op, Value output) {
  ArrayRef<int64_t> query = shapeOf(op.getQuery()), key = shapeOf(op.getKey()),
                    value = shapeOf(op.getValue());
  if (query.size() != 4 || key.size() != 4 || value.size() != 4)
    return op.emitOpError("query, key and value must have rank 4");
  // Query is B×H×T×d, key B×G×S×d and value B×G×S×e.
  int64_t batch = query[0], heads = query[1], rows = query[2];
  // Grouped heads: the heads of key and value, each shared by consecutive query
  // heads.
  int64_t groups = key[1], keys = key[2];
  if (key[0] != batch || value[0] != batch || value[1] != groups ||
      value[2] != keys || key[3] != query[3])
    return op.emitOpError("query ")
           << op.getQuery().getType() << ", key " << op.getKey().getType()
           << " and value " << op.getValue().getType()
           << " have incompatible shapes";
  if (groups == 0 || heads % groups)
    return op.emitOpError("query heads, ")
           << heads << ", must be a multiple of the key heads, " << groups;
  if (shapeOf(output) != ArrayRef<int64_t>{batch, heads, rows, value[3]})
    return op.emitOpError("result must have the shape ")
           << batch << "x" << heads << "x" << rows << "x" << value[3]
           << ", but has type " << output.getType();
  // Float masks are added to the scores, masks of i1 choose keys.
  if (Value mask = op.getMask()) {
    ArrayRef<int64_t> shape = shapeOf(mask);
    if (shape.size() != 4 || !broadcastsTo(shape, {batch, heads, rows, keys}))
      return op.emitOpError("mask ")
             << mask.getType() << " does not broadcast to " << batch << "x"
             << heads << "x" << rows << "x" << keys;
    Type element = tensorType(mask).getElementType();
    if (!element.isInteger(1) && !isa<FloatType>(element))
      return op.emitOpError("mask must be i1 or a float, not ") << element;
  }
  return verifyStatistic(op, "lse", op.getLse(), op.getQuery(),
                         {batch, heads, rows});
}

LogicalResult AttentionOp::verify() {
  return verifyAttention(*this, getResult());
}

// The gradients have the types of what they are gradients of.
LogicalResult AttentionGradOp::verify() {
  if (failed(
          verifySameType(*this, "grad", getGrad(), "output's", getOutput())) ||
      failed(verifySameType(*this, "dquery", getDquery(), "query's",
                            getQuery())) ||
      failed(verifySameType(*this, "dkey", getDkey(), "key's", getKey())) ||
      failed(
          verifySameType(*this, "dvalue", getDvalue(), "value's", getValue())))
    return failure();
  return verifyAttention(*this, getOutput());
}

// Checks what the loss and its gradient share. The importer has merged all axes
// but the classes into rows. The sums are statistics: 16-bit types have too
// few digits to add up many rows.
template <typename Loss> static LogicalResult verifyCrossEntropy(Loss op) {
  ArrayRef<int64_t> shape = shapeOf(op.getLogits());
  if (shape.size() != 2)
    return op.emitOpError("logits must be rows by classes, not ")
           << op.getLogits().getType();
  if (failed(verifyVector(op, "targets", op.getTargets(), shape[0])) ||
      failed(verifyVector(op, "weights", op.getWeights(), shape[1])) ||
      failed(verifyStatistic(op, "valid", op.getValid(), op.getLogits(), {})))
    return failure();
  return verifyStatistic(op, "lse", op.getLse(), op.getLogits(), shape[0]);
}

LogicalResult CrossEntropyOp::verify() {
  if (failed(verifyCrossEntropy(*this)))
    return failure();
  return verifyStatistic(*this, "loss", getLoss(), getLogits(), {});
}

// ODS requires `grad`, the cotangent of the loss, to have the type of `valid`.
LogicalResult CrossEntropyGradOp::verify() {
  if (failed(
          verifySameType(*this, "result", getResult(), "logits'", getLogits())))
    return failure();
  return verifyCrossEntropy(*this);
}

// ODS requires `factors` and `losses` to have the type of `weights`, and the
// gradient that of the logits.
LogicalResult CrossEntropyRowsOp::verify() {
  ArrayRef<int64_t> shape = shapeOf(getLogits());
  if (shape.size() != 2)
    return emitOpError("logits must be rows by classes, not ")
           << getLogits().getType();
  if (failed(verifyVector(*this, "targets", getTargets(), shape[0])))
    return failure();
  return verifyStatistic(*this, "weights", getWeights(), getLogits(), shape[0]);
}

// `dinput` and `dweight` have the types of their operands by ODS; `dbias` is
// optional, so its presence and length are checked here.
LogicalResult LinearCrossEntropyOp::verify() {
  ArrayRef<int64_t> input = shapeOf(getInput()), weight = shapeOf(getWeight());
  if (input.size() != 2 || weight.size() != 2 ||
      weight[getTransposeWeight() ? 1 : 0] != input[1])
    return emitOpError("input ")
           << getInput().getType() << " and weight " << getWeight().getType()
           << " do not form a matrix product";
  // A transposed weight is classes × depth.
  int64_t classes = weight[getTransposeWeight() ? 0 : 1];
  if (shapeOf(getTargets()) != input.take_front(1))
    return emitOpError("targets must be a vector of ")
           << input[0] << " elements, not " << getTargets().getType();
  if (static_cast<bool>(getBias()) != static_cast<bool>(getDbias()))
    return emitOpError(
        "must have a gradient of the bias if and only if it has a bias");
  if (failed(verifyVector(*this, "bias", getBias(), classes)) ||
      failed(
          verifyVector(*this, "gradient of the bias", getDbias(), classes)) ||
      failed(verifyVector(*this, "weights", getWeights(), classes)) ||
      failed(verifyStatistic(*this, "loss", getLoss(), getInput(), {})) ||
      (getScale() &&
       failed(verifyStatistic(*this, "scale", getScale(), getInput(), {}))))
    return failure();
  return verifyStatistic(*this, "valid", getValid(), getInput(), {});
}
