// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Replaces ops that have become the identity: dropout in an evaluation, and
// nn.stop_gradient where there is nothing to stop any more.
#include "passes/grad/PassOn.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
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

void passOn(Operation *op, Value operand, const Origins &origins) {
  Value result = op->getResult(0);
  auto isElsewhere = [&](OpOperand &use) {
    return unitOf(use.getOwner()) != unitOf(op);
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

} // namespace fsdpc::passes
