// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Walks from a mean on to the loss. The count is a constant on the way, and
// terms that do not follow from the mean are 0. What is left must be linear in
// the mean, and combine samples by sums alone.
#include "passes/grad/SampleSums.h"

#include "compiler/dialects/nn/Linearity.h"
#include "passes/grad/SampleTransfer.h"

#include <queue>

using namespace mlir;

namespace fsdpc::passes {

namespace {

// The states of the values that follow from one mean.
class Walk {
public:
  Walk(const WeightedMean &mean, const Uses &constants, const SampleFlow &flow)
      : constants(constants), flow(flow) {
    for (const CountFactor &factor : mean.factors)
      factors.insert(factor.use);
    tests.insert_range(mean.tests);
    // A cross-entropy divides by its own count.
    if (mean.factors.empty())
      states[mean.mean].kind = Samples::Sum;
  }

  /// Visits all ops that follow from the mean, each once, in their order.
  void run(const WeightedMean &mean);
  Samples kindOf(Value value) const { return states.lookup(value).kind; }

private:
  void visit(Operation &op);
  bool isConstant(OpOperand &operand) const {
    return factors.contains(&operand) || tests.contains(&operand) ||
           constants.contains(&operand);
  }

  const Uses &constants;
  const SampleFlow &flow;
  Uses factors, tests;
  DenseMap<Value, SampleState> states;
};

} // namespace

void Walk::visit(Operation &op) {
  auto follows = [&](OpOperand &operand) {
    return !isConstant(operand) && states.contains(operand.get());
  };
  MutableArrayRef<OpOperand> operands = op.getOpOperands();
  bool isOn = llvm::any_of(operands, follows);
  bool divides = llvm::any_of(
      operands, [&](OpOperand &operand) { return factors.contains(&operand); });
  if (!isOn && !divides)
    return;
  SmallVector<SampleState> from;
  bool isSummed = false;
  bool isMixed =
      isOn && !nn::isLinearIn(&op, follows, [](OpOperand &) { return true; });
  for (OpOperand &operand : operands) {
    SampleState state = follows(operand) ? states.lookup(operand.get())
                                         : flow.of(operand.get());
    isMixed |= follows(operand) && state.kind == Samples::Mixed;
    isSummed |= follows(operand) &&
                (state.kind == Samples::Sum || state.kind == Samples::Mean);
    bool isTerm = nn::linearityIn(operand) == nn::Linearity::Term;
    bool isZero = isOn && isTerm && !follows(operand);
    if (isConstant(operand) || isZero)
      state = SampleState();
    state.isZero = isZero;
    from.push_back(state);
  }
  for (Value result : op.getResults()) {
    SampleState state = transferSamples(op, from, flow.readsOthers(result));
    // Values that a model mixes count as rows again, but a sum has no rows.
    if (isMixed || (isSummed && state.kind == Samples::Rows))
      state.kind = Samples::Mixed;
    // A later factor does not count the terms of a sum that a count divides.
    if (divides && state.kind == Samples::Sum)
      state.terms = state.ownTerms = 0;
    states[result] = state;
  }
}

void Walk::run(const WeightedMean &mean) {
  auto isLater = [](Operation *one, Operation *other) {
    return other->isBeforeInBlock(one);
  };
  std::priority_queue<Operation *, std::vector<Operation *>, decltype(isLater)>
      pending(isLater);
  DenseSet<Operation *> seen;
  auto add = [&](Operation *op) {
    if (seen.insert(op).second)
      pending.push(op);
  };
  for (OpOperand *factor : factors)
    add(factor->getOwner());
  if (factors.empty())
    llvm::for_each(mean.mean.getUsers(), add);
  while (!pending.empty()) {
    Operation *op = pending.top();
    pending.pop();
    visit(*op);
    for (Value result : op->getResults())
      if (states.contains(result))
        llvm::for_each(result.getUsers(), add);
  }
}

bool addsUp(const WeightedMean &mean, Value loss, const Uses &constants,
            const SampleFlow &flow) {
  Walk walk(mean, constants, flow);
  walk.run(mean);
  return walk.kindOf(loss) ==
         (mean.count.isMean ? Samples::Mean : Samples::Sum);
}

} // namespace fsdpc::passes
