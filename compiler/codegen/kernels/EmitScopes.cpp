// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Scopes decide where code is inserted: in the outermost loop on whose variable
// it depends. Each depth has at most one open loop. While an inner loop is
// being built, code for an outer depth goes in front of that loop (its anchor).
#include "compiler/codegen/kernels/ElementEmitter.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::kernels;

void ElementEmitter::insertAt(int depth) {
  // A depth without an open loop belongs to the next loop outside it.
  while (depth > 0 && !scopes[depth].block)
    --depth;
  Scope &scope = scopes[depth];
  if (scope.anchor)
    return builder.setInsertionPoint(scope.anchor);
  // The loop being built may have its terminator already (no carried values) or
  // get it at the end.
  if (scope.block->mightHaveTerminator())
    return builder.setInsertionPoint(scope.block->getTerminator());
  builder.setInsertionPointToEnd(scope.block);
}

// Linear in the known elements. Kernels are small, and a loop ends once.
void ElementEmitter::forget(int depth) {
  for (auto it = known.begin(); it != known.end();)
    it = it->second.depth >= depth ? known.erase(it) : std::next(it);
}

void ElementEmitter::within(Block *block, llvm::function_ref<void()> body) {
  Scope outer = scopes[1];
  forget(1);
  scopes[1] = {block, nullptr};
  insertAt(1);
  body();
  forget(1);
  scopes[1] = outer;
  insertAt(1);
}

void ElementEmitter::when(Value condition, llvm::function_ref<void()> body) {
  auto guard = scf::IfOp::create(builder, loc, condition, false);
  within(guard.thenBlock(), body);
}

int ElementEmitter::enclosing(int depth) const {
  int outer = depth - 1;
  while (outer > 0 && !scopes[outer].block)
    --outer;
  return outer;
}

// The map keys atoms, so a new value replaces the variable's in every index.
void ElementEmitter::setVariable(const IndexExpr &variable, Value value) {
  if (!variable.isConstant())
    variables[variable.terms.front().first] = value;
}

SmallVector<Value>
ElementEmitter::loop(int depth, const IndexExpr &variable, Value low,
                     Value high, int64_t step, ValueRange carried,
                     llvm::function_ref<SmallVector<Value>(ValueRange)> body) {
  // Bounds and the first carried values are computed in front of the loop.
  int outer = enclosing(depth);
  insertAt(outer);
  auto op = scf::ForOp::create(builder, loc, low, high, i64(step), carried);
  scopes[outer].anchor = op;
  scopes[depth] = {op.getBody(), nullptr};
  setVariable(variable, op.getInductionVar());
  SmallVector<Value> results = body(op.getRegionIterArgs());
  if (!carried.empty()) {
    builder.setInsertionPointToEnd(op.getBody());
    scf::YieldOp::create(builder, loc, results);
  }
  forget(depth);
  scopes[depth] = {};
  scopes[outer].anchor = nullptr;
  insertAt(outer);
  return op.getResults();
}

void ElementEmitter::forgetLanes() {
  for (auto it = known.begin(); it != known.end();) {
    bool usesLane = llvm::any_of(it->first.second, [&](const IndexExpr &e) {
      return space.usesLane(e);
    });
    it = usesLane ? known.erase(it) : std::next(it);
  }
}
