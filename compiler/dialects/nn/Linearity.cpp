// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The only place that knows which ops are linear, and in what. An op that moves
// elements is linear in what it moves, and not in indices that it reads. An op
// that is not named here is not linear.
#include "compiler/dialects/nn/Linearity.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/ScalarBuilder.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace fsdpc::nn {

// A cast of a float to an integer drops digits, and one to a truth value drops
// the number.
static bool keepsDigits(CastOp cast) {
  return isFloat(cast) || (!isFloat(cast.getInput()) &&
                           !tensorType(cast).getElementType().isInteger(1));
}

static Linearity ofMoved(ElementSourceOpInterface moves, unsigned operand) {
  bool isMoved =
      llvm::any_of(moves.getElementSources(), [&](const ElementSource &source) {
        return source.operand == operand;
      });
  return isMoved ? Linearity::Term : Linearity::None;
}

Linearity linearityIn(OpOperand &operand) {
  unsigned number = operand.getOperandNumber();
  auto termIf = [](bool isLinear) {
    return isLinear ? Linearity::Term : Linearity::None;
  };
  return llvm::TypeSwitch<Operation *, Linearity>(operand.getOwner())
      .Case<AddOp, SubOp, NegOp, CopyOp, StopGradientOp>(
          [](auto) { return Linearity::Term; })
      // Quotients of integers are rounded.
      .Case([&](DivOp op) { return termIf(number == 0 && isFloat(op)); })
      .Case([&](CastOp op) { return termIf(keepsDigits(op)); })
      .Case([&](SelectOp) { return termIf(number > 0); })
      .Case(
          [&](ReduceOp op) { return termIf(op.getKind() == ReduceKind::sum); })
      .Case<MulOp, Conv2dOp, Conv2dGradInputOp>(
          [](auto) { return Linearity::Factor; })
      .Case([](MatmulOp op) {
        return op.getAccumulator() ? Linearity::None : Linearity::Factor;
      })
      .Case([&](ElementSourceOpInterface op) { return ofMoved(op, number); })
      .Default([](Operation *) { return Linearity::None; });
}

bool isLinearIn(Operation *op, function_ref<bool(OpOperand &)> isVariable) {
  unsigned terms = 0, factors = 0;
  for (OpOperand &operand : op->getOpOperands()) {
    Linearity linearity = linearityIn(operand);
    if (isVariable(operand)) {
      if (linearity == Linearity::None)
        return false;
      ++(linearity == Linearity::Term ? terms : factors);
    } else if (linearity == Linearity::Term &&
               matchSplat(operand.get()) != 0.0) {
      return false;
    }
  }
  return factors == 0 || (factors == 1 && terms == 0);
}

bool keepsValue(Operation *op) {
  return isa<CastOp, CopyOp, StopGradientOp>(op);
}

std::optional<int64_t> resultAxis(LibraryCallOpInterface call, unsigned operand,
                                  int64_t axis) {
  auto product = dyn_cast<MatmulOp>(call.getOperation());
  // Windows keep images apart.
  if (!product)
    return operand == 0 && axis == 0 ? std::optional<int64_t>(0) : std::nullopt;
  if (operand > 1)
    return std::nullopt;
  // All axes stay but those over which products are summed. Batch axes are
  // aligned at the right.
  bool isTransposed =
      operand == 0 ? product.getTransposeA() : product.getTransposeB();
  int64_t rank = shapeOf(product->getOperand(operand)).size(),
          to = shapeOf(product.getResult()).size(),
          kept = rank - ((operand == 0) != isTransposed ? 2 : 1);
  if (axis + 2 < rank)
    return to - rank + axis;
  if (axis != kept)
    return std::nullopt;
  return to - (operand == 0 ? 2 : 1);
}

} // namespace fsdpc::nn
