// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lists the places whose ids are of the block's rows, and sorts them by row and
// place. Threads append in any order to a counter that is updated atomically,
// in shared memory; as all keys differ, the sorted list does not depend on it.
#include "compiler/codegen/simt/GridPlaces.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::simt;
using kernels::Lanes;
using nn::shapeOf;
using nn::tensorType;

namespace {
constexpr int64_t kIdsAtOnce = 8;     // loads in flight per thread
constexpr int64_t kListBytes = 32768; // of keys
} // namespace

// ---- memory ----

static Value slot(OpBuilder &builder, Location loc, Value base, Type type,
                  Value number) {
  return LLVM::GEPOp::create(builder, loc, base.getType(), type, base,
                             ValueRange{number});
}

Value GridEmitter::keyOf(const Places &places, Value number) {
  return make<LLVM::LoadOp>(
      places.keyType, slot(builder, loc, places.keys, places.keyType, number));
}

GridEmitter::PlacesOfRow GridEmitter::placesOf(const Places &places,
                                               Value number) {
  Type i32 = builder.getI32Type();
  PlacesOfRow row;
  row.begin =
      make<LLVM::LoadOp>(i32, slot(builder, loc, places.begins, i32, number));
  row.end =
      make<LLVM::LoadOp>(i32, slot(builder, loc, places.ends, i32, number));
  row.last = make<arith::SubIOp>(row.end, count(i32, 1));
  row.first = make<arith::MulIOp>(convert(number, places.keyType),
                                  count(places.keyType, places.count));
  return row;
}

GridEmitter::Places GridEmitter::beginPlaces() {
  Places places;
  Stage &stage = plan.stages.front();
  places.op = cast<nn::EmbeddingGradOp>(
      kernel.getBody().front().getTerminator()->getOperand(0).getDefiningOp());
  places.tableRows = shapeOf(places.op.getResult())[0];
  places.rows = llvm::divideCeil(places.tableRows, grid.blocks);
  places.count = stage.outer;
  places.thread = threads.thread();
  places.block = threads.block();
  places.keyType = counter(places.rows * places.count);
  bool isWide = places.keyType == builder.getI64Type();
  places.none =
      count(places.keyType, isWide ? std::numeric_limits<int64_t>::max()
                                   : std::numeric_limits<int32_t>::max());
  int64_t keyBytes = isWide ? 8 : 4;
  places.capacity = std::min<int64_t>(llvm::PowerOf2Ceil(places.count),
                                      kListBytes / keyBytes);
  places.keys = threads.share(places.capacity * keyBytes);
  places.found = threads.share(4);
  places.begins = threads.share(places.rows * 4);
  places.ends = threads.share(places.rows * 4);
  places.ids =
      space.delinearize(stage.outerVariable, shapeOf(places.op.getIds()));
  return places;
}

// ---- search ----

// Returns the key of a place, or `none` if its id is not of the rows.
Value GridEmitter::keyAt(const Places &places, Value place, Value first,
                         Value rows) {
  nn::EmbeddingGradOp op = places.op;
  setVariable(plan.stages.front().outerVariable, place);
  Lanes raw = element(op.getIds(), places.ids);
  insertAt(1);
  Value id = toI64(raw.value, tensorType(op.getIds()).getElementType());
  Value negative = make<arith::CmpIOp>(arith::CmpIPredicate::slt, id, i64(0));
  // Negative ids count from the end.
  Value wrapped = make<arith::AddIOp>(id, i64(places.tableRows));
  id = make<arith::SelectOp>(negative, wrapped, id);
  // The padding row and ids outside the table receive no gradient.
  Value counts = below(id, places.tableRows);
  if (op.getPaddingIndex()) {
    int64_t padding = *op.getPaddingIndex();
    padding += padding < 0 ? places.tableRows : 0;
    counts = make<arith::AndIOp>(
        counts,
        make<arith::CmpIOp>(arith::CmpIPredicate::ne, id, i64(padding)));
  }
  // Frequent ids may be neighbours, as the first ones of a vocabulary are, so
  // neighbours have different blocks.
  Type type = counter(places.tableRows);
  if (type != id.getType())
    id = make<arith::TruncIOp>(type, id);
  Value blocks = count(type, grid.blocks);
  Value owner = make<arith::RemUIOp>(id, blocks);
  counts = make<arith::AndIOp>(
      counts, make<arith::CmpIOp>(arith::CmpIPredicate::eq, owner,
                                  convert(places.block, type)));
  Value row = make<arith::SubIOp>(make<arith::DivUIOp>(id, blocks),
                                  convert(first, type));
  counts = make<arith::AndIOp>(
      counts,
      make<arith::CmpIOp>(arith::CmpIPredicate::ult, row, convert(rows, type)));
  auto toKey = [&](Value number) -> Value {
    unsigned bits = number.getType().getIntOrFloatBitWidth();
    unsigned wanted = places.keyType.getIntOrFloatBitWidth();
    return bits > wanted ? make<arith::TruncIOp>(places.keyType, number)
                         : convert(number, places.keyType);
  };
  Value key = make<arith::AddIOp>(
      make<arith::MulIOp>(toKey(row), count(places.keyType, places.count)),
      toKey(place));
  return make<arith::SelectOp>(counts, key, places.none);
}

