// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Small builders and matchers over nn ops. Builders return their input if there
// is nothing to do, so that callers need no special cases and the IR has no ops
// that change nothing.
#include "compiler/dialects/nn/Build.h"

#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace fsdpc::nn {

// Integer constants of unsigned or narrow types may not hold the number; it
// wraps like a cast.
TypedAttr scalarAttr(Type element, double value) {
  if (isa<FloatType>(element))
    return FloatAttr::get(element, value);
  return IntegerAttr::get(element, APInt(element.getIntOrFloatBitWidth(),
                                         static_cast<int64_t>(value),
                                         /*isSigned=*/true,
                                         /*implicitTrunc=*/true));
}

Value splat(OpBuilder &builder, Location loc, Type type, double value) {
  auto tensor = cast<RankedTensorType>(type);
  Attribute element = scalarAttr(tensor.getElementType(), value);
  return ConstantOp::create(builder, loc, tensor,
                            DenseElementsAttr::get(tensor, element));
}

std::optional<double> matchSplat(Value value) {
  // These ops repeat or move elements, so a splat stays the same number.
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<BroadcastOp, ReshapeOp, TransposeOp>(op))
      break;
    value = op->getOperand(0);
  }
  DenseElementsAttr elements;
  if (!matchPattern(value, m_Constant(&elements)) || !elements.isSplat())
    return std::nullopt;
  Type element = elements.getElementType();
  if (isa<FloatType>(element))
    return elements.getSplatValue<FloatAttr>().getValueAsDouble();
  APInt number = elements.getSplatValue<APInt>();
  return isUnsigned(element) ? static_cast<double>(number.getZExtValue())
                             : static_cast<double>(number.getSExtValue());
}

Value reshapeTo(OpBuilder &builder, Location loc, Value value,
                ArrayRef<int64_t> shape) {
  if (shapeOf(value) == shape)
    return value;
  return ReshapeOp::create(builder, loc, tensorType(value).clone(shape), value);
}

Value broadcastTo(OpBuilder &builder, Location loc, Value value,
                  ArrayRef<int64_t> shape) {
  if (shapeOf(value) == shape)
    return value;
  return BroadcastOp::create(builder, loc, tensorType(value).clone(shape),
                             value);
}

Value castTo(OpBuilder &builder, Location loc, Value value, Type element) {
  RankedTensorType type = tensorType(value);
  if (type.getElementType() == element)
    return value;
  return CastOp::create(builder, loc, type.clone(element), value);
}

Value multiply(OpBuilder &builder, Location loc, RankedTensorType type,
               Value lhs, Value rhs, bool transposeLhs, bool transposeRhs,
               Value accumulator) {
  return MatmulOp::create(builder, loc, type, lhs, rhs, accumulator,
                          transposeLhs, transposeRhs);
}

Value reduceAlong(OpBuilder &builder, Location loc, ReduceKind kind,
                  Value value, ArrayRef<int64_t> axes) {
  if (axes.empty())
    return value;
  SmallVector<int64_t> shape(shapeOf(value));
  for (int64_t axis : axes)
    shape[axis] = 1;
  return ReduceOp::create(builder, loc, tensorType(value).clone(shape), kind,
                          value, axes);
}

// Sums over leading dimensions that `shape` lacks, and over those where it has
// 1.
Value sumTo(OpBuilder &builder, Location loc, Value value,
            ArrayRef<int64_t> shape) {
  ArrayRef<int64_t> from = shapeOf(value);
  int64_t leading = from.size() - shape.size();
  SmallVector<int64_t> axes;
  for (int64_t i = 0, rank = from.size(); i < rank; ++i)
    // A dimension of 1 has nothing to sum.
    if (from[i] != 1 && (i < leading || shape[i - leading] == 1))
      axes.push_back(i);
  // The reduction keeps its axes with size 1; the reshape drops the leading
  // ones.
  Value sum = reduceAlong(builder, loc, ReduceKind::sum, value, axes);
  return reshapeTo(builder, loc, sum, shape);
}

// Aligns shapes at their last dimensions. Unlike NumPy's rule for two operands,
// only `from` may be repeated.
bool broadcastsTo(ArrayRef<int64_t> from, ArrayRef<int64_t> to) {
  if (from.size() > to.size())
    return false;
  for (auto [a, b] : llvm::zip(llvm::reverse(from), llvm::reverse(to)))
    if (a != b && a != 1)
      return false;
  return true;
}

// A slice is contiguous if, after the first axis with more than one element,
// all axes are complete. Axes of size 1 before it only choose where it begins.
std::optional<int64_t> contiguousOffset(SliceOp slice) {
  ArrayRef<int64_t> whole = shapeOf(slice.getInput()),
                    part = shapeOf(slice.getResult());
  int64_t offset = 0;
  bool single = true; // all earlier axes have size 1 in the part
  for (auto [i, size] : llvm::enumerate(part)) {
    if (size != whole[i] && !single)
      return std::nullopt;
    if (size != 1 && slice.getStrides()[i] != 1)
      return std::nullopt;
    single &= size == 1;
    offset = offset * whole[i] + slice.getOffsets()[i];
  }
  return offset;
}

// An axis of more than one element before the concat's axis would interleave
// the pieces.
bool joinsPieces(ConcatOp concat) {
  return llvm::all_of(shapeOf(concat.getResult()).take_front(concat.getAxis()),
                      [](int64_t size) { return size == 1; });
}

bool isView(Operation *op) { return isa<ReshapeOp, SliceOp>(op); }

} // namespace fsdpc::nn
