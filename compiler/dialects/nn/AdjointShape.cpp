// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The adjoints of ops that move or choose elements, and of reductions. The
// adjoint of a move is the opposite move; where elements were repeated,
// gradients are summed, and where elements were left out, they are zero.
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;
using namespace fsdpc::nn;

// A broadcast repeats elements, so their gradients are summed.
LogicalResult BroadcastOp::buildAdjoint(OpBuilder &builder,
                                        ValueRange resultGrads, ArrayRef<bool>,
                                        SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] =
      sumTo(builder, getLoc(), resultGrads[0], shapeOf(getInput()));
  return success();
}

LogicalResult ReshapeOp::buildAdjoint(OpBuilder &builder,
                                      ValueRange resultGrads, ArrayRef<bool>,
                                      SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] =
      reshapeTo(builder, getLoc(), resultGrads[0], shapeOf(getInput()));
  return success();
}

// The inverse permutation.
LogicalResult TransposeOp::buildAdjoint(OpBuilder &builder,
                                        ValueRange resultGrads, ArrayRef<bool>,
                                        SmallVectorImpl<Value> &operandGrads) {
  SmallVector<int64_t> inverse(getPermutation().size());
  for (auto [i, axis] : llvm::enumerate(getPermutation()))
    inverse[axis] = i;
  operandGrads[0] = TransposeOp::create(builder, getLoc(), getInput().getType(),
                                        resultGrads[0], inverse);
  return success();
}

// Zeros outside the slice.
LogicalResult SliceOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                                    ArrayRef<bool>,
                                    SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] = PadOp::create(builder, getLoc(), getInput().getType(),
                                  resultGrads[0], getOffsets(), getStrides());
  return success();
}

// The zeros between and around the elements get no gradient.
LogicalResult PadOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                                  ArrayRef<bool>,
                                  SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] = SliceOp::create(builder, getLoc(), getInput().getType(),
                                    resultGrads[0], getOffsets(), getStrides());
  return success();
}

// Each input gets its slice of the gradient.
LogicalResult ConcatOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                                     ArrayRef<bool> needed,
                                     SmallVectorImpl<Value> &operandGrads) {
  SmallVector<int64_t> offsets(tensorType(getResult()).getRank(), 0);
  SmallVector<int64_t> strides(offsets.size(), 1);
  for (auto [i, input] : llvm::enumerate(getInputs())) {
    if (needed[i])
      operandGrads[i] = SliceOp::create(builder, getLoc(), input.getType(),
                                        resultGrads[0], offsets, strides);
    offsets[getAxis()] += shapeOf(input)[getAxis()];
  }
  return success();
}

// The product of all elements but each one. With one zero it is the product of
// the others at the zero, and 0 elsewhere; with two zeros it is 0. Dividing the
// product by the element would give NaN there.
static Value productOfOthers(OpBuilder &builder, ReduceOp op) {
  Location loc = op.getLoc();
  Value x = op.getInput();
  RankedTensorType type = tensorType(x);
  ArrayRef<int64_t> shape = type.getShape();
  auto whole = [&](Value value) {
    return broadcastTo(builder, loc, value, shape);
  };
  auto equals = [&](Value value, double number) {
    return CmpOp::create(builder, loc, type.clone(builder.getI1Type()),
                         Predicate::eq, value,
                         splat(builder, loc, type, number))
        .getResult();
  };
  Value zero = splat(builder, loc, type, 0);
  Value isZero = equals(x, 0);
  Value nonZero =
      SelectOp::create(builder, loc, isZero, splat(builder, loc, type, 1), x);
  Value product =
      whole(reduceAlong(builder, loc, ReduceKind::prod, nonZero, op.getAxes()));
  Value zeros = whole(reduceAlong(
      builder, loc, ReduceKind::sum,
      castTo(builder, loc, isZero, type.getElementType()), op.getAxes()));
  // At an element that is 0, the others have a product only if it is the only
  // zero. `product` leaves zeros out, so it is that product.
  Value atZero =
      SelectOp::create(builder, loc, equals(zeros, 1), product, zero);
  // At any other element, one zero among the others makes the product 0.
  // `nonZero` is the element itself here, so the division is by what `product`
  // holds.
  Value elsewhere =
      SelectOp::create(builder, loc, equals(zeros, 0),
                       DivOp::create(builder, loc, product, nonZero), zero);
  return SelectOp::create(builder, loc, isZero, atZero, elsewhere);
}

