// embedding_grad for grids. A block owns a few rows of the table and searches
// all ids for theirs; its threads own columns. The places of a row are added in
// ascending order in a register, so no memory is updated by two threads, no
// atomics are needed, and the bits do not depend on timing.
#include "compiler/codegen/simt/GridEmitter.h"

#include "compiler/dialects/nn/Build.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::simt;
using kernels::IndexExpr;
using kernels::Lanes;
using nn::shapeOf;
using nn::tensorType;

namespace {
constexpr int64_t kIdsAtOnce = 8; // loads in flight per thread
} // namespace

// The values that all steps of the emission share. Each place of an id that
// belongs to the block's rows has a key, which sorts by row, then by place.
struct GridEmitter::Lookup {
  Lookup(nn::EmbeddingGradOp op, Stage &stage)
      : op(op), stage(stage), tableRows(shapeOf(op.getResult())[0]),
        places(stage.outer) {}

  nn::EmbeddingGradOp op;
  Stage &stage;
  int64_t tableRows, places;
  Value thread;
  Value stores;       // i1: the thread has a column; null if all have one
  Value first;        // i64: the block's first row
  Value shared;       // memory through which the block's threads agree, or null
  Type keyType;       // i32 or i64
  Value none;         // larger than all keys
  kernels::Index ids; // of the id at the outer variable
};

// Gives the thread its columns and the block its rows. Threads past the last
// column compute the last column and store nothing, so that all threads take
// part in the search.
void GridEmitter::takeColumns(Lookup &lookup) {
  Type i32 = builder.getI32Type();
  // If a row is wider than the block's threads, several blocks share its rows,
  // each with a slice of the columns.
  int64_t vectors = lookup.stage.lanes / width;
  int64_t slices = llvm::divideCeil(vectors, grid.threads);
  lookup.thread = threads.thread();
  Value block = threads.block(), column = lookup.thread, first = block;
  if (slices > 1) {
    first = make<arith::DivUIOp>(block, count(i32, slices));
    Value slice = make<arith::RemUIOp>(block, count(i32, slices));
    column = make<arith::AddIOp>(
        make<arith::MulIOp>(slice, count(i32, grid.threads)), column);
  }
  bool isWhole = vectors % grid.threads == 0;
  lookup.stores = isWhole ? Value() : below(column, vectors);
  setPosition(lookup.stage, 0, 1,
              isWhole ? column
                      : make<arith::MinUIOp>(column, count(i32, vectors - 1)));
  lookup.first = make<arith::MulIOp>(toIndex(first), i64(grid.tableRows));
}

// Narrows an i64 index to the type of keys, in which it is known to fit.
Value GridEmitter::toKey(const Lookup &lookup, Value index) {
  return lookup.keyType == builder.getI64Type()
             ? index
             : make<arith::TruncIOp>(lookup.keyType, index);
}

// Returns the key of a place, or `none` if its id is not of the block's rows.
Value GridEmitter::keyAt(const Lookup &lookup, Value place) {
  nn::EmbeddingGradOp op = lookup.op;
  setVariable(lookup.stage.outerVariable, place);
  Lanes raw = element(op.getIds(), lookup.ids);
  insertAt(1);
  Value id = toI64(raw.value, tensorType(op.getIds()).getElementType());
  Value negative = make<arith::CmpIOp>(arith::CmpIPredicate::slt, id, i64(0));
  // Negative ids count from the end.
  Value wrapped = make<arith::AddIOp>(id, i64(lookup.tableRows));
  id = make<arith::SelectOp>(negative, wrapped, id);
  Value row = make<arith::SubIOp>(id, lookup.first);
  // The padding row and ids outside the table receive no gradient.
  Value counts = make<arith::AndIOp>(below(row, grid.tableRows),
                                     below(id, lookup.tableRows));
  if (op.getPaddingIndex()) {
    int64_t padding = *op.getPaddingIndex();
    padding += padding < 0 ? lookup.tableRows : 0;
    Value isOther =
        make<arith::CmpIOp>(arith::CmpIPredicate::ne, id, i64(padding));
    counts = make<arith::AndIOp>(counts, isOther);
  }
  Value key =
      make<arith::AddIOp>(make<arith::MulIOp>(row, i64(lookup.places)), place);
  return make<arith::SelectOp>(counts, toKey(lookup, key), lookup.none);
}

