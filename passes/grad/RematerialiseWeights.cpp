// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Clones chains that depend on weights only into the backward, so that no
// gathered weight is kept from the forward to the backward.
#include "compiler/dialects/nn/ShapeOps.h"
#include "passes/grad/Passes.h"
#include "passes/grad/WeightDerived.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace fsdpc::passes {
#define GEN_PASS_DEF_REMATERIALISEWEIGHTS
#include "passes/grad/Passes.h.inc"

namespace {

struct RematerialiseWeights
    : impl::RematerialiseWeightsBase<RematerialiseWeights> {
  void runOnOperation() override {
    FunctionOpInterface function = lookupMicrobatch(getOperation());
    if (!function)
      return signalPassFailure();
    Block &body = function.getFunctionBody().front();
    Origins origins(body);
    SmallVector<Operation *> backward;
    for (Operation &op : body)
      if (isBackward(&op))
        backward.push_back(&op);
    // One map per unit, so that each unit of the backward reads clones of its
    // own.
    DenseMap<Attribute, IRMapping> clonesOfUnit;
    for (Operation *op : backward) {
      auto isCloned = [&](Value value) {
        Operation *source = value.getDefiningOp();
        return source && isClonedFor(source, op, origins);
      };
      // The clone stands before the first op of the backward that reads it, and
      // later ops of the unit share it.
      for (OpOperand &operand : op->getOpOperands())
        operand.set(cloneChain(operand.get(), op, isCloned,
                               clonesOfUnit[unitOf(op)], numClones));
    }
  }

private:
  // Weights, broadcasts and what follows from constants are always cloned;
  // values derived from weights only within their own unit. A broadcast is
  // repeated where it is read; saving its result would take the memory of the
  // whole shape.
  static bool isClonedFor(Operation *source, Operation *user,
                          const Origins &origins) {
    if (isBackward(source) || isa<nn::ConstantOp>(source) ||
        !isMemoryEffectFree(source))
      return false;
    if (origins.isWeightSource(source) || isa<nn::BroadcastOp>(source))
      return true;
    switch (origins.of(source->getResult(0))) {
    case Origin::Constant:
      return true;
    case Origin::Weight:
      return unitOf(source) == unitOf(user);
    case Origin::Data:
      return false;
    }
    llvm_unreachable("unknown origin");
  }
};

} // namespace
} // namespace fsdpc::passes
