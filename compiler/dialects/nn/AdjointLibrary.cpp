// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The adjoints of matrix products, convolution and pooling. Each is a call of
// the same library: a product of a product's operands, and for windows an op
// that computes another of input, filter and output.
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/LibraryOps.h"

using namespace mlir;
using namespace fsdpc::nn;

namespace {
/// An operand of a product, and whether it is transposed.
struct Factor {
  Value value;
  bool transposed;
};
} // namespace

/// Returns x · y in the batch of the result's cotangent, summed to the shape of
/// `operand`, whose cotangent it is.
static Value product(OpBuilder &builder, Location loc, Factor x, Factor y,
                     ArrayRef<int64_t> batch, Value operand) {
  SmallVector<int64_t> shape(batch);
  llvm::append_range(shape, shapeOf(operand).take_back(2));
  auto matmul = MatmulOp::create(
      builder, loc, tensorType(operand).clone(shape), x.value, y.value,
      /*accumulator=*/nullptr, x.transposed, y.transposed);
  return sumTo(builder, loc, matmul, shapeOf(operand));
}

/// Merges the batch and the rows of a stack of matrices into the rows of one.
static Value flattenRows(OpBuilder &builder, Location loc, Value value) {
  ArrayRef<int64_t> shape = shapeOf(value);
  return reshapeTo(builder, loc, value,
                   {llvm::product_of(shape.drop_back()), shape.back()});
}

// C = A · B: dA = dC · Bᵀ and dB = Aᵀ · dC. Transposes are flags of the
// products, so no operand is transposed in memory.
LogicalResult MatmulOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                                     ArrayRef<bool> needed,
                                     SmallVectorImpl<Value> &operandGrads) {
  Location loc = getLoc();
  Value grad = resultGrads[0], lhs = getLhs(), rhs = getRhs();
  bool ta = getTransposeA(), tb = getTransposeB();
  ArrayRef<int64_t> batch = shapeOf(grad).drop_back(2);
  if (needed[0])
    operandGrads[0] =
        ta ? product(builder, loc, {rhs, tb}, {grad, true}, batch, lhs)
           : product(builder, loc, {grad, false}, {rhs, !tb}, batch, lhs);
  if (needed[1]) {
    // A weight that a batch of matrices shares: one product over all their rows
    // instead of a product per matrix and a sum.
    if (!ta && shapeOf(rhs).size() == 2 && shapeOf(lhs).drop_back(2) == batch) {
      lhs = flattenRows(builder, loc, lhs);
      grad = flattenRows(builder, loc, grad);
      batch = {};
    }
    operandGrads[1] =
        tb ? product(builder, loc, {grad, true}, {lhs, ta}, batch, rhs)
           : product(builder, loc, {lhs, !ta}, {grad, false}, batch, rhs);
  }
  // A bias gets the sum over all rows, a full accumulator the gradient itself.
  if (getAccumulator())
    operandGrads[2] =
        sumTo(builder, loc, resultGrads[0], shapeOf(getAccumulator()));
  return success();
}

// A convolution is bilinear, so each gradient reads the other operand and never
// the output.
LogicalResult Conv2dOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                                     ArrayRef<bool> needed,
                                     SmallVectorImpl<Value> &operandGrads) {
  if (needed[0])
    operandGrads[0] = Conv2dGradInputOp::create(
        builder, getLoc(), getInput().getType(), resultGrads[0], getFilter(),
        getStrides(), getPads(), getDilations(), getGroups());
  if (needed[1])
    operandGrads[1] = Conv2dGradFilterOp::create(
        builder, getLoc(), getFilter().getType(), resultGrads[0], getInput(),
        getStrides(), getPads(), getDilations(), getGroups());
  return success();
}

// This op is linear in the cotangent of a convolution's output, as the
// convolution is in its input, so the two are each other's adjoint. The filter
// relates the same two images in both, with exchanged roles.
LogicalResult
Conv2dGradInputOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                                ArrayRef<bool> needed,
                                SmallVectorImpl<Value> &operandGrads) {
  if (needed[0])
    operandGrads[0] = Conv2dOp::create(
        builder, getLoc(), getGrad().getType(), resultGrads[0], getFilter(),
        getStrides(), getPads(), getDilations(), getGroups());
  if (needed[1])
    operandGrads[1] = Conv2dGradFilterOp::create(
        builder, getLoc(), getFilter().getType(), getGrad(), resultGrads[0],
        getStrides(), getPads(), getDilations(), getGroups());
  return success();
}

// Keeps the index of each maximum, not the input: the gradient only has to be
// added there.
LogicalResult MaxPool2dOp::buildAdjoint(OpBuilder &builder,
                                        ValueRange resultGrads, ArrayRef<bool>,
                                        SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] = MaxPool2dGradOp::create(
      builder, getLoc(), getInput().getType(), resultGrads[0], getIndex(),
      getKernel(), getStrides(), getPads());
  return success();
}

// Saves nothing: the divisors follow from the shapes.
LogicalResult AvgPool2dOp::buildAdjoint(OpBuilder &builder,
                                        ValueRange resultGrads, ArrayRef<bool>,
                                        SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] = AvgPool2dGradOp::create(
      builder, getLoc(), getInput().getType(), resultGrads[0], getKernel(),
      getStrides(), getPads(), getCountPadding());
  return success();
}