// Appends a key to the list, if there is room for it.
void GridEmitter::append(const Places &places, Value key) {
  Type i32 = builder.getI32Type();
  Value isOwn = make<arith::CmpIOp>(arith::CmpIPredicate::ne, key, places.none);
  when(isOwn, [&] {
    Value number = LLVM::AtomicRMWOp::create(
        builder, loc, LLVM::AtomicBinOp::add, places.found, count(i32, 1),
        LLVM::AtomicOrdering::monotonic);
    when(below(number, places.capacity), [&] {
      LLVM::StoreOp::create(
          builder, loc, key,
          slot(builder, loc, places.keys, places.keyType, number));
    });
  });
}

Value GridEmitter::collectPlaces(const Places &places, Value first, Value rows,
                                 Value from, Value to) {
  Type i32 = builder.getI32Type();
  int64_t atOnce = grid.threads == 1 ? 1 : kIdsAtOnce;
  LLVM::StoreOp::create(builder, loc, count(i32, 0), places.found);
  // No thread still reads the list that is replaced.
  threads.synchronize(grid.threads);
  Value begin = make<arith::AddIOp>(from, toIndex(places.thread));
  inTurn(begin, to, atOnce * grid.threads, {}, [&](Value at, ValueRange) {
    // All loads are in flight before the first id is needed.
    Values keys;
    Value last = make<arith::SubIOp>(to, i64(1));
    for (int64_t i = 0; i < atOnce; ++i) {
      insertAt(1);
      Value place = make<arith::AddIOp>(at, i64(i * grid.threads));
      Value isThere =
          make<arith::CmpIOp>(arith::CmpIPredicate::sle, place, last);
      place = make<arith::MinSIOp>(place, last);
      keys.push_back(make<arith::SelectOp>(
          isThere, keyAt(places, place, first, rows), places.none));
      forget(1);
    }
    for (Value key : keys)
      append(places, key);
    return Values();
  });
  threads.synchronize(grid.threads);
  Value found = make<LLVM::LoadOp>(i32, places.found);
  threads.synchronize(grid.threads);
  return found;
}

// ---- order ----

// Exchanges the keys of pair `number` that a step of a bitonic sort compares:
// those `apart` from each other, in runs of `run` that ascend and descend in
// turn.
void GridEmitter::exchangeKeys(const Places &places, Value number, Value run,
                               Value apart) {
  Type i32 = builder.getI32Type();
  Value within =
      make<arith::AndIOp>(number, make<arith::SubIOp>(apart, count(i32, 1)));
  Value low =
      make<arith::SubIOp>(make<arith::ShLIOp>(number, count(i32, 1)), within);
  Value high = make<arith::AddIOp>(low, apart);
  Value a = keyOf(places, low), b = keyOf(places, high);
  Value least = make<arith::MinSIOp>(a, b), most = make<arith::MaxSIOp>(a, b);
  Value ascends = make<arith::CmpIOp>(
      arith::CmpIPredicate::eq, make<arith::AndIOp>(low, run), count(i32, 0));
  auto put = [&](Value number, Value key) {
    LLVM::StoreOp::create(
        builder, loc, key,
        slot(builder, loc, places.keys, places.keyType, number));
  };
  put(low, make<arith::SelectOp>(ascends, least, most));
  put(high, make<arith::SelectOp>(ascends, most, least));
}

