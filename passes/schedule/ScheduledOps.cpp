// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Asks ops what scheduling must know of them.
#include "passes/schedule/ScheduledOps.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/Interfaces.h"

using namespace mlir;
using namespace fsdpc;

int64_t fsdpc::passes::elementsOf(ValueRange values) {
  int64_t elements = 0;
  for (Value value : values)
    elements += cast<RankedTensorType>(value.getType()).getNumElements();
  return elements;
}

bool fsdpc::passes::isScheduled(Operation *op) {
  return op->hasTrait<fsdp::MovedBySchedule>();
}

SmallVector<Operation *> fsdpc::passes::usersOfMemory(Value value) {
  SmallVector<Operation *> users;
  SmallVector<Value> values = {value};
  // A stack: values that share the memory are pushed as they are found.
  while (!values.empty())
    for (OpOperand &use : values.pop_back_val().getUses()) {
      Operation *user = use.getOwner();
      if (isa<fsdp::FreeOp>(user))
        continue;
      users.push_back(user);
      auto call = dyn_cast<nn::LibraryCallOpInterface>(user);
      // Views share the memory, as do results that hold their operands, and an
      // op that overwrites its operand hands it on to its result.
      if (nn::isView(user) || isa<fsdp::ViewOp>(user) ||
          user->hasTrait<nn::HoldsOperands>() ||
          (call && call.getOverwritten() == use.get()))
        values.push_back(user->getResult(0));
    }
  return users;
}

void fsdpc::passes::copyUnit(Operation *from, Operation *to) {
  for (StringRef name :
       {fsdp::FSDPDialect::kUnitAttr, fsdp::FSDPDialect::kBackwardAttr})
    if (Attribute attribute = from->getAttr(name))
      to->setAttr(name, attribute);
}
