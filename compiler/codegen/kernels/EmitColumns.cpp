// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The column template, for reductions over an axis that is not innermost. Lanes
// are columns, so loads are consecutive, and no lanes have to be combined: each
// adds its own rows one after the other. GridColumns.cpp shares sumRows and
// storeColumns.
#include "compiler/analysis/kernels/ReductionOrder.h"
#include "compiler/codegen/kernels/LoopEmitter.h"

#include "compiler/dialects/nn/Build.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::kernels;
using nn::tensorType;

// Rows are added in blocks, and then the sums of blocks (pairwise summation in
// two levels).
SmallVector<Value> ElementEmitter::sumRows(Stage &stage, Value first,
                                           int64_t step) {
  using analysis::kRowBlock;
  // The rows are read for another vector of columns: reductions that were
  // finished for the previous one must not be found again.
  for (Root &root : stage.roots)
    if (root.reduce)
      reduced.erase(root.reduce.getResult());
  insertAt(1);
  SmallVector<Value> zeros;
  for (Root &root : stage.roots)
    if (root.reduce)
      zeros.push_back(
          neutral(root.reduce,
                  lanesOf(scalarType(tensorType(root.value).getElementType()),
                          width > 1)));
  // Returns the running values after one more row.
  auto addRow = [&](ValueRange carried) {
    SmallVector<Value> results;
    for (Root &root : stage.roots) {
      if (!root.reduce)
        continue;
      Lanes value = element(root.value, root.index);
      insertAt(2);
      results.push_back(
          combine(root.reduce, carried[results.size()], spread(value.value)));
    }
    return results;
  };

  // A single row needs no loop, and short columns no blocks: the result is the
  // same, since the sum of the only block is the total.
  if (stage.outer == 1)
    return addRow(zeros);
  if (stage.outer <= kRowBlock * step)
    return loop(2, stage.outerVariable, first ? first : i64(0),
                i64(stage.outer), step, zeros, addRow);
  auto blocks = scf::ForOp::create(builder, loc, i64(0), i64(stage.outer),
                                   i64(kRowBlock * step), zeros);
  // Values that do not depend on the row are built in front of the loop over
  // blocks, hence the anchor. The loop over the rows of a block is inside it.
  int outer = enclosing(2);
  scopes[outer].anchor = blocks;
  builder.setInsertionPointToEnd(blocks.getBody());
  Value begin = blocks.getInductionVar();
  // The last block may be shorter.
  Value end = make<arith::MinSIOp>(
      make<arith::AddIOp>(begin, i64(kRowBlock * step)), i64(stage.outer));
  // On a grid, thread line `first` of `step` takes every step-th row of the
  // block.
  if (first)
    begin = make<arith::AddIOp>(begin, first);
  auto rows = scf::ForOp::create(builder, loc, begin, end, i64(step), zeros);
  scopes[2] = {rows.getBody(), nullptr};
  setVariable(stage.outerVariable, rows.getInductionVar());
  SmallVector<Value> results = addRow(rows.getRegionIterArgs());
  builder.setInsertionPointToEnd(rows.getBody());
  scf::YieldOp::create(builder, loc, results);
  forget(2);
  scopes[2] = {};
  scopes[outer].anchor = nullptr;

  // Adds the block's sums to the totals.
  builder.setInsertionPointToEnd(blocks.getBody());
  SmallVector<Value> totals;
  for (Root &root : stage.roots)
    if (root.reduce) {
      size_t next = totals.size();
      totals.push_back(combine(root.reduce, blocks.getRegionIterArgs()[next],
                               rows.getResult(next)));
    }
  scf::YieldOp::create(builder, loc, totals);
  insertAt(outer);
  return llvm::to_vector_of<Value>(blocks.getResults());
}

// Roots without a reduction read the finished sums by way of `reduced`, so
// these are set first.
void ElementEmitter::storeColumns(Stage &stage, ValueRange sums) {
  insertAt(1);
  size_t next = 0;
  for (Root &root : stage.roots)
    if (root.reduce)
      reduced[root.reduce.getResult()] = {
          roundResult(root.reduce, sums[next++]), 1};
  for (Root &root : stage.roots)
    if (!root.reduce)
      storeOutput(root);
}

// Emits the columns [low, high) of one stage, first in vectors, then one by
// one.
void LoopEmitter::emitColumns(Stage &stage, Value low, Value high) {
  auto step = [&](ValueRange) {
    storeColumns(stage, sumRows(stage, Value(), 1));
    return SmallVector<Value>();
  };
  if (stage.lanes == 1) {
    step({});
    return;
  }
  Value current = low;
  for (int64_t lanes : widthsFor(stage)) {
    insertAt(0);
    Value stop = high;
    if (lanes > 1) {
      Value count = make<arith::SubIOp>(high, current);
      Value rest = make<arith::RemUIOp>(count, i64(lanes));
      stop = make<arith::SubIOp>(high, rest);
    }
    width = lanes;
    loop(1, stage.laneVariable, current, stop, lanes, {}, step);
    current = stop;
    if (stage.lanes % lanes == 0)
      break;
  }
  width = 1;
}
