// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counts ops and not values: one sine and one sum of the same angles are two.
#include "passes/shard/F32Islands.h"

#include "passes/shard/ComputeTypes.h"

#include "compiler/dialects/fsdp/F32Islands.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

void F32Islands::add(Operation *op, bool readsParameters) {
  bool computes = llvm::any_of(op->getResultTypes(), [](Type type) {
    return getElementTypeOrSelf(type).isF32();
  });
  if (computes && !ComputeTypes::onlyMoves(op))
    ++(readsParameters ? ofParameters : ofData);
}

void F32Islands::write(ModuleOp module) const {
  if (ofData + ofParameters == 0)
    return;
  Builder builder(module.getContext());
  module->setAttr(
      fsdp::kF32IslandsAttr,
      builder.getDictionaryAttr(
          {builder.getNamedAttr("data", builder.getI64IntegerAttr(ofData)),
           builder.getNamedAttr("parameters",
                                builder.getI64IntegerAttr(ofParameters))}));
}
