// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A count is a value of inputs alone that combines samples. Where an op reads
// one together with parameters, the gradient of a microbatch depends on which
// samples it has. The divisors of means over targets are left out, since those
// means become the step's.
#include "passes/grad/LoneCounts.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LossOps.h"

using namespace mlir;

namespace fsdpc::passes {

DenseSet<Value> valuesOf(Block &body, Value loss) {
  DenseSet<Value> needed = {loss};
  for (Operation &op : llvm::reverse(body))
    if (llvm::any_of(op.getResults(),
                     [&](Value result) { return needed.contains(result); }))
      needed.insert(op.operand_begin(), op.operand_end());
  return needed;
}

template <typename OpTy>
static bool countsTargetsOf(Operation *op, const SampleFlow &flow) {
  auto entropy = dyn_cast<OpTy>(op);
  return entropy && entropy.getReduction() == nn::Reduction::mean &&
         (entropy.getIgnoreIndex() || entropy.getWeights()) &&
         flow.readsInputs(entropy.getTargets());
}

bool countsTargets(Operation *op, const SampleFlow &flow) {
  return countsTargetsOf<nn::CrossEntropyOp>(op, flow) ||
         countsTargetsOf<nn::LinearCrossEntropyOp>(op, flow);
}

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

// Returns true if the operand is the index of a placeholder row, which has no
// gradient. fsdpc.export selects rows by a mask: each row that the mask omits
// is replaced by the placeholder.
static bool isStandIn(OpOperand &operand) {
  auto moves = dyn_cast<nn::ElementSourceOpInterface>(operand.getOwner());
  if (!moves)
    return false;
  nn::ElementSource source = moves.getElementSources().front();
  if (!source.dynamic || source.dynamic->operand != operand.getOperandNumber())
    return false;
  Operation *table = moves->getOperand(source.operand).getDefiningOp();
  while (movesOnly(table))
    table = table->getOperand(0).getDefiningOp();
  return isa_and_nonnull<nn::StopGradientOp>(table) &&
         isLeftOut(moves->getResult(0));
}

SmallVector<LoneCount> findLoneCounts(Block &body,
                                      const DenseSet<Value> &needed,
                                      const Uses &explained,
                                      const DenseSet<Operation *> &entropies) {
  SampleFlow flow(body, explained);
  SmallVector<LoneCount> found;
  DenseSet<Operation *> sources;
  for (Operation &op : body) {
    auto reaches = [&](Value result) {
      return needed.contains(result) && flow.readsOthers(result);
    };
    if (llvm::none_of(op.getResults(), reaches))
      continue;
    if (countsTargets(&op, flow) && !entropies.contains(&op))
      found.push_back({&op, nullptr});
    for (OpOperand &operand : op.getOpOperands()) {
      Operation *source = flow.of(operand.get()).source;
      if (flow.combines(operand.get()) && !explained.contains(&operand) &&
          !isStandIn(operand) && sources.insert(source).second)
        found.push_back({&op, source});
    }
  }
  return found;
}

} // namespace fsdpc::passes