// Returns the smallest key >= `least` among the places that this thread
// searches (every n-th).
Value GridEmitter::search(const Lookup &lookup, Value least) {
  // Looks at several places per iteration if the count divides evenly: their
  // loads are all in flight before the first one is needed.
  int64_t atOnce = grid.threads == 1 ? 1 : kIdsAtOnce;
  while (atOnce > 1 && lookup.places % (atOnce * grid.threads) != 0)
    atOnce /= 2;
  auto all = scf::ForOp::create(builder, loc, toIndex(lookup.thread),
                                i64(lookup.places), i64(atOnce * grid.threads),
                                ValueRange{lookup.none});
  OpBuilder::InsertionGuard guard(builder);
  // The loop may be built inside another scope of depth 1, which it replaces
  // until it is done.
  Scope outer = scopes[0], before = scopes[1];
  forget(1);
  if (!outer.anchor)
    scopes[0].anchor = all;
  scopes[1] = {all.getBody(), nullptr};
  insertAt(1);
  Value result = all.getRegionIterArgs().front();
  for (int64_t i = 0; i < atOnce; ++i) {
    insertAt(1);
    Value key = keyAt(lookup, make<arith::AddIOp>(all.getInductionVar(),
                                                  i64(i * grid.threads)));
    Value counts = make<arith::CmpIOp>(arith::CmpIPredicate::sge, key, least);
    key = make<arith::SelectOp>(counts, key, lookup.none);
    result = make<arith::MinSIOp>(key, result);
    forget(1);
  }
  scf::YieldOp::create(builder, loc, ValueRange{result});
  forget(1);
  scopes[0] = outer;
  scopes[1] = before;
  return all.getResult(0);
}

// Builds the condition of addPlaces: passes the block's smallest next key, the
// thread's own and the sum to the body, if the key is of the row.
void GridEmitter::agreeOnNext(const Lookup &lookup, Block *test, Value endKey) {
  builder.setInsertionPointToEnd(test);
  Value next =
      threads
          .reduce(ValueRange{test->getArgument(0)}, grid.threads, lookup.shared,
                  [&](size_t, Value a, Value b) -> Value {
                    return make<arith::MinSIOp>(a, b);
                  })
          .front();
  // Waits until all threads have read what the next turn overwrites.
  if (lookup.shared)
    threads.synchronize(grid.threads);
  Value isOfRow = make<arith::CmpIOp>(arith::CmpIPredicate::slt, next, endKey);
  scf::ConditionOp::create(
      builder, loc, isOfRow,
      ValueRange{next, test->getArgument(0), test->getArgument(1)});
}

// Adds the places of a row one after the other. The loop carries the next key
// of this thread and the sum. In each turn the block agrees on the smallest
// next key, and the thread that found it searches on. Returns the thread's next
// key and the sum.
GridEmitter::Values GridEmitter::addPlaces(const Lookup &lookup, Value firstKey,
                                           Value ownKey, Value begun) {
  const Root &root = lookup.stage.roots.front();
  Type keyType = lookup.keyType;
  // Keys of the row are [firstKey, endKey).
  Value endKey = make<arith::AddIOp>(firstKey, count(keyType, lookup.places));
  SmallVector<Type> types = {keyType, begun.getType()};
  SmallVector<Type> inside = {keyType, keyType, begun.getType()};
  SmallVector<Location> where(inside.size(), loc);
  auto turns =
      scf::WhileOp::create(builder, loc, inside, ValueRange{ownKey, begun});
  OpBuilder::InsertionGuard guard(builder);
  agreeOnNext(lookup,
              builder.createBlock(&turns.getBefore(), {}, types,
                                  ArrayRef(where).drop_front()),
              endKey);
  Block *turn = builder.createBlock(&turns.getAfter(), {}, inside, where);
  Value next = turn->getArgument(0);
  Scope before = scopes[1];
  forget(1);
  scopes[1] = {turn, nullptr};
  insertAt(1);
  // The key, less the row's first key, is the place.
  setVariable(lookup.stage.outerVariable,
              toIndex(make<arith::SubIOp>(next, firstKey)));
  Lanes gradient = element(root.value, root.index);
  insertAt(1);
  Value sum = make<arith::AddFOp>(turn->getArgument(2), spread(gradient.value));
  // Keys differ among threads, as each searches other places, so exactly one
  // thread advances.
  Value isOwn =
      make<arith::CmpIOp>(arith::CmpIPredicate::eq, next, turn->getArgument(1));
  auto another = scf::IfOp::create(builder, loc, TypeRange{keyType}, isOwn,
                                   /*withElseRegion=*/true);
  builder.setInsertionPointToEnd(another.thenBlock());
  Value found = search(lookup, make<arith::AddIOp>(next, count(keyType, 1)));
  scf::YieldOp::create(builder, loc, ValueRange{found});
  builder.setInsertionPointToEnd(another.elseBlock());
  scf::YieldOp::create(builder, loc, ValueRange{turn->getArgument(1)});
  builder.setInsertionPointToEnd(turn);
  scf::YieldOp::create(builder, loc, ValueRange{another.getResult(0), sum});
  forget(1);
  scopes[1] = before;
  return {turns.getResult(1), turns.getResult(2)};
}

