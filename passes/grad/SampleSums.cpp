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

namespace {

// What a search does at a value.
enum class At { Operands, End, Found };

} // namespace

// Searches back from a value, through what reads inputs. Returns true if
// `visit`, called once with each op, has found what it looks for.
static bool searchBack(Value value, const SampleFlow &flow,
                       function_ref<At(Operation *op, Value result)> visit) {
  SmallVector<Value> stack = {value};
  DenseSet<Value> seen;
  while (!stack.empty()) {
    Value next = stack.pop_back_val();
    Operation *op = next.getDefiningOp();
    if (!op || !flow.readsInputs(next) || !seen.insert(next).second)
      continue;
    At at = visit(op, next);
    if (at == At::Found)
      return true;
    if (at == At::Operands)
      stack.append(op->operand_begin(), op->operand_end());
  }
  return false;
}

// Returns true if a number follows from a reduction of several elements that
// depend on parameters, by ops on single numbers. Reductions of inputs alone
// are counts, which have rules of their own.
static bool followsFromReduction(Value value, const SampleFlow &flow) {
  return searchBack(value, flow, [&](Operation *op, Value result) {
    if (!isSingle(result))
      return At::End;
    bool isSum = isa<nn::ReduceOp>(op) && flow.readsOthers(result);
    return isSum ? At::Found : At::Operands;
  });
}

// Returns true if elements that a sum adds up follow from one number that is
// itself a sum over samples, as `losses - losses.mean()`. The search ends at
// library calls and composites, since models mix samples on purpose, as by
// batch norm.
static bool followsFromSum(Value value, const SampleFlow &flow) {
  return searchBack(value, flow, [&](Operation *op, Value result) {
    if (!flow.readsOthers(result))
      return At::End;
    if (isSingle(result))
      return followsFromReduction(result, flow) ? At::Found : At::End;
    return isa<nn::ElementwiseOpInterface, nn::ElementSourceOpInterface>(op)
               ? At::Operands
               : At::End;
  });
}

bool addsUp(Value value, const SampleFlow &flow) {
  return !searchBack(value, flow, [&](Operation *op, Value result) {
    if (!isSingle(result))
      return At::End;
    if (auto reduce = dyn_cast<nn::ReduceOp>(op);
        reduce && reduce.getKind() == nn::ReduceKind::sum) {
      Value terms = reduce.getInput();
      bool mixes = !isSingle(terms) && followsFromSum(terms, flow);
      return mixes ? At::Found : At::End;
    }
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
    // A product of rows sums over samples as a reduction does.
    if (factors > 1 && !isSingle(op->getOperand(0)))
      return At::End;
    if (isLinear && factors <= 1)
      return At::Operands;
    return followsFromReduction(result, flow) ? At::Found : At::End;
  });
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
