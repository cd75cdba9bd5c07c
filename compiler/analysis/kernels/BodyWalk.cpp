// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Mirrors the recursion of ElementEmitter without building anything. If the two
// disagreed on the index at which an op reads its operands, a plan would
// promise properties (consecutive lanes, cuts) that the emitted code does not
// have.
#include "compiler/analysis/kernels/BodyWalk.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::analysis;

int64_t analysis::costOf(Operation *op) {
  if (auto elementwise = dyn_cast<nn::ElementwiseOpInterface>(op))
    return elementwise.getScalarCost();
  // Ten rounds of Philox for each element; shared among four where the loop
  // draws four at a time.
  if (op->hasTrait<nn::DrawsRandom>())
    return 80;
  return 1;
}

void BodyWalk::visitIndex(const Index &index, Value value) {
  IndexExpr address = space.linearize(index, nn::shapeOf(value));
  Type element = nn::tensorType(value).getElementType();
  if (element.isInteger(8) && space.laneRun(address, kRunLanes)) {
    readsRuns = true;
    return;
  }
  gathers |= space.usesLane(address) && space.laneStride(address) != 1;
  space.collectCuts(address, divisors);
}

void BodyWalk::visit(Value value, const Index &index) {
  Key key{value.getAsOpaquePointer(), {index.begin(), index.end()}};
  // Values are shared within a part: what is computed once at an index is there
  // for all its readers.
  if (!visited.insert(key).second)
    return;
  Operation *op = value.getDefiningOp();
  if (!op) {
    reads.push_back({cast<BlockArgument>(value),
                     space.linearize(index, nn::shapeOf(value))});
    return visitIndex(index, value);
  }
  // It is an earlier stage's, or a running sum: nothing below it is computed
  // here.
  if (auto reduce = dyn_cast<nn::ReduceOp>(op)) {
    reductions.push_back({reduce, index});
    return;
  }
  if (movesElements(op)) {
    for (const Source &source : sourcesOf(space, op, index)) {
      for (const Condition &condition : source.conditions) {
        // If the condition is on lane + constant, the loop can be cut at the
        // lanes where it becomes true and false; inside each part it is then
        // decided.
        if (condition.expr.terms.size() == 1 &&
            space.laneStride(condition.expr) == 1) {
          cuts.push_back(condition.allowed.low - condition.expr.constant);
          cuts.push_back(condition.allowed.high + 1 - condition.expr.constant);
        }
        space.collectCuts(condition.expr, divisors);
      }
      visit(source.value, source.index);
    }
    // The row's number is a dynamic index, which is read as well.
    if (auto embedding = dyn_cast<nn::EmbeddingOp>(op))
      visit(embedding.getIds(), Index(index.begin(), index.end() - 1));
    return;
  }
  if (auto take = dyn_cast<nn::TakeAlongAxisOp>(op)) {
    visit(take.getIndex(), index);
    Index source = index;
    source.back() = space.dynamic(take.getIndex(), index,
                                  nn::shapeOf(take.getInput()).back(),
                                  /*wraps=*/false);
    visit(take.getInput(), source);
    return;
  }
  cost += costOf(op);
  if (op->hasTrait<nn::DrawsRandom>()) {
    drawsRandom = true;
    visitIndex(index, value);
    if (auto dropout = dyn_cast<nn::DropoutOp>(op))
      visit(dropout.getInput(), index);
    return;
  }
  if (isa<nn::ElementwiseOpInterface>(op))
    for (Value operand : op->getOperands())
      visit(operand, index);
}