// A bitonic sort (Batcher, Sorting networks and their applications, 1968) of
// the first `size` keys, a power of two.
void GridEmitter::sortKeys(const Places &places, Value size) {
  Type i32 = builder.getI32Type();
  Value one = count(i32, 1);
  SmallVector<Type> types = {i32, i32};
  SmallVector<Location> where(2, loc);
  auto steps =
      scf::WhileOp::create(builder, loc, types, ValueRange{count(i32, 2), one});
  Block *test = builder.createBlock(&steps.getBefore(), {}, types, where);
  Value isOpen = make<arith::CmpIOp>(arith::CmpIPredicate::sle,
                                     test->getArgument(0), size);
  scf::ConditionOp::create(builder, loc, isOpen, test->getArguments());
  Block *step = builder.createBlock(&steps.getAfter(), {}, types, where);
  within(step, [&] {
    Value run = step->getArgument(0), apart = step->getArgument(1);
    inTurn(places.thread, make<arith::ShRUIOp>(size, one), grid.threads, {},
           [&](Value number, ValueRange) {
             exchangeKeys(places, number, run, apart);
             return Values();
           });
    threads.synchronize(grid.threads);
    Value half = make<arith::ShRUIOp>(apart, one);
    Value isLast =
        make<arith::CmpIOp>(arith::CmpIPredicate::eq, half, count(i32, 0));
    Value next =
        make<arith::SelectOp>(isLast, make<arith::ShLIOp>(run, one), run);
    builder.setInsertionPointToEnd(step);
    half = make<arith::SelectOp>(isLast, run, half);
    scf::YieldOp::create(builder, loc, ValueRange{next, half});
  });
}

// Notes where the places of each row begin and end in the sorted list.
void GridEmitter::markRows(const Places &places, Value found) {
  Type i32 = builder.getI32Type();
  Value one = count(i32, 1), last = make<arith::SubIOp>(found, one);
  auto rowOf = [&](Value number) -> Value {
    Value row = make<arith::DivUIOp>(keyOf(places, number),
                                     count(places.keyType, places.count));
    return row.getType() == i32 ? row : make<arith::TruncIOp>(i32, row);
  };
  inTurn(places.thread, found, grid.threads, {}, [&](Value at, ValueRange) {
    Value row = rowOf(at), after = make<arith::AddIOp>(at, one);
    auto mark = [&](Value end, Value neighbour, Value to, Value number) {
      Value isEnd = make<arith::CmpIOp>(arith::CmpIPredicate::eq, at, end);
      Value differs =
          make<arith::CmpIOp>(arith::CmpIPredicate::ne, rowOf(neighbour), row);
      when(make<arith::OrIOp>(isEnd, differs), [&] {
        LLVM::StoreOp::create(builder, loc, number,
                              slot(builder, loc, to, i32, row));
      });
    };
    Value before =
        make<arith::MaxSIOp>(make<arith::SubIOp>(at, one), count(i32, 0));
    mark(count(i32, 0), before, places.begins, at);
    mark(last, make<arith::MinSIOp>(after, last), places.ends, after);
    return Values();
  });
}

// Fills the list up to a power of two with keys that sort last.
void GridEmitter::orderPlaces(const Places &places, Value found, Value rows) {
  Type i32 = builder.getI32Type();
  Value log = make<arith::SubIOp>(
      count(i32, 32),
      LLVM::CountLeadingZerosOp::create(
          builder, loc, i32,
          make<arith::SubIOp>(make<arith::MaxSIOp>(found, count(i32, 1)),
                              count(i32, 1)),
          /*is_zero_poison=*/false));
  Value size = make<arith::ShLIOp>(count(i32, 1), log);
  auto fill = [&](Value low, Value high, Value base, Value value) {
    inTurn(low, high, grid.threads, {}, [&](Value number, ValueRange) {
      LLVM::StoreOp::create(builder, loc, value,
                            slot(builder, loc, base, value.getType(), number));
      return Values();
    });
  };
  fill(make<arith::AddIOp>(found, places.thread), size, places.keys,
       places.none);
  // Rows without places have an empty range.
  fill(places.thread, rows, places.begins, count(i32, 0));
  fill(places.thread, rows, places.ends, count(i32, 0));
  threads.synchronize(grid.threads);
  sortKeys(places, size);
  markRows(places, found);
  threads.synchronize(grid.threads);
}
