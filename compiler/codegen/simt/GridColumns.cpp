// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The column template for grids. The threads of a line own adjacent vectors of
// columns; the lines of a block share the rows, each taking every n-th, and
// their sums are combined in shared memory in the order of the lines.
#include "compiler/codegen/simt/GridEmitter.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::simt;

// Builds the code of one thread: its columns, its share of the rows, and for
// the first line the combination and the store.
void GridEmitter::emitColumns() {
  Stage &stage = plan.stages.front();
  width = grid.widths.front();
  int64_t total = plan.rows * stage.lanes / width;
  // Lines per block.
  int64_t above = grid.threads / grid.across;
  Type type = counter(total);
  Value thread = threads.thread(), column = thread, row;
  if (above > 1) {
    Value across = count(thread.getType(), grid.across);
    column = make<arith::RemUIOp>(thread, across);
    row = make<arith::DivUIOp>(thread, across);
  }
  Value begin = make<arith::MulIOp>(convert(threads.block(), type),
                                    count(type, grid.across));
  Value flat = make<arith::AddIOp>(begin, convert(column, type));
  // Threads past the last column reduce the last column and store nothing, so
  // that all threads reach the barriers.
  bool isWhole = total % grid.across == 0;
  Value last = count(type, total - 1);
  setPosition(stage, plan.row, plan.rows,
              isWhole ? flat : make<arith::MinUIOp>(flat, last));

  Values sums = sumRows(stage, row ? toIndex(row) : Value(), above);
  Value stores = isWhole ? Value() : below(flat, total);
  Value shared;
  if (above > 1) {
    insertAt(0);
    shared = threads.share(threads.spaceFor(sums));
    threads.put(shared, sums);
    // Only the first line has the total.
    Value isFirst = below(row, 1);
    stores = stores ? make<arith::AndIOp>(stores, isFirst) : isFirst;
  }
  auto finish = [&] {
    insertAt(2);
    // take() numbers the values as sumRows does: by reduction.
    SmallVector<nn::ReduceOp> reductions;
    for (Root &root : stage.roots)
      if (root.reduce)
        reductions.push_back(root.reduce);
    if (above > 1)
      sums = threads.take(shared, sums, column, grid.across,
                          [&](size_t i, Value a, Value b) {
                            return combine(reductions[i], a, b);
                          });
    storeColumns(stage, sums);
  };
  if (stores)
    guarded(1, stores, finish);
  else
    finish();
}
