// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The verifiers of ops that move or choose elements. All index arithmetic of
// kernels relies on them: an offset, a permutation or an axis that passes here
// never leads outside a tensor.
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace mlir;
using namespace fsdpc::nn;

/// Checks that the axes are in ascending order, distinct, and below `rank`.
static LogicalResult verifyAxes(Operation *op, ArrayRef<int64_t> axes,
                                int64_t rank) {
  int64_t last = -1;
  for (int64_t axis : axes) {
    if (axis < 0 || axis >= rank)
      return op->emitOpError("axis ")
             << axis << " is out of range for " << rank << " dimensions";
    if (axis <= last)
      return op->emitOpError("axes must be strictly increasing, but ")
             << axis << " follows " << last;
    last = axis;
  }
  return success();
}

// Ops that move elements do not convert them.
static LogicalResult verifySameElement(Operation *op, Value input,
                                       Value result) {
  if (tensorType(input).getElementType() != tensorType(result).getElementType())
    return op->emitOpError("input and result differ in element type: ")
           << input.getType() << " and " << result.getType();
  return success();
}

// The condition is not broadcast: an explicit op does that.
LogicalResult SelectOp::verify() {
  if (shapeOf(getCondition()) != shapeOf(getResult()))
    return emitOpError("condition ")
           << getCondition().getType()
           << " does not have the shape of the result "
           << getResult().getType();
  return success();
}

// Seed low and high, microbatch and step.
template <typename OpT> static LogicalResult verifyRandom(OpT op) {
  if (shapeOf(op.getRandom()) != ArrayRef<int64_t>{4})
    return op.emitOpError("random must be tensor<4xi32>, not ")
           << op.getRandom().getType();
  return success();
}

// Written so that NaN is refused. A ratio of 1 would divide by 0.
LogicalResult DropoutOp::verify() {
  double ratio = getRatio().convertToDouble();
  if (!(ratio >= 0 && ratio < 1))
    return emitOpError("ratio must be in [0, 1), not ") << ratio;
  return verifyRandom(*this);
}

LogicalResult UniformOp::verify() { return verifyRandom(*this); }

LogicalResult IotaOp::verify() {
  return verifyAxes(*this, getAxis(), tensorType(getResult()).getRank());
}

LogicalResult BroadcastOp::verify() {
  if (!broadcastsTo(shapeOf(getInput()), shapeOf(getResult())))
    return emitOpError("cannot broadcast ")
           << getInput().getType() << " to " << getResult().getType();
  return verifySameElement(*this, getInput(), getResult());
}

// The number of elements must stay.
LogicalResult ReshapeOp::verify() {
  if (tensorType(getInput()).getNumElements() !=
      tensorType(getResult()).getNumElements())
    return emitOpError("input ")
           << getInput().getType() << " and result " << getResult().getType()
           << " differ in number of elements";
  return verifySameElement(*this, getInput(), getResult());
}

// The permutation must name each axis once, and the shape must follow from it.
LogicalResult TransposeOp::verify() {
  ArrayRef<int64_t> from = shapeOf(getInput()), to = shapeOf(getResult());
  ArrayRef<int64_t> permutation = getPermutation();
  if (permutation.size() != from.size() || to.size() != from.size())
    return emitOpError("input, permutation and result differ in rank: ")
           << from.size() << ", " << permutation.size() << " and " << to.size();
  // As many distinct axes as there are dimensions are a permutation.
  SmallVector<bool> seen(from.size());
  for (auto [i, axis] : llvm::enumerate(permutation)) {
    if (axis < 0 || axis >= static_cast<int64_t>(from.size()) || seen[axis])
      return emitOpError("[")
             << permutation << "] is not a permutation of the axes";
    seen[axis] = true;
    if (from[axis] != to[i])
      return emitOpError("dimension ")
             << i << " of the result is " << to[i] << ", dimension " << axis
             << " of the input " << from[axis];
  }
  return verifySameElement(*this, getInput(), getResult());
}

/// Checks that every index offset + i · stride of `part` lies within `whole`.
static LogicalResult verifyPart(Operation *op, Value part, Value whole,
                                ArrayRef<int64_t> offsets,
                                ArrayRef<int64_t> strides) {
  ArrayRef<int64_t> sizes = shapeOf(part), bounds = shapeOf(whole);
  if (sizes.size() != bounds.size() || offsets.size() != bounds.size() ||
      strides.size() != bounds.size())
    return op->emitOpError("needs one offset and one stride for each of ")
           << bounds.size() << " dimensions, and the same rank on both sides";
  for (size_t i = 0; i < bounds.size(); ++i) {
    if (strides[i] == 0)
      return op->emitOpError("stride of dimension ") << i << " is 0";
    // No element, so any offset will do.
    if (sizes[i] == 0)
      continue;
    // Indices are monotonic, so the first and the last are the extremes. With a
    // negative stride the last is the smallest.
    int64_t last;
    if (llvm::MulOverflow(sizes[i] - 1, strides[i], last) ||
        llvm::AddOverflow(offsets[i], last, last) ||
        std::min(offsets[i], last) < 0 ||
        std::max(offsets[i], last) >= bounds[i])
      return op->emitOpError("")
             << sizes[i] << " indices from " << offsets[i] << " by "
             << strides[i] << " of dimension " << i
             << " are out of bounds for its " << bounds[i] << " elements";
  }
  return verifySameElement(op, part, whole);
}

