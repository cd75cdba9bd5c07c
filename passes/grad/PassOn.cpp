// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Replaces ops that have become the identity: dropout in an evaluation, and
// nn.stop_gradient and nn.custom_gradient once the backward is there.
#include "passes/grad/PassOn.h"
#include "compiler/dialects/nn/Rearrangements.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/GradientOps.h"
#include "compiler/dialects/nn/NNDialect.h"

using namespace mlir;
using fsdpc::fsdp::FSDPDialect;

namespace fsdpc::passes {

void copyOrigin(Operation *from, Operation *to) {
  auto copy = [&](StringRef name) {
    if (Attribute value = from->getAttr(name))
      to->setAttr(name, value);
  };
  copy(FSDPDialect::kUnitAttr);
  copy(FSDPDialect::kKeepF32Attr);
  llvm::for_each(nn::NNDialect::originAttributes(), copy);
}

void MarkPlace::notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) {
  copyOrigin(source, op);
}

// Returns true if the user or one that reads a view of it belongs to another
// unit.
static bool leavesUnit(Operation *user, Attribute unit) {
  return unitOf(user) != unit ||
         (nn::isRearrangement(user) &&
          llvm::any_of(user->getUsers(), [&](Operation *next) {
            return leavesUnit(next, unit);
          }));
}

void passOn(Value result, Value operand, const Origins &origins) {
  Operation *op = result.getDefiningOp();
  auto isElsewhere = [&](OpOperand &use) {
    return leavesUnit(use.getOwner(), unitOf(op));
  };
  if (origins.isWeight(operand) &&
      llvm::any_of(result.getUses(), isElsewhere)) {
    MarkPlace mark(op);
    OpBuilder builder(op->getContext(), &mark);
    builder.setInsertionPoint(op);
    Value copy =
        nn::CopyOp::create(builder, op->getLoc(), operand.getType(), operand);
    result.replaceUsesWithIf(copy, isElsewhere);
  }
  result.replaceAllUsesWith(operand);
}

bool passOnCustomGradients(Block &body, const Origins &origins) {
  bool isAny = false;
  for (auto custom :
       llvm::make_early_inc_range(body.getOps<nn::CustomGradientOp>())) {
    isAny = true;
    for (auto [result, value] :
         llvm::zip(custom.getResults(), custom.getValues()))
      passOn(result, value, origins);
    custom.erase();
  }
  return isAny;
}

} // namespace fsdpc::passes
