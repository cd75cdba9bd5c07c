// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The adjoints of softmax, norms, attention and losses. Composites are
// differentiated as a whole: their gradient ops use the statistics and results
// of the forward, so that what is inside them is never saved.
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/CompositeOps.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/NormOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;
using namespace fsdpc::nn;

/// Emits an error if a result other than the first has a gradient: composites
/// are differentiated through their first result only, the others are
/// statistics for their own adjoint.
static LogicalResult onlyFirstResult(Operation *op, ValueRange resultGrads) {
  for (auto [i, grad] : llvm::enumerate(resultGrads.drop_front()))
    if (grad)
      return op->emitOpError("is not differentiable with respect to result ")
             << i + 1;
  return success();
}

// Emits an error if an operand without a gradient (a mask, class weights)
// depends on a trainable parameter.
static LogicalResult notNeeded(Operation *op, ArrayRef<bool> needed,
                               int64_t operand, StringRef name) {
  if (operand >= 0 && needed[operand])
    return op->emitOpError("has no gradient with respect to its ")
           << name << "; freeze the parameters it depends on with --frozen";
  return success();
}

/// Returns the number of an optional operand, or -1 if it is absent.
static int64_t operandNumber(const MutableOperandRange &operand) {
  return operand.empty() ? -1 : int64_t(operand.begin()->getOperandNumber());
}

// The gradient op needs only the result: dx = y · (dy - Σ y · dy).
LogicalResult SoftmaxOp::buildAdjoint(OpBuilder &builder,
                                      ValueRange resultGrads, ArrayRef<bool>,
                                      SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] =
      SoftmaxGradOp::create(builder, getLoc(), getResult(), resultGrads[0]);
  return success();
}

// dx = dy - softmax(x) · Σ dy.
LogicalResult LogSoftmaxOp::buildAdjoint(OpBuilder &builder,
                                         ValueRange resultGrads, ArrayRef<bool>,
                                         SmallVectorImpl<Value> &operandGrads) {
  Location loc = getLoc();
  Value grad = resultGrads[0];
  int64_t last = tensorType(grad).getRank() - 1;
  Value sum = reduceAlong(builder, loc, ReduceKind::sum, grad, last);
  Value softmax = ExpOp::create(builder, loc, getResult());
  Value share = MulOp::create(builder, loc, softmax,
                              broadcastTo(builder, loc, sum, shapeOf(grad)));
  operandGrads[0] = SubOp::create(builder, loc, grad, share);
  return success();
}

// The gradients of input, weight and bias are separate ops, since grouping puts
// them into different kernels: the first works on rows, the others on columns.
LogicalResult LayerNormOp::buildAdjoint(OpBuilder &builder,
                                        ValueRange resultGrads,
                                        ArrayRef<bool> needed,
                                        SmallVectorImpl<Value> &operandGrads) {
  if (failed(onlyFirstResult(*this, resultGrads)))
    return failure();
  Value grad = resultGrads[0];
  if (needed[0])
    operandGrads[0] =
        LayerNormGradOp::create(builder, getLoc(), getInput().getType(), grad,
                                getInput(), getWeight(), getMean(), getRstd());
  int64_t weight = operandNumber(getWeightMutable()),
          bias = operandNumber(getBiasMutable());
  if (weight >= 0 && needed[weight])
    operandGrads[weight] =
        NormWeightGradOp::create(builder, getLoc(), getWeight().getType(), grad,
                                 getInput(), getMean(), getRstd());
  if (bias >= 0 && needed[bias])
    operandGrads[bias] = sumTo(builder, getLoc(), grad, shapeOf(getBias()));
  return success();
}

// Separate ops, as for layer_norm. There is no bias, so the weight is operand 1
// if it is present.
LogicalResult RmsNormOp::buildAdjoint(OpBuilder &builder,
                                      ValueRange resultGrads,
                                      ArrayRef<bool> needed,
                                      SmallVectorImpl<Value> &operandGrads) {
  if (failed(onlyFirstResult(*this, resultGrads)))
    return failure();
  Value grad = resultGrads[0];
  if (needed[0])
    operandGrads[0] =
        RmsNormGradOp::create(builder, getLoc(), getInput().getType(), grad,
                              getInput(), getWeight(), getRstd());
  if (getWeight() && needed[1])
    operandGrads[1] = NormWeightGradOp::create(
        builder, getLoc(), getWeight().getType(), grad, getInput(),
        /*mean=*/nullptr, getRstd());
  return success();
}

// One op computes all three gradients, since dx needs the two sums that are the
// gradients of weight and bias.
LogicalResult BatchNormOp::buildAdjoint(OpBuilder &builder,
                                        ValueRange resultGrads, ArrayRef<bool>,
                                        SmallVectorImpl<Value> &operandGrads) {
  if (failed(onlyFirstResult(*this, resultGrads)))
    return failure();
  auto grad = BatchNormGradOp::create(
      builder, getLoc(), getInput().getType(), getWeight().getType(),
      getBias().getType(), resultGrads[0], getInput(), getWeight(), getMean(),
      getVariance(), getEpsilonAttr());
  operandGrads.assign(grad->result_begin(), grad->result_end());
  return success();
}