// A sum passes its gradient to all elements, a maximum or minimum only to those
// that attain it, and a product passes it times the other elements.
LogicalResult ReduceOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                                     ArrayRef<bool>,
                                     SmallVectorImpl<Value> &operandGrads) {
  Location loc = getLoc();
  ArrayRef<int64_t> shape = shapeOf(getInput());
  Value grad = resultGrads[0];
  if (getKind() == ReduceKind::prod) {
    operandGrads[0] =
        MulOp::create(builder, loc, broadcastTo(builder, loc, grad, shape),
                      productOfOthers(builder, *this));
    return success();
  }
  if (getKind() != ReduceKind::sum) {
    // All elements that attain the extremum get equal parts.
    RankedTensorType type = tensorType(getInput());
    Value extremum = broadcastTo(builder, loc, getResult(), shape);
    Value attains = CmpOp::create(builder, loc, type.clone(builder.getI1Type()),
                                  Predicate::eq, getInput(), extremum);
    Value ones = castTo(builder, loc, attains, type.getElementType());
    Value count = reduceAlong(builder, loc, ReduceKind::sum, ones, getAxes());
    grad = DivOp::create(builder, loc, grad, count);
    grad = broadcastTo(builder, loc, grad, shape);
    operandGrads[0] = SelectOp::create(builder, loc, attains, grad,
                                       splat(builder, loc, type, 0));
    return success();
  }
  operandGrads[0] = broadcastTo(builder, loc, grad, shape);
  return success();
}

LogicalResult
TakeAlongAxisOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                              ArrayRef<bool>,
                              SmallVectorImpl<Value> &operandGrads) {
  // At most one position of a row equals the index (none if the index is out of
  // range), so a comparison replaces a scatter.
  Location loc = getLoc();
  RankedTensorType type = tensorType(getInput());
  Value index = broadcastTo(builder, loc, getIndex(), type.getShape());
  Value position =
      IotaOp::create(builder, loc, index.getType(), type.getRank() - 1);
  Value picked = CmpOp::create(builder, loc, type.clone(builder.getI1Type()),
                               Predicate::eq, position, index);
  Value grad = broadcastTo(builder, loc, resultGrads[0], type.getShape());
  operandGrads[0] = SelectOp::create(builder, loc, picked, grad,
                                     splat(builder, loc, type, 0));
  return success();
}

// Adds the rows of the gradient to the rows of the table that were looked up.
// A row of `grad` was added to one row of the result, whose cotangent it gets.
LogicalResult
EmbeddingGradOp::buildAdjoint(OpBuilder &builder, ValueRange resultGrads,
                              ArrayRef<bool> needed,
                              SmallVectorImpl<Value> &operandGrads) {
  if (getPaddingIndex())
    return emitOpError("is not differentiable with a padding index");
  if (needed[0])
    operandGrads[0] =
        EmbeddingOp::create(builder, getLoc(), getGrad().getType(),
                            resultGrads[0], getIds(), IntegerAttr());
  if (getAccumulator())
    operandGrads[2] = resultGrads[0];
  return success();
}

LogicalResult EmbeddingOp::buildAdjoint(OpBuilder &builder,
                                        ValueRange resultGrads, ArrayRef<bool>,
                                        SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] = EmbeddingGradOp::create(
      builder, getLoc(), getTable().getType(), resultGrads[0], getIds(),
      /*accumulator=*/nullptr, getPaddingIndexAttr());
  return success();
}
