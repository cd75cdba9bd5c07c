// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One forward scan: from which inputs each value follows, how it combines
// samples (SampleTransfer.cpp), and which values are computed in the same way.
#include "passes/grad/SampleFlow.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "passes/grad/SampleTransfer.h"
#include "passes/grad/StandIns.h"

using namespace mlir;

namespace fsdpc::passes {

SampleFlow::SampleFlow(Block &body, const Uses &ignored) {
  for (BlockArgument argument : body.getArguments()) {
    ArrayRef<int64_t> shape = nn::shapeOf(argument);
    if (shape.empty())
      continue;
    inputs.insert(argument);
    SampleState &state = states[argument];
    state.kind = Samples::Rows;
    state.axis = 0;
    state.count = shape[0];
  }
  for (Operation &op : body)
    visit(op, ignored);
}

void SampleFlow::visit(Operation &op, const Uses &ignored) {
  bool reads = false, readsMore = op.getNumOperands() == 0 &&
                                  !isa<nn::ConstantOp, nn::IotaOp>(op);
  SmallVector<SampleState> operands;
  for (OpOperand &operand : op.getOpOperands()) {
    reads |= readsInputs(operand.get());
    readsMore |= readsOthers(operand.get());
    operands.push_back(ignored.contains(&operand) ? SampleState()
                                                  : of(operand.get()));
  }
  SampleState state;
  if (op.getNumResults() > 0 && !looksUpStandIn(op))
    state = transferSamples(op, operands, readsMore);
  for (Value result : op.getResults()) {
    if (reads)
      inputs.insert(result);
    if (readsMore)
      others.insert(result);
    if (state.kind != Samples::None)
      states[result] = state;
  }
  if (!readsMore && op.getNumResults() == 1)
    findLeader(op);
}

// The model may write one count several times.
void SampleFlow::findLeader(Operation &op) {
  constexpr auto flags =
      OperationEquivalence::Flags(OperationEquivalence::IgnoreLocations |
                                  OperationEquivalence::IgnoreDiscardableAttrs);
  size_t hash = OperationEquivalence::computeHash(
      &op, [&](Value value) { return hash_value(firstOf(value)); },
      OperationEquivalence::ignoreHashValue, flags);
  SmallVector<Operation *, 1> &known = byHash[hash];
  for (Operation *first : known)
    if (OperationEquivalence::isEquivalentTo(
            first, &op,
            [&](Value one, Value other) {
              return success(firstOf(one) == firstOf(other));
            },
            nullptr, flags)) {
      leaders[op.getResult(0)] = first->getResult(0);
      return;
    }
  known.push_back(&op);
}

} // namespace fsdpc::passes