// A rotation is linear in its input, and its adjoint is the transposed one. The
// tables follow from positions, not from parameters, and get no gradient.
LogicalResult RotaryOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                                     ArrayRef<bool> needed,
                                     SmallVectorImpl<Value> &operandGrads) {
  if (failed(notNeeded(*this, needed, 1, "cosines")) ||
      failed(notNeeded(*this, needed, 2, "sines")))
    return failure();
  operandGrads[0] =
      RotaryOp::create(builder, getLoc(), getType(), resultGrads[0], getCos(),
                       getSin(), /*transposed=*/!getTransposed());
  return success();
}

// Reads the result and the log-sum-exp of the forward, from which the gradient
// op computes the probabilities again (Dao et al., FlashAttention, 2022).
LogicalResult AttentionOp::buildAdjoint(OpBuilder &builder,
                                        ValueRange resultGrads,
                                        ArrayRef<bool> needed,
                                        SmallVectorImpl<Value> &operandGrads) {
  if (failed(onlyFirstResult(*this, resultGrads)) ||
      failed(notNeeded(*this, needed, operandNumber(getMaskMutable()), "mask")))
    return failure();
  auto grad = AttentionGradOp::create(
      builder, getLoc(), getQuery().getType(), getKey().getType(),
      getValue().getType(), resultGrads[0], getQuery(), getKey(), getValue(),
      getResult(), getLse(), getMask(), getScaleAttr(), getCausalAttr());
  // A mask, if present, comes last, and its entry stays null.
  llvm::copy(grad->getResults(), operandGrads.begin());
  return success();
}

LogicalResult
CrossEntropyOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                             ArrayRef<bool> needed,
                             SmallVectorImpl<Value> &operandGrads) {
  // `valid` depends on targets and weights only.
  if (failed(onlyFirstResult(*this, resultGrads.drop_back())) ||
      failed(notNeeded(*this, needed, operandNumber(getWeightsMutable()),
                       "weights")))
    return failure();
  if (resultGrads[0])
    operandGrads[0] = CrossEntropyGradOp::create(
        builder, getLoc(), getLogits().getType(), resultGrads[0], getLogits(),
        getTargets(), getLse(), getValid(), getWeights(), getReductionAttr(),
        getIgnoreIndexAttr());
  return success();
}

// Appends the factors of a product, without those that are 1.
static void addFactors(Value value, SmallVectorImpl<Value> &factors) {
  if (auto product = value.getDefiningOp<MulOp>()) {
    addFactors(product.getLhs(), factors);
    addFactors(product.getRhs(), factors);
  } else if (matchSplat(value) != 1) {
    factors.push_back(value);
  }
}

// Returns value / divisor, or null for 1. The factors of the divisor usually
// are factors of the value: nothing is divided then, so one of them may be 0.
static Value quotient(OpBuilder &builder, Location loc, Value value,
                      Value divisor) {
  SmallVector<Value> left, by;
  addFactors(value, left);
  addFactors(divisor, by);
  for (Value factor : by) {
    auto found = llvm::find(left, factor);
    if (found == left.end())
      return DivOp::create(builder, loc, value, divisor);
    left.erase(found);
  }
  Value product;
  for (Value factor : left)
    product = product ? MulOp::create(builder, loc, product, factor) : factor;
  return product;
}

LogicalResult
LinearCrossEntropyOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                                   ArrayRef<bool> needed,
                                   SmallVectorImpl<Value> &operandGrads) {
  if (failed(onlyFirstResult(*this, resultGrads)) ||
      failed(notNeeded(*this, needed, operandNumber(getWeightsMutable()),
                       "weights")))
    return failure();
  // The forward has already computed the gradients for dloss = 1 (or for dloss
  // = scale), block by block, so that the logits never lie in memory as a
  // whole. The chain rule only multiplies them by the loss's gradient.
  Value dloss = resultGrads[0];
  if (getScale())
    dloss = quotient(builder, getLoc(), dloss, getScale());
  auto scale = [&](Value gradient) -> Value {
    if (!dloss)
      return gradient;
    Value factor =
        castTo(builder, getLoc(), dloss, tensorType(gradient).getElementType());
    SmallVector<int64_t> ones(tensorType(gradient).getRank(), 1);
    factor = broadcastTo(builder, getLoc(),
                         reshapeTo(builder, getLoc(), factor, ones),
                         shapeOf(gradient));
    return MulOp::create(builder, getLoc(), gradient, factor);
  };
  SmallVector<Value> gradients = {getDinput(), getDweight()};
  if (getBias())
    gradients.push_back(getDbias());
  for (auto [operand, gradient] : llvm::enumerate(gradients))
    if (needed[operand])
      operandGrads[operand] = scale(gradient);
  return success();
}
