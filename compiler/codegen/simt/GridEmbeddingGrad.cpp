// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// embedding_grad for grids. A block owns every n-th row of the table. It scans
// all ids once and lists the places of its own (GridPlaces.cpp); then its
// threads take vectors of its rows and add a row's places in ascending order in
// registers. So no sum is updated by two threads, and the bits do not depend on
// timing.
#include "compiler/codegen/simt/GridPlaces.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::simt;
using kernels::Lanes;
using nn::shapeOf;
using nn::tensorType;

// Gradients that a thread loads before it adds the first: as many as cover the
// latency of memory where one id has most places, and a few where a row has
// few.
static constexpr int64_t kManyPlaces = 32, kFewPlaces = 4;

GridEmitter::Values GridEmitter::inTurn(Value low, Value high, int64_t step,
                                        ValueRange carried, InTurn body) {
  auto turns = scf::ForOp::create(builder, loc, low, high,
                                  count(low.getType(), step), carried);
  within(turns.getBody(), [&] {
    Values results = body(turns.getInductionVar(), turns.getRegionIterArgs());
    if (carried.empty())
      return;
    builder.setInsertionPointToEnd(turns.getBody());
    scf::YieldOp::create(builder, loc, results);
  });
  return llvm::to_vector_of<Value>(turns.getResults());
}

// Places of the row are added in the order of the list, which is theirs. Of a
// group that is cut, the loads past the last place repeat it.
Value GridEmitter::addGroup(const Places &places, Value at, int64_t length,
                            const PlacesOfRow &row, bool isCut, Value sum) {
  const Root &root = plan.stages.front().roots.front();
  SmallVector<Value, 32> gradients, inside;
  for (int64_t i = 0; i < length; ++i) {
    insertAt(1);
    Value number = make<arith::AddIOp>(at, count(at.getType(), i));
    if (isCut) {
      inside.push_back(
          make<arith::CmpIOp>(arith::CmpIPredicate::slt, number, row.end));
      number = make<arith::MinSIOp>(number, row.last);
    }
    setVariable(plan.stages.front().outerVariable,
                toIndex(make<arith::SubIOp>(keyOf(places, number), row.first)));
    gradients.push_back(element(root.value, root.index).value);
    insertAt(1);
    forget(1);
  }
  for (int64_t i = 0; i < length; ++i) {
    Value next = make<arith::AddFOp>(sum, spread(gradients[i]));
    sum = isCut ? make<arith::SelectOp>(inside[i], next, sum) : next;
  }
  return sum;
}

// Adds the listed places of row `number` of the list to the sum.
Value GridEmitter::addPlaces(const Places &places, Value number, Value sum) {
  PlacesOfRow row = placesOf(places, number);
  Type i32 = builder.getI32Type();
  int64_t many = grid.threads == 1 ? kFewPlaces : kManyPlaces;
  // The end of the last whole group.
  Value length = make<arith::SubIOp>(row.end, row.begin);
  Value rest = make<arith::RemUIOp>(length, count(i32, many));
  Value whole = make<arith::SubIOp>(row.end, rest);
  auto add = [&](Value low, Value high, int64_t group, bool isCut, Value to) {
    return inTurn(low, high, group, to, [&](Value at, ValueRange carried) {
      return Values{addGroup(places, at, group, row, isCut, carried.front())};
    });
  };
  sum = add(row.begin, whole, many, false, sum).front();
  return add(whole, row.end, kFewPlaces, true, sum).front();
}

// Returns what the sum of a row starts with: 0, or the accumulator's element.
Value GridEmitter::beginSum(nn::EmbeddingGradOp op,
                            const kernels::IndexExpr &address) {
  Type declared = tensorType(op.getResult()).getElementType();
  Value accumulator = op.getAccumulator();
  if (!accumulator)
    return splatLike(lanesOf(kernels::scalarType(declared), width > 1), 0);
  Lanes value =
      element(accumulator, space.delinearize(address, shapeOf(accumulator)));
  insertAt(1);
  return spread(value.value);
}

