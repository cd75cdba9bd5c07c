// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The map template for grids, and what all templates share: how threads find
// their vectors, and how a loop that the plan cuts into parts becomes a choice.
// A thread holds one vector, which lies in exactly one part, so the parts
// become the branches of conditions instead of loops.
#include "compiler/codegen/simt/GridEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::simt;
using kernels::IndexExpr;
using kernels::Lanes;

// ---- numbers ----

Type GridEmitter::counter(int64_t limit) {
  // The largest number that a loop computes is its limit plus one step, which
  // must not wrap.
  bool isShort = limit + grid.threads * grid.vectors < (int64_t(1) << 31);
  return isShort ? builder.getI32Type() : builder.getI64Type();
}

Value GridEmitter::count(Type type, int64_t value) {
  return make<arith::ConstantOp>(builder.getIntegerAttr(type, value));
}

// Numbers are never negative, so they are widened without sign.
Value GridEmitter::convert(Value value, Type type) {
  return value.getType() == type ? value : make<arith::ExtUIOp>(type, value);
}

Value GridEmitter::below(Value value, int64_t limit) {
  return make<arith::CmpIOp>(arith::CmpIPredicate::ult, value,
                             count(value.getType(), limit));
}

// ---- vectors ----

// Vectors are numbered run by run.
void GridEmitter::setPosition(Stage &stage, const IndexExpr &outerVariable,
                              int64_t outer, Value flat) {
  int64_t vectors = stage.lanes / width;
  Value lane = flat;
  // A constant outer variable has no value to set.
  if (outer > 1) {
    Value run = count(flat.getType(), vectors);
    setVariable(outerVariable, toIndex(make<arith::DivUIOp>(flat, run)));
    lane = make<arith::RemUIOp>(flat, run);
  }
  setVariable(stage.laneVariable,
              make<arith::MulIOp>(toIndex(lane), i64(width)));
}

// The condition's scope replaces an open one of the same depth while `body` is
// built.
void GridEmitter::guarded(int depth, Value condition,
                          llvm::function_ref<void()> body) {
  int outer = enclosing(depth);
  insertAt(outer);
  auto guard = scf::IfOp::create(builder, loc, condition, false);
  Scope before = scopes[depth];
  scopes[outer].anchor = guard;
  scopes[depth] = {guard.thenBlock(), nullptr};
  body();
  forget(depth);
  scopes[depth] = before;
  scopes[outer].anchor = nullptr;
  insertAt(outer);
}

GridEmitter::Values GridEmitter::overParts(Stage &stage, ValueRange carried,
                                           Body body) {
  // A vector that belongs to the order of a reduction may lie in two parts, so
  // its elements are selected lane by lane.
  bool isDivided =
      llvm::any_of(stage.cuts, [&](int64_t cut) { return cut % width != 0; });
  if (stage.cuts.empty() || isDivided)
    return body(carried);
  SmallVector<int64_t> bounds = {0};
  llvm::append_range(bounds, stage.cuts);
  bounds.push_back(stage.lanes);
  int outer = enclosing(2);
  Value lane = variables.lookup(stage.laneVariable.terms.front().first);
  // Each part's condition passes on the values of the parts before it: only one
  // of them changes them.
  Values values(carried);
  for (size_t part = 0; part + 1 < bounds.size(); ++part) {
    space.setRange(stage.laneVariable, {bounds[part], bounds[part + 1] - 1});
    forgetLanes();
    insertAt(outer);
    // One unsigned comparison tests both ends of [begin, end).
    Value place = make<arith::SubIOp>(lane, i64(bounds[part]));
    Value isInside = below(place, bounds[part + 1] - bounds[part]);
    auto choice = scf::IfOp::create(
        builder, loc, llvm::to_vector(ValueRange(values).getTypes()), isInside,
        /*withElseRegion=*/!values.empty());
    scopes[outer].anchor = choice;
    scopes[2] = {choice.thenBlock(), nullptr};
    Values results = body(values);
    if (!values.empty()) {
      builder.setInsertionPointToEnd(choice.thenBlock());
      scf::YieldOp::create(builder, loc, results);
      builder.setInsertionPointToEnd(choice.elseBlock());
      scf::YieldOp::create(builder, loc, values);
      values.assign(choice.result_begin(), choice.result_end());
    }
    forget(2);
    scopes[2] = {};
    scopes[outer].anchor = nullptr;
  }
  space.setRange(stage.laneVariable, {0, stage.lanes - 1});
  forgetLanes();
  return values;
}

