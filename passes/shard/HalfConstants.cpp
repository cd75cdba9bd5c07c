// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Converts constants of f32 to bf16 or f16.
#include "passes/shard/HalfConstants.h"

#include "compiler/dialects/nn/Sentinels.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "mlir/IR/IRMapping.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

static bool isF32(Type type) { return getElementTypeOrSelf(type).isF32(); }

static bool isSentinel(double x) {
  return std::isfinite(x) && std::abs(x) >= nn::kLeastSentinel;
}

RankedTensorType fsdpc::passes::withElement(Type type, Type element) {
  return cast<RankedTensorType>(type).clone(element);
}

bool fsdpc::passes::keepsNumbers(Operation *op) {
  auto elementwise = dyn_cast<nn::ElementwiseOpInterface>(op);
  return (isa<nn::ElementSourceOpInterface>(op) ||
          (elementwise && elementwise.isExact())) &&
         isF32(op->getResult(0).getType());
}

bool fsdpc::passes::holdsSentinel(Operation *op) {
  auto constant = dyn_cast<nn::ConstantOp>(op);
  if (!constant || !isF32(constant.getType()))
    return false;
  auto numbers = dyn_cast<DenseFPElementsAttr>(constant.getValue());
  if (!numbers)
    return false;
  return numbers.isSplat()
             ? isSentinel(numbers.getSplatValue<float>())
             : llvm::any_of(numbers.getValues<float>(), isSentinel);
}

bool fsdpc::passes::handsOnSentinels(Operation *op) {
  return isa<nn::ElementSourceOpInterface, nn::ElementwiseOpInterface>(op) &&
         isF32(op->getResult(0).getType());
}

static Value convertNumbers(nn::ConstantOp constant, Type element) {
  auto elements = dyn_cast<DenseFPElementsAttr>(constant.getValue());
  if (!elements)
    return {};
  const llvm::fltSemantics &semantics =
      cast<FloatType>(element).getFloatSemantics();
  // Rounded to nearest even, as a cast at run time would. Masks hide keys by
  // the lowest f32. It becomes the lowest number of the type and not minus
  // infinity, with which a softmax of a row that hides all its keys is NaN.
  auto converted = elements.mapValues(element, [&](const APFloat &x) {
    APFloat y = x;
    bool losesInfo;
    y.convert(semantics, APFloat::rmNearestTiesToEven, &losesInfo);
    if (y.isInfinity() && isSentinel(x.convertToDouble()))
      y = APFloat::getLargest(semantics, x.isNegative());
    return y.bitcastToAPInt();
  });
  OpBuilder builder(constant);
  auto copy = nn::ConstantOp::create(builder, constant.getLoc(),
                                     converted.getType(), converted);
  copy->setDiscardableAttrs(constant->getDiscardableAttrDictionary());
  return copy.getResult();
}

Value HalfConstants::convertOperands(Operation *op, Type element) {
  IRMapping operands;
  for (Value operand : op->getOperands())
    if (isF32(operand.getType())) {
      Value constant = convert(operand, element);
      if (!constant)
        return {};
      operands.map(operand, constant);
    }
  OpBuilder builder(op);
  Value copy = builder.clone(*op, operands)->getResult(0);
  copy.setType(withElement(copy.getType(), element));
  return copy;
}

Value HalfConstants::convert(Value value, Type element) {
  auto [known, isNew] = converted.try_emplace({value, element});
  if (!isNew)
    return known->second;
  Operation *op = value.getDefiningOp();
  Value result;
  if (auto constant = dyn_cast_or_null<nn::ConstantOp>(op))
    result = convertNumbers(constant, element);
  else if (op && keepsNumbers(op))
    result = convertOperands(op, element);
  return converted[{value, element}] = result;
}
