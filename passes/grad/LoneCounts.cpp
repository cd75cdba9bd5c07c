// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A count is a value of inputs alone that combines samples. Where an op reads
// one together with parameters, the gradient of a microbatch depends on which
// samples it has. The divisors of means over targets are left out, since those
// means become the step's.
#include "passes/grad/LoneCounts.h"

#include "compiler/dialects/nn/LossOps.h"
#include "passes/grad/StandIns.h"

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
          !looksUpStandIn(op) && sources.insert(source).second)
        found.push_back({&op, source});
    }
  }
  return found;
}

} // namespace fsdpc::passes