// Sums up rows [first, first + rows) of the block. `fits` is true if the list
// has all of their places. Else it is one row, and its places are listed as
// many at a time as can never be too many; all threads of the block take part
// in that, those without a vector too.
void GridEmitter::sumTableRows(const Places &places, Value first, Value rows,
                               Value fits) {
  nn::EmbeddingGradOp op = places.op;
  Stage &stage = plan.stages.front();
  Type declared = tensorType(op.getResult()).getElementType();
  int64_t vectors = stage.lanes / width;
  Type type = counter(places.rows * vectors);
  kernels::IndexExpr tableRow = space.variable(1, places.tableRows);
  kernels::IndexExpr address =
      space.add(space.scale(tableRow, stage.lanes), stage.laneVariable);
  Value total = make<arith::MulIOp>(convert(rows, type), count(type, vectors));
  Value most =
      make<arith::SelectOp>(fits, i64(places.count), i64(places.capacity));
  Value end = i64(places.count);
  inTurn(count(type, 0), total, grid.threads, {}, [&](Value base, ValueRange) {
    Value flat = make<arith::AddIOp>(base, convert(places.thread, type));
    Value stores = make<arith::CmpIOp>(arith::CmpIPredicate::slt, flat, total);
    flat =
        make<arith::MinSIOp>(flat, make<arith::SubIOp>(total, count(type, 1)));
    Value ofVectors = count(type, vectors);
    Value number = make<arith::DivUIOp>(flat, ofVectors);
    if (type != builder.getI32Type())
      number = make<arith::TruncIOp>(builder.getI32Type(), number);
    setVariable(
        stage.laneVariable,
        make<arith::MulIOp>(toIndex(make<arith::RemUIOp>(flat, ofVectors)),
                            i64(width)));
    Value row = make<arith::AddIOp>(first, number);
    setVariable(
        tableRow,
        make<arith::AddIOp>(make<arith::MulIOp>(toIndex(row), i64(grid.blocks)),
                            toIndex(places.block)));
    auto batches = scf::ForOp::create(builder, loc, i64(0), end, most,
                                      ValueRange{beginSum(op, address)});
    within(batches.getBody(), [&] {
      Value from = batches.getInductionVar();
      Value isOpen = make<arith::XOrIOp>(fits, count(builder.getI1Type(), 1));
      when(isOpen, [&] {
        Value to = make<arith::AddIOp>(from, most);
        Value found = collectPlaces(places, first, rows, from,
                                    make<arith::MinSIOp>(to, end));
        orderPlaces(places, found, rows);
      });
      Value sum =
          addPlaces(places, number, batches.getRegionIterArgs().front());
      builder.setInsertionPointToEnd(batches.getBody());
      scf::YieldOp::create(builder, loc, sum);
    });
    when(stores, [&] {
      store(buffers[kernel.getNumArguments()], declared, address,
            roundTo(declared, batches.getResult(0)));
    });
    return Values();
  });
}

// Takes all rows of the block at once if the list has room for their places,
// else as many as it has room for. The loop carries the first row that is left
// and the number of rows to try.
void GridEmitter::emitEmbeddingGrad() {
  width = grid.widths.front();
  Places places = beginPlaces();
  Type i32 = builder.getI32Type();
  // The first blocks have a row more, if the rows do not divide evenly.
  Value last = make<arith::AddIOp>(toIndex(places.block),
                                   i64((places.rows - 1) * grid.blocks));
  Value own = make<arith::SelectOp>(below(last, places.tableRows),
                                    count(i32, places.rows),
                                    count(i32, places.rows - 1));
  SmallVector<Type> types = {i32, i32};
  SmallVector<Location> where(2, loc);
  auto turns =
      scf::WhileOp::create(builder, loc, types, ValueRange{count(i32, 0), own});
  scopes[0].anchor = turns;
  Block *test = builder.createBlock(&turns.getBefore(), {}, types, where);
  Value isLeft =
      make<arith::CmpIOp>(arith::CmpIPredicate::slt, test->getArgument(0), own);
  scf::ConditionOp::create(builder, loc, isLeft, test->getArguments());
  Block *turn = builder.createBlock(&turns.getAfter(), {}, types, where);
  within(turn, [&] {
    Value first = turn->getArgument(0);
    Value rows = make<arith::MinSIOp>(turn->getArgument(1),
                                      make<arith::SubIOp>(own, first));
    Value found = collectPlaces(places, first, rows, i64(0), i64(places.count));
    Value fits = make<arith::CmpIOp>(arith::CmpIPredicate::sle, found,
                                     count(i32, places.capacity));
    when(fits, [&] { orderPlaces(places, found, rows); });
    Value isOne =
        make<arith::CmpIOp>(arith::CmpIPredicate::eq, rows, count(i32, 1));
    Value takes = make<arith::OrIOp>(fits, isOne);
    when(takes, [&] { sumTableRows(places, first, rows, fits); });
    Value one = count(i32, 1);
    Value next =
        make<arith::SelectOp>(takes, make<arith::AddIOp>(first, rows), first);
    Value tries = make<arith::SelectOp>(takes, make<arith::ShLIOp>(rows, one),
                                        make<arith::ShRUIOp>(rows, one));
    builder.setInsertionPointToEnd(turn);
    scf::YieldOp::create(builder, loc, ValueRange{next, tries});
  });
}
