// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// x[mask] has another shape for each mask, so an export keeps all rows, and
// each row that the mask omits is replaced by the first one that it selects.
#include "passes/grad/StandIns.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;

namespace fsdpc::passes {

// Returns true if the op moves elements of its only operand.
static bool movesOnly(Operation *op) {
  return isa_and_nonnull<nn::ElementSourceOpInterface>(op) &&
         op->getNumOperands() == 1;
}

// Returns true if all that reads the value, behind what moves it, is a choice
// by a mask that leaves it out.
static bool isLeftOut(Value value) {
  SmallVector<Value> pending = {value};
  while (!pending.empty())
    for (OpOperand &use : pending.pop_back_val().getUses()) {
      Operation *user = use.getOwner();
      if (movesOnly(user))
        pending.push_back(user->getResult(0));
      else if (!isa<nn::SelectOp>(user) || use.getOperandNumber() != 2)
        return false;
    }
  return true;
}

bool looksUpStandIn(Operation &op) {
  auto moves = dyn_cast<nn::ElementSourceOpInterface>(op);
  if (!moves || op.getNumOperands() != 2)
    return false;
  auto sources = moves.getElementSources();
  if (sources.size() != 1 || !sources.front().dynamic)
    return false;
  Operation *table = op.getOperand(sources.front().operand).getDefiningOp();
  while (movesOnly(table))
    table = table->getOperand(0).getDefiningOp();
  return isa_and_nonnull<nn::StopGradientOp>(table) &&
         isLeftOut(op.getResult(0));
}

} // namespace fsdpc::passes
