// The column template: threads side by side own vectors of columns, those above
// one another add every so many rows and then add up in their order.
#include "compiler/codegen/simt/GridEmitter.h"

#include "compiler/dialects/nn/Build.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::simt;

void GridEmitter::emitColumns() {
  Stage &stage = plan.stages.front();
  width = grid.widths.front();
  int64_t total = plan.rows * stage.lanes / width;
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
  // Threads past the last column add up that one and store nothing.
  bool isWhole = total % grid.across == 0;
  Value last = count(type, total - 1);
  setPosition(stage, plan.row, plan.rows,
              isWhole ? flat : make<arith::MinUIOp>(flat, last));

  Values sums = sumRows(stage, row ? toIndex(row) : Value(), above);
  Value stores = isWhole ? Value() : below(flat, total);
  Value shared;
  int64_t slot = 0; // bytes of one thread's sum
  auto bytesOf = [&](Value sum) -> int64_t {
    Type element = getElementTypeOrSelf(sum.getType());
    return width * llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
  };
  auto alignmentOf = [&](Value sum) {
    return std::min<int64_t>(bytesOf(sum), 16);
  };
  auto place = [&](size_t i, Value line) {
    // Each sum's vectors side by side, a line of threads after the other.
    Value vector = make<arith::AddIOp>(
        make<arith::MulIOp>(line, count(line.getType(), grid.across)), column);
    vector = make<arith::AddIOp>(
        vector, count(line.getType(), int64_t(i) * grid.threads));
    vector = make<arith::MulIOp>(vector, count(line.getType(), slot));
    return make<LLVM::GEPOp>(shared.getType(), builder.getI8Type(), shared,
                             ValueRange{vector});
  };
  if (above > 1) {
    insertAt(0);
    for (Value sum : sums)
      slot = std::max(slot, bytesOf(sum));
    shared = threads.share(slot * grid.threads * sums.size());
    for (auto [i, sum] : llvm::enumerate(sums))
      LLVM::StoreOp::create(builder, loc, sum, place(i, row), alignmentOf(sum));
    threads.synchronize(grid.threads);
    Value isFirst = below(row, 1);
    stores = stores ? make<arith::AndIOp>(stores, isFirst) : isFirst;
  }
  auto finish = [&] {
    insertAt(2);
    SmallVector<nn::ReduceOp> reductions;
    for (Root &root : stage.roots)
      if (root.reduce)
        reductions.push_back(root.reduce);
    for (int64_t line = 1; line < above; ++line)
      for (auto [i, op] : llvm::enumerate(reductions)) {
        Value other = make<LLVM::LoadOp>(
            sums[i].getType(), place(i, count(thread.getType(), line)),
            alignmentOf(sums[i]));
        sums[i] = combine(op, sums[i], other);
      }
    storeColumns(stage, sums);
  };
  if (stores)
    guarded(1, stores, finish);
  else
    finish();
}
