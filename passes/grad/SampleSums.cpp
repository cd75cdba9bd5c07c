// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The sum of all samples is the sum of the microbatches' sums. That holds for
// linear functions of sums, and for no others. A value with several elements
// counts as one that still keeps samples apart.
#include "passes/grad/SampleSums.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/Linearity.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "passes/grad/CountGuards.h"

using namespace mlir;

namespace fsdpc::passes {

// Returns true if a number follows from a reduction of several elements that
// depend on parameters, by ops on single numbers. Reductions of inputs alone are
// counts, which have rules of their own.
static bool followsFromReduction(Value value, const SampleFlow &flow) {
  SmallVector<Value> stack = {value};
  DenseSet<Value> seen;
  while (!stack.empty()) {
    Value next = stack.pop_back_val();
    Operation *op = next.getDefiningOp();
    if (!op || !flow.readsInputs(next) || !isSingle(next) ||
        !seen.insert(next).second)
      continue;
    if (isa<nn::ReduceOp>(op) && flow.readsOthers(next))
      return true;
    stack.append(op->operand_begin(), op->operand_end());
  }
  return false;
}

// Returns true if elements that a sum adds up follow from one number that is
// itself a sum over samples, as `losses - losses.mean()`. The search ends at
// library calls and composites, since models mix samples on purpose, as by
// batch norm.
static bool followsFromSum(Value value, const SampleFlow &flow) {
  SmallVector<Value> stack = {value};
  DenseSet<Value> seen;
  while (!stack.empty()) {
    Value next = stack.pop_back_val();
    Operation *op = next.getDefiningOp();
    if (!op || !flow.readsInputs(next) || !flow.readsOthers(next) ||
        !seen.insert(next).second)
      continue;
    if (isSingle(next)) {
      if (followsFromReduction(next, flow))
        return true;
      continue;
    }
    if (isa<nn::ElementwiseOpInterface, nn::ElementSourceOpInterface>(op))
      stack.append(op->operand_begin(), op->operand_end());
  }
  return false;
}

bool addsUp(Value value, const SampleFlow &flow) {
  SmallVector<Value> stack = {value};
  DenseSet<Value> seen;
  while (!stack.empty()) {
    Value next = stack.pop_back_val();
    Operation *op = next.getDefiningOp();
    if (!op || !flow.readsInputs(next) || !isSingle(next) ||
        !seen.insert(next).second)
      continue;
    // Tests of whether there are targets guard a mean.
    auto isVariable = [&](OpOperand &operand) {
      bool chooses = isa<nn::SelectOp>(op) && operand.getOperandNumber() == 0;
      return !chooses && flow.readsInputs(operand.get()) &&
             !presenceOf(operand.get(), flow);
    };
    unsigned factors = 0;
    bool isLinear = true;
    for (OpOperand &operand : op->getOpOperands())
      if (isVariable(operand)) {
        nn::Linearity linearity = nn::linearityIn(operand);
        isLinear &= linearity != nn::Linearity::None;
        factors += linearity == nn::Linearity::Factor;
      }
    if (auto reduce = dyn_cast<nn::ReduceOp>(op);
        reduce && reduce.getKind() == nn::ReduceKind::sum) {
      Value terms = reduce.getInput();
      if (!isSingle(terms) && followsFromSum(terms, flow))
        return false;
      continue;
    }
    // A product of rows sums over samples as a reduction does.
    bool isProduct = factors > 1 && !isSingle(op->getOperand(0));
    if (isProduct)
      continue;
    if (!isLinear || factors > 1) {
      if (followsFromReduction(next, flow))
        return false;
      continue;
    }
    stack.append(op->operand_begin(), op->operand_end());
  }
  return true;
}

bool repeatsSamples(Operation *op, int64_t axis) {
  auto moves = dyn_cast<nn::ElementSourceOpInterface>(op);
  if (!moves || op->getNumOperands() != 1)
    return false;
  Value from = op->getOperand(0), to = op->getResult(0);
  if (isSingle(from))
    return !isSingle(to);
  auto broadcast = dyn_cast<nn::BroadcastOp>(op);
  if (!broadcast)
    return false;
  ArrayRef<int64_t> before = nn::shapeOf(from), after = nn::shapeOf(to);
  int64_t added = int64_t(after.size()) - int64_t(before.size());
  if (axis < 0 || axis >= int64_t(after.size()))
    return true;
  return after[axis] > 1 && (axis < added || before[axis - added] == 1);
}

} // namespace fsdpc::passes