// Returns what the sum of a row starts with: 0, or the accumulator's element.
Value GridEmitter::beginSum(const Lookup &lookup, const IndexExpr &address) {
  nn::EmbeddingGradOp op = lookup.op;
  Type declared = tensorType(op.getResult()).getElementType();
  Value begun = splatLike(lanesOf(kernels::scalarType(declared), width > 1), 0);
  if (Value accumulator = op.getAccumulator()) {
    Lanes value =
        element(accumulator, space.delinearize(address, shapeOf(accumulator)));
    insertAt(1);
    begun = spread(value.value);
  }
  return begun;
}

void GridEmitter::emitEmbeddingGrad() {
  auto op = cast<nn::EmbeddingGradOp>(
      kernel.getBody().front().getTerminator()->getOperand(0).getDefiningOp());
  Stage &stage = plan.stages.front();
  Type declared = tensorType(op.getResult()).getElementType();
  width = grid.widths.front();
  Lookup lookup(op, stage);
  takeColumns(lookup);
  if (int64_t bytes = threads.sharedFor(1, grid.threads))
    lookup.shared = threads.share(bytes);
  // Keys count places within the block's rows. The type is wide enough for all
  // of them, so that `none` is larger than any.
  Type keyType = counter(lookup.places * grid.tableRows);
  lookup.keyType = keyType;
  lookup.none = count(keyType, keyType == builder.getI64Type()
                                   ? std::numeric_limits<int64_t>::max()
                                   : std::numeric_limits<int32_t>::max());
  lookup.ids = space.delinearize(stage.outerVariable, shapeOf(op.getIds()));
  // Keys are added in ascending order, so the first search starts at 0 and each
  // later one after the key that was added last. A search scans all places of
  // the thread.
  Value own = search(lookup, count(keyType, 0));

  IndexExpr tableRow = space.variable(1, lookup.tableRows);
  IndexExpr address =
      space.add(space.scale(tableRow, stage.lanes), stage.laneVariable);
  Value end = make<arith::AddIOp>(lookup.first, i64(grid.tableRows));
  end = make<arith::MinSIOp>(end, i64(lookup.tableRows));
  // Threads past the last column run the rows too: the search is the block's.
  auto rows = scf::ForOp::create(builder, loc, lookup.first, end, i64(1),
                                 ValueRange{own});
  scopes[0].anchor = rows;
  scopes[1] = {rows.getBody(), nullptr};
  insertAt(1);
  Value row = rows.getInductionVar();
  setVariable(tableRow, row);
  Value begun = beginSum(lookup, address);
  Value firstKey =
      toKey(lookup, make<arith::MulIOp>(make<arith::SubIOp>(row, lookup.first),
                                        i64(lookup.places)));
  Values sums =
      addPlaces(lookup, firstKey, rows.getRegionIterArgs().front(), begun);
  builder.setInsertionPointToEnd(rows.getBody());
  scf::YieldOp::create(builder, loc, ValueRange{sums[0]});
  insertAt(1);
  auto finish = [&] {
    store(buffers[kernel.getNumArguments()], declared, address,
          roundTo(declared, sums[1]));
  };
  if (!lookup.stores)
    return finish();
  guarded(2, lookup.stores, [&] {
    insertAt(2);
    finish();
  });
}
