// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The arithmetic of reductions: what a running value starts with, how two of
// them are combined, and how the lanes of one become a scalar. A NaN in the
// input reaches the result of max and min (MaximumF, not MaxNumF), as in ONNX.
#include "compiler/codegen/kernels/ElementEmitter.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::kernels;
using nn::tensorType;

// Unsigned integers and booleans have 0 as their smallest value.
Value ElementEmitter::neutral(nn::ReduceOp op, Type type) {
  if (op.getKind() == nn::ReduceKind::sum)
    return splatLike(type, 0);
  if (op.getKind() == nn::ReduceKind::prod)
    return splatLike(type, 1);
  bool isMax = op.getKind() == nn::ReduceKind::max;
  if (isa<FloatType>(getElementTypeOrSelf(type))) {
    // Infinities rather than the largest finite numbers: the maximum of a row
    // of -∞ is -∞.
    double infinity = std::numeric_limits<double>::infinity();
    return splatLike(type, isMax ? -infinity : infinity);
  }
  Type element = getElementTypeOrSelf(type);
  Type declared = tensorType(op.getInput()).getElementType();
  unsigned bits = element.getIntOrFloatBitWidth();
  bool isUnsigned = declared.isUnsignedInteger() || bits == 1;
  APInt value = isUnsigned
                    ? (isMax ? APInt::getZero(bits) : APInt::getMaxValue(bits))
                    : (isMax ? APInt::getSignedMinValue(bits)
                             : APInt::getSignedMaxValue(bits));
  TypedAttr attr = builder.getIntegerAttr(element, value);
  if (auto vector = dyn_cast<VectorType>(type))
    attr = DenseElementsAttr::get(vector, attr);
  return make<arith::ConstantOp>(attr);
}

// Both operands are of the type in which code computes, so signedness comes
// from the tensor's type: arith integers have none.
Value ElementEmitter::combine(nn::ReduceOp op, Value a, Value b) {
  Type element = getElementTypeOrSelf(a.getType());
  bool isFloat = isa<FloatType>(element);
  bool isUnsigned =
      tensorType(op.getInput()).getElementType().isUnsignedInteger() ||
      element.isInteger(1);
  switch (op.getKind()) {
  case nn::ReduceKind::sum:
    return isFloat ? make<arith::AddFOp>(a, b) : make<arith::AddIOp>(a, b);
  case nn::ReduceKind::prod:
    return isFloat ? make<arith::MulFOp>(a, b) : make<arith::MulIOp>(a, b);
  case nn::ReduceKind::max:
    if (isFloat)
      return make<arith::MaximumFOp>(a, b);
    return isUnsigned ? make<arith::MaxUIOp>(a, b) : make<arith::MaxSIOp>(a, b);
  case nn::ReduceKind::min:
    if (isFloat)
      return make<arith::MinimumFOp>(a, b);
    return isUnsigned ? make<arith::MinUIOp>(a, b) : make<arith::MinSIOp>(a, b);
  }
  llvm_unreachable("covered above");
}

Value kernels::foldLanes(OpBuilder &builder, Location loc, Value vector,
                         llvm::function_ref<Value(Value, Value)> combine) {
  // Combines the two halves of the vector until one lane is left.
  while (auto type = dyn_cast<VectorType>(vector.getType())) {
    int64_t lanes = type.getNumElements();
    if (lanes == 1)
      return vector::ExtractOp::create(builder, loc, vector,
                                       ArrayRef<int64_t>{0});
    auto half = [&](int64_t begin) {
      auto order = llvm::to_vector(llvm::seq(begin, begin + lanes / 2));
      return vector::ShuffleOp::create(builder, loc, vector, vector, order);
    };
    vector = combine(half(0), half(lanes / 2));
  }
  return vector;
}

// Combines lanes by halves, as the order of reductions requires
// (ReductionOrder.h).
Value ElementEmitter::foldLanes(nn::ReduceOp op, Value vector) {
  return kernels::foldLanes(builder, loc, vector, [&](Value a, Value b) {
    return combine(op, a, b);
  });
}

// Sums of 16-bit types are kept in f32 and rounded once, at the end.
Value ElementEmitter::roundResult(nn::ReduceOp op, Value sum) {
  return roundTo(tensorType(op.getResult()).getElementType(), sum);
}
