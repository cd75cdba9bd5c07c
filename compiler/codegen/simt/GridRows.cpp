// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The row template for grids. A team of threads (one or four warps for short
// rows, else the block) shares a row: its threads take vectors in turn, reduce
// their own lanes first and then exchange, so all of them know the row's
// reductions for the next stage.
#include "compiler/codegen/simt/GridEmitter.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::simt;
using nn::tensorType;

// Loops over the vectors of the stage. Adjacent threads take adjacent vectors,
// so that their loads coalesce.
GridEmitter::Values GridEmitter::overVectors(Stage &stage, ValueRange carried,
                                             Body body) {
  int64_t total = stage.outer * stage.lanes / width;
  Type type = counter(total);
  insertAt(0);
  Value first = convert(member, type);
  // If the vectors divide evenly, all threads take the same number of steps,
  // and the loop's bounds are constants.
  bool isEven = total % grid.team == 0;
  auto vectors =
      scf::ForOp::create(builder, loc, isEven ? count(type, 0) : first,
                         count(type, total), count(type, grid.team), carried);
  // Depth 1 is the loop over vectors; the row is depth 0.
  scopes[0].anchor = vectors;
  scopes[1] = {vectors.getBody(), nullptr};
  insertAt(1);
  Value flat = vectors.getInductionVar();
  if (isEven && grid.team > 1)
    flat = make<arith::AddIOp>(flat, first);
  setPosition(stage, stage.outerVariable, stage.outer, flat);
  Values results = overParts(stage, vectors.getRegionIterArgs(), body);
  if (!carried.empty()) {
    builder.setInsertionPointToEnd(vectors.getBody());
    scf::YieldOp::create(builder, loc, results);
  }
  forget(1);
  scopes[1] = {};
  scopes[0].anchor = nullptr;
  return llvm::to_vector_of<Value>(vectors.getResults());
}

// One element per row: every thread computes it, and one stores it.
GridEmitter::Values GridEmitter::emitSingle(Stage &stage, ValueRange carried) {
  Values results;
  bool stores = false;
  for (Root &root : stage.roots) {
    kernels::Lanes value = element(root.value, root.index);
    insertAt(0);
    stores |= root.output >= 0;
    if (root.reduce && !root.addsRows())
      results.push_back(
          combine(root.reduce, carried[results.size()], value.value));
  }
  // addToOutput and storeOutput go through memory, so one thread does it.
  if (stores)
    guarded(2, below(member, 1), [&] {
      for (Root &root : stage.roots)
        if (root.addsRows())
          addToOutput(root);
        else if (root.output >= 0)
          storeOutput(root);
    });
  return results;
}

// Builds the loops of a stage, then lets the team exchange what it has reduced.
void GridEmitter::emitStage(size_t number) {
  Stage &stage = plan.stages[number];
  width = grid.widths[number];
  // Sums in registers belong to columns that a thread owns in every row, so its
  // vectors are unrolled instead of looped over.
  bool keepsSums =
      grid.sumsInRegisters && llvm::any_of(stage.roots, [](const Root &root) {
        return root.addsRows();
      });
  bool isSingle = stage.outer * stage.lanes == 1 && !keepsSums;
  bool isLast = number + 1 == plan.stages.size();
  insertAt(0);
  // Every vector of the thread adds to the same running values, one per lane of
  // the vector.
  Values begin;
  SmallVector<nn::ReduceOp> reductions;
  for (Root &root : stage.roots)
    if (root.reduce && !root.addsRows()) {
      Type type = kernels::scalarType(tensorType(root.value).getElementType());
      begin.push_back(neutral(root.reduce, lanesOf(type, width > 1)));
      reductions.push_back(root.reduce);
    }
  auto body = [&](ValueRange carried) { return step(stage, carried); };
  Values sums = isSingle    ? emitSingle(stage, begin)
                : keepsSums ? overOwnVectors(stage, begin, body)
                            : overVectors(stage, begin, body);
  width = 1;
  insertAt(0);
  // A stage with one element needs no exchange, since all threads have computed
  // it.
  bool exchanges = !isSingle && !reductions.empty() && grid.team > 1;
  if (exchanges) {
    // Lanes are folded before the exchange, so that a shuffle moves one number.
    for (auto [op, sum] : llvm::zip(reductions, sums))
      sum = foldLanes(op, sum);
    int64_t bytes = threads.sharedFor(sums.size(), grid.team);
    Value shared = bytes ? threads.share(bytes) : Value();
    sums = threads.reduce(sums, grid.team, shared,
                          [&](size_t i, Value a, Value b) {
                            return combine(reductions[i], a, b);
                          });
  }
  for (auto [op, sum] : llvm::zip(reductions, sums))
    reduced[op.getResult()] = {roundResult(op, foldLanes(op, sum)), 0};
  // Later stages of the row read what this stage has stored.
  for (Root &root : stage.roots)
    if (!root.reduce && root.output >= 0)
      storedRows[root.value] = root.output;
  // The next stage may overwrite memory that this stage has read, and read what
  // other threads have stored. If the stage exchanged through shared memory,
  // the block's threads have already waited for each other.
  if (!isLast && !(exchanges && grid.team > kWarp))
    threads.synchronize(grid.team);
}

// Returns true if a stage exchanges through shared memory. Rows that a block
// takes in turn must then wait for each other before they reuse it.
bool GridEmitter::sharesMemory() const {
  return grid.team > kWarp && llvm::any_of(plan.stages, [](const Stage &stage) {
           return llvm::any_of(stage.roots, [](const Root &root) {
             return root.reduce && !root.addsRows();
           });
         });
}

void GridEmitter::emitRow() {
  for (size_t i = 0; i < plan.stages.size(); ++i)
    if (llvm::is_contained(grid.online, i))
      emitOnline(i++);
    else
      emitStage(i);
}

// A block holds as many teams as fit, each with a row of its own.
void GridEmitter::emitRows() {
  Type type = counter(plan.rows);
  Value block = convert(threads.block(), type);
  member = threads.thread();
  if (plan.rowsPerBlock > 1)
    return emitRowBlock(block);
  // One row per team; with one team, the block's number is the row's.
  int64_t perBlock = grid.threads / grid.team;
  Value row = block;
  if (perBlock > 1) {
    Value team =
        make<arith::DivUIOp>(member, count(member.getType(), grid.team));
    row = make<arith::AddIOp>(make<arith::MulIOp>(block, count(type, perBlock)),
                              convert(team, type));
    member = make<arith::RemUIOp>(member, count(member.getType(), grid.team));
  }
  // Only whole teams lack a row, so no thread of a team misses a barrier of it.
  if (plan.rows % perBlock) {
    auto guard = scf::IfOp::create(builder, loc, below(row, plan.rows), false);
    scopes[0] = {guard.thenBlock(), nullptr};
    insertAt(0);
  }
  setVariable(plan.row, toIndex(row));
  emitRow();
}
