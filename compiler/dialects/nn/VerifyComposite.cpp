// The verifiers of softmax, norms, attention and losses. They check shapes and
// element types; what each op requires is listed under Constraints in
// NNComposite.td.
#include "compiler/dialects/nn/Build.h"

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

// Checks what layer_norm and rms_norm share: they normalise rows of the last
// axis, with one statistic per row.
static LogicalResult verifyNorm(Operation *op, Value input, Value weight,
                                Value bias, Value result,
                                ValueRange statistics) {
  ArrayRef<int64_t> shape = shapeOf(input);
  // A scalar has no rows; every other shape has rows of its last axis.
  if (shape.empty())
    return op->emitOpError("input must have an axis to normalise");
  if (result.getType() != input.getType())
    return op->emitOpError("result ")
           << result.getType() << " must have the input's type "
           << input.getType();
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
  return verifyNorm(*this, getInput(), getWeight(), getBias(), getResult(),
                    {getMean(), getRstd()});
}

LogicalResult RmsNormOp::verify() {
  return verifyNorm(*this, getInput(), getWeight(), nullptr, getResult(),
                    {getRstd()});
}

// The bias needs no check: ODS requires it to have the weight's type.
LogicalResult BatchNormOp::verify() {
  ArrayRef<int64_t> shape = shapeOf(getInput());
  if (shape.size() < 2)
    return emitOpError("input must have channels on axis 1, but has type ")
           << getInput().getType();
  if (getResult().getType() != getInput().getType())
    return emitOpError("result ")
           << getResult().getType() << " must have the input's type "
           << getInput().getType();
  if (failed(verifyVector(*this, "weight", getWeight(), shape[1])) ||
      failed(verifyStatistic(*this, "mean", getMean(), getInput(), shape[1])))
    return failure();
  return verifyStatistic(*this, "variance", getVariance(), getInput(),
                         shape[1]);
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
LogicalResult AttentionOp::verify() {
  ArrayRef<int64_t> query = shapeOf(getQuery()), key = shapeOf(getKey()),
                    value = shapeOf(getValue());
  if (query.size() != 4 || key.size() != 4 || value.size() != 4)
    return emitOpError("query, key and value must have rank 4");
  // Query is B×H×T×d, key B×G×S×d and value B×G×S×e.
  int64_t batch = query[0], heads = query[1], rows = query[2];
  // Grouped heads: the heads of key and value, each shared by consecutive query
  // heads.
  int64_t groups = key[1], keys = key[2];
  if (key[0] != batch || value[0] != batch || value[1] != groups ||
      value[2] != keys || key[3] != query[3])
    return emitOpError("query ")
           << getQuery().getType() << ", key " << getKey().getType()
           << " and value " << getValue().getType()
           << " have incompatible shapes";
  if (groups == 0 || heads % groups)
    return emitOpError("query heads, ")
           << heads << ", must be a multiple of the key heads, " << groups;
  if (shapeOf(getResult()) != ArrayRef<int64_t>{batch, heads, rows, value[3]})
    return emitOpError("result must have the shape ")
           << batch << "x" << heads << "x" << rows << "x" << value[3]
           << ", but has type " << getResult().getType();
  // Float masks are added to the scores, masks of i1 choose keys.
  if (Value mask = getMask()) {
    ArrayRef<int64_t> shape = shapeOf(mask);
    if (shape.size() != 4 || !broadcastsTo(shape, {batch, heads, rows, keys}))
      return emitOpError("mask ")
             << mask.getType() << " does not broadcast to " << batch << "x"
             << heads << "x" << rows << "x" << keys;
    Type element = tensorType(mask).getElementType();
    if (!element.isInteger(1) && !isa<FloatType>(element))
      return emitOpError("mask must be i1 or a float, not ") << element;
  }
  return verifyStatistic(*this, "lse", getLse(), getQuery(),
                         {batch, heads, rows});
}

// The importer has merged all axes but the classes into rows. The loss and the
// sums are statistics: 16-bit types have too few digits to add up many rows.
LogicalResult CrossEntropyOp::verify() {
  ArrayRef<int64_t> shape = shapeOf(getLogits());
  if (shape.size() != 2)
    return emitOpError("logits must be rows by classes, not ")
           << getLogits().getType();
  if (shapeOf(getTargets()) != shape.take_front(1))
    return emitOpError("targets must be a vector of ")
           << shape[0] << " elements, not " << getTargets().getType();
  if (failed(verifyVector(*this, "weights", getWeights(), shape[1])) ||
      failed(verifyStatistic(*this, "loss", getLoss(), getLogits(), {})) ||
      failed(verifyStatistic(*this, "valid", getValid(), getLogits(), {})))
    return failure();
  return verifyStatistic(*this, "lse", getLse(), getLogits(), shape[0]);
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