// Reductions of the row come first in `carried`, then the sums over rows, as
// overOwnVectors lists them.
GridEmitter::Values GridEmitter::step(Stage &stage, ValueRange carried) {
  Values results;
  auto add = [&](bool ofRows) {
    for (Root &root : stage.roots) {
      Lanes value = element(root.value, root.index);
      if (!root.reduce || root.addsRows() != ofRows)
        continue;
      insertAt(2);
      results.push_back(
          combine(root.reduce, carried[results.size()], spread(value.value)));
    }
  };
  add(false);
  if (grid.sumsInRegisters)
    add(true);
  // Stores follow all loads of the vector, since a result may lie in an
  // operand's memory (a tie).
  for (Root &root : stage.roots)
    if (!root.reduce)
      storeOutput(root);
    else if (root.addsRows() && !grid.sumsInRegisters)
      addToOutput(root);
  return results;
}

// ---- map ----

// A block covers consecutive vectors. The last block may have threads without a
// vector.
void GridEmitter::emitMap() {
  Stage &stage = plan.stages.front();
  width = grid.widths.front();
  int64_t total = plan.rows * stage.lanes / width;
  int64_t perBlock = grid.threads * grid.vectors;
  Type type = counter(total);
  Value begin = make<arith::MulIOp>(convert(threads.block(), type),
                                    count(type, perBlock));
  Value flat = make<arith::AddIOp>(begin, convert(threads.thread(), type));
  auto vector = [&] {
    setPosition(stage, plan.row, plan.rows, flat);
    overParts(stage, {},
              [&](ValueRange carried) { return step(stage, carried); });
  };
  // Without a remainder, no thread needs a condition. With one vector per
  // thread it needs one, and with several a loop ends where the vectors do.
  if (grid.vectors == 1 && total % perBlock == 0)
    return vector();
  if (grid.vectors == 1) {
    auto guard = scf::IfOp::create(builder, loc, below(flat, total), false);
    scopes[0] = {guard.thenBlock(), nullptr};
  } else {
    Value end = make<arith::AddIOp>(begin, count(type, perBlock));
    end = make<arith::MinUIOp>(end, count(type, total));
    // Threads of a block take adjacent vectors in each turn, so that their
    // accesses coalesce.
    auto loop =
        scf::ForOp::create(builder, loc, flat, end, count(type, grid.threads));
    scopes[0] = {loop.getBody(), nullptr};
    flat = loop.getInductionVar();
  }
  insertAt(0);
  vector();
}

// ---- the kernel ----

// Each template builds inside the function's only block.
void GridEmitter::emit() {
  Block *entry = &function.getBody().front();
  builder.setInsertionPointToEnd(entry);
  // The arguments are the kernel's operands and results, in the order of the
  // alignments.
  SmallVector<int64_t> known = analysis::alignmentsOf(kernel);
  for (auto [argument, alignment] : llvm::zip(entry->getArguments(), known)) {
    buffers.push_back(argument);
    alignments[argument] = alignment;
  }
  // The terminator comes first, so that scopes have an end to insert at.
  gpu::ReturnOp::create(builder, loc);
  scopes[0] = {entry, nullptr};
  insertAt(0);
  switch (plan.kind) {
  case nn::KernelTemplate::map:
    emitMap();
    break;
  case nn::KernelTemplate::row:
    emitRows();
    break;
  case nn::KernelTemplate::column:
    emitColumns();
    break;
  case nn::KernelTemplate::embedding_grad:
    emitEmbeddingGrad();
    break;
  }
  threads.finish();
}
