// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Questions about the linearity of ops, and the answers of those ops that take
// more than a line. The other ops answer in ODS.
#include "compiler/dialects/nn/Linearity.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/ScalarBuilder.h"

using namespace mlir;

namespace fsdpc::nn {

bool isAmong(unsigned number, MutableOperandRange operands) {
  return llvm::any_of(operands, [&](OpOperand &operand) {
    return operand.getOperandNumber() == number;
  });
}

Linearity linearityIn(ArrayRef<ElementSource> sources, unsigned operand) {
  return termIf(llvm::any_of(sources, [&](const ElementSource &source) {
    return source.operand == operand;
  }));
}

Linearity linearityIn(OpOperand &operand) {
  auto op = dyn_cast<LinearityOpInterface>(operand.getOwner());
  return op ? op.getLinearity(operand.getOperandNumber()) : Linearity::None;
}

bool isLinearIn(Operation *op, function_ref<bool(OpOperand &)> isVariable,
                function_ref<bool(OpOperand &)> isZero) {
  unsigned terms = 0, factors = 0;
  for (OpOperand &operand : op->getOpOperands()) {
    Linearity linearity = linearityIn(operand);
    if (isVariable(operand)) {
      if (linearity == Linearity::None)
        return false;
      ++(linearity == Linearity::Term ? terms : factors);
    } else if (linearity == Linearity::Term && !isZero(operand) &&
               matchSplat(operand.get()) != 0.0) {
      return false;
    }
  }
  return factors == 0 || (factors == 1 && terms == 0);
}

bool keepsValue(Operation *op) { return op->hasTrait<SameValue>(); }

// Quotients of integers are rounded.
Linearity DivOp::getLinearity(unsigned operand) {
  return termIf(operand == 0 && isFloat(*this));
}

// A cast of a float to an integer drops digits, and one to a truth value drops
// the number.
Linearity CastOp::getLinearity(unsigned) {
  return termIf(isFloat(*this) ||
                (!isFloat(getInput()) &&
                 !tensorType(*this).getElementType().isInteger(1)));
}

// A product that starts from a sum is neither a sum nor a product.
Linearity MatmulOp::getLinearity(unsigned) {
  return getAccumulator() ? Linearity::None : Linearity::Factor;
}

// All axes stay but those over which products are summed. The result's axes are
// aligned at the right with batch axes, and with those of an accumulator.
std::optional<int64_t> MatmulOp::getResultAxis(unsigned operand, int64_t axis) {
  int64_t rank = shapeOf(getOperand(operand)).size(),
          to = shapeOf(getResult()).size();
  if (operand > 1 || axis + 2 < rank)
    return to - rank + axis;
  bool isTransposed = operand == 0 ? getTransposeA() : getTransposeB();
  int64_t kept = rank - ((operand == 0) != isTransposed ? 2 : 1);
  if (axis != kept)
    return std::nullopt;
  return to - (operand == 0 ? 2 : 1);
}

} // namespace fsdpc::nn