LogicalResult SliceOp::verify() {
  return verifyPart(*this, getResult(), getInput(), getOffsets(), getStrides());
}

// A pad is the converse of a slice: its input must be a part of its result.
LogicalResult PadOp::verify() {
  return verifyPart(*this, getInput(), getResult(), getOffsets(), getStrides());
}

// Inputs must agree in all dimensions except the axis, along which their sizes
// must add up to that of the result.
LogicalResult ConcatOp::verify() {
  if (getInputs().empty())
    return emitOpError("needs at least one input");
  ArrayRef<int64_t> to = shapeOf(getResult());
  int64_t axis = getAxis();
  if (failed(verifyAxes(*this, axis, to.size())))
    return failure();
  // The axis is taken out of the comparison of shapes and added up instead.
  int64_t length = 0;
  for (auto [i, input] : llvm::enumerate(getInputs())) {
    SmallVector<int64_t> shape(shapeOf(input));
    if (failed(verifySameElement(*this, input, getResult())))
      return failure();
    // An input of another rank is refused below, and has no such axis.
    if (shape.size() == to.size()) {
      length += shape[axis];
      shape[axis] = to[axis];
    }
    if (ArrayRef<int64_t>(shape) != to)
      return emitOpError("input ")
             << i << ", " << input.getType() << ", does not match the result "
             << getResult().getType() << " along axis " << axis;
  }
  if (length != to[axis])
    return emitOpError("inputs have ") << length << " elements along axis "
                                       << axis << ", the result " << to[axis];
  return success();
}

// Reduced axes stay with size 1, so that the result broadcasts back without a
// reshape.
LogicalResult ReduceOp::verify() {
  SmallVector<int64_t> shape(shapeOf(getInput()));
  if (failed(verifyAxes(*this, getAxes(), shape.size())))
    return failure();
  for (int64_t axis : getAxes())
    shape[axis] = 1;
  if (shapeOf(getResult()) != ArrayRef<int64_t>(shape))
    return emitOpError("result must be ") << tensorType(getInput()).clone(shape)
                                          << ", not " << getResult().getType();
  return verifySameElement(*this, getInput(), getResult());
}

// The index has the input's shape with a last dimension of 1.
LogicalResult TakeAlongAxisOp::verify() {
  SmallVector<int64_t> shape(shapeOf(getInput()));
  if (shape.empty())
    return emitOpError("input must have an axis to take along");
  shape.back() = 1;
  if (shapeOf(getIndex()) != ArrayRef<int64_t>(shape) ||
      shapeOf(getResult()) != ArrayRef<int64_t>(shape))
    return emitOpError("index ")
           << getIndex().getType() << " and result " << getResult().getType()
           << " must have the shape of " << tensorType(getInput()).clone(shape);
  return verifySameElement(*this, getInput(), getResult());
}

/// Checks that `rows` has the shape of the ids and the table's last dimension.
static LogicalResult verifyEmbedding(Operation *op, Value table, Value ids,
                                     Value rows,
                                     std::optional<uint64_t> paddingIndex) {
  ArrayRef<int64_t> shape = shapeOf(table);
  if (shape.size() != 2)
    return op->emitOpError("table must have rank 2, not ") << table.getType();
  // One row of the table per id, whatever the shape of the ids.
  SmallVector<int64_t> expected(shapeOf(ids));
  expected.push_back(shape[1]);
  if (shapeOf(rows) != ArrayRef<int64_t>(expected))
    return op->emitOpError("rows ")
           << rows.getType() << " do not match ids " << ids.getType()
           << " and table " << table.getType();
  if (paddingIndex && static_cast<int64_t>(*paddingIndex) >= shape[0])
    return op->emitOpError("padding_index ")
           << *paddingIndex << " is out of range for the table's " << shape[0]
           << " rows";
  return verifySameElement(op, table, rows);
}

LogicalResult EmbeddingOp::verify() {
  return verifyEmbedding(*this, getTable(), getIds(), getResult(),
                         getPaddingIndex());
}

// The result is the table's gradient, and `grad` has the rows that the forward
// looked up. The accumulator's memory becomes the result's.
LogicalResult EmbeddingGradOp::verify() {
  if (getAccumulator() && getAccumulator().getType() != getType())
    return emitOpError("accumulator ")
           << getAccumulator().getType() << " must have the result's type "
           << getType();
  return verifyEmbedding(*this, getResult(), getIds(), getGrad(),
                         getPaddingIndex());
}
