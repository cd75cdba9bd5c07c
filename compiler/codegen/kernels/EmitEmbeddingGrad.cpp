// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// embedding_grad on the host: a table that starts as zeros or as an
// accumulator, into which the gradient's rows are added in the order of their
// ids. Threads take blocks of columns, so no two threads write the same element
// and the order of additions, hence the bits, does not depend on the number of
// threads. A table of a 16-bit type sums each row in f32 first (see below).
#include "compiler/codegen/kernels/EmitEmbeddingGrad.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::kernels;
using nn::shapeOf;
using nn::tensorType;

static nn::EmbeddingGradOp embeddingGradOf(func::FuncOp kernel) {
  return cast<nn::EmbeddingGradOp>(
      kernel.getBody().front().getTerminator()->getOperand(0).getDefiningOp());
}

EmbeddingGradEmitter::EmbeddingGradEmitter(const ElementEmitter &kernelEmitter)
    : ElementEmitter(kernelEmitter), op(embeddingGradOf(kernel)),
      stage(plan.stages.front()), root(stage.roots.front()),
      declared(tensorType(op.getResult()).getElementType()),
      tableRows(shapeOf(op.getResult())[0]),
      table(buffers[kernel.getNumArguments()]),
      idsIndex(space.delinearize(stage.outerVariable, shapeOf(op.getIds()))) {}

void EmbeddingGradEmitter::emit(Value begin, Value end) {
  // A step of the range is a block of columns; the last block may be narrower.
  low = make<arith::MulIOp>(begin, i64(plan.blockLanes));
  high = make<arith::MinSIOp>(make<arith::MulIOp>(end, i64(plan.blockLanes)),
                              i64(stage.lanes));
  bool narrow = nn::isHalf(declared);
  if (narrow) {
    // The stack space is part of the plan (KernelPlan::stackBytes), so the
    // runtime's threads have it.
    auto allocate = [&](Type type, int64_t count) -> Value {
      Type pointerType = LLVM::LLVMPointerType::get(builder.getContext());
      return make<LLVM::AllocaOp>(pointerType, type, i64(count),
                                  /*alignment=*/64);
    };
    sums = allocate(builder.getF32Type(), stage.lanes);
    firstPlaces = allocate(builder.getI32Type(), tableRows);
    nextPlaces = allocate(builder.getI32Type(), stage.outer);
  }
  zero = i64(0), rows = i64(tableRows), count = i64(stage.outer);
  // One iteration, for a scope whose values stay outside of all loops.
  auto once = scf::ForOp::create(builder, loc, i64(0), i64(1), i64(1));
  scopes[0] = {once.getBody(), nullptr};
  // A row of the table, addressed by a variable of its own.
  tableRow = space.variable(1, tableRows);
  address = space.add(space.scale(tableRow, stage.lanes), stage.laneVariable);

  beginTable();
  // A constant outer variable means that there is one place, so no list is
  // needed.
  if (!narrow)
    addEachPlace();
  else if (stage.outerVariable.isConstant())
    addOnlyPlace();
  else {
    linkPlaces();
    sumPlaces();
  }
}

// ---- scopes ----

// Builds `body` for each vector of this call's columns, then for its tail.
void EmbeddingGradEmitter::overColumns(llvm::function_ref<void()> body) {
  SmallVector<int64_t> widths;
  if (stage.lanes >= target.lanes)
    widths.push_back(target.lanes);
  widths.push_back(1);
  Value current = low;
  for (int64_t lanes : widths) {
    insertAt(1);
    Value stop = high;
    if (lanes > 1) {
      Value rest =
          make<arith::RemUIOp>(make<arith::SubIOp>(high, current), i64(lanes));
      stop = make<arith::SubIOp>(high, rest);
    }
    width = lanes;
    loop(2, stage.laneVariable, current, stop, lanes, {}, [&](ValueRange) {
      body();
      return SmallVector<Value>();
    });
    current = stop;
    if (stage.lanes % lanes == 0)
      break;
  }
  width = 1;
}

void EmbeddingGradEmitter::overPlaces(llvm::function_ref<void()> body) {
  loop(1, stage.outerVariable, zero, count, 1, {}, [&](ValueRange) {
    body();
    return SmallVector<Value>();
  });
}

// ---- the table's beginning ----

// Sets the rows of the table to their initial values, in the columns of this
// call: the accumulator's elements, or zeros.
void EmbeddingGradEmitter::beginTable() {
  Value accumulator = op.getAccumulator();
  // Returns the initial value of the elements at `address`.
  auto begun = [&]() -> Value {
    Lanes value;
    if (accumulator)
      value = element(accumulator,
                      space.delinearize(address, shapeOf(accumulator)));
    insertAt(2);
    return accumulator ? spread(value.value)
                       : splatLike(lanesOf(scalarType(declared), width > 1), 0);
  };
  auto fill = [&] {
    loop(1, tableRow, zero, rows, 1, {}, [&](ValueRange) {
      overColumns([&] { store(table, declared, address, begun()); });
      return SmallVector<Value>();
    });
  };
  // Without an accumulator in memory, every row must be set.
  auto argument = dyn_cast_if_present<BlockArgument>(accumulator);
  if (!argument)
    return fill();
  // If the accumulator and the table are the same memory, the table has its
  // initial values already. Only the run time knows, since buffers are bare
  // pointers.
  insertAt(0);
  Value apart = make<LLVM::ICmpOp>(LLVM::ICmpPredicate::ne, table,
                                   buffers[argument.getArgNumber()]);
  auto guard = scf::IfOp::create(builder, loc, apart, false);
  Scope outer = scopes[0];
  scopes[0] = {guard.thenBlock(), nullptr};
  fill();
  forget(0);
  scopes[0] = outer;
}

// ---- rows ----

// Returns the table row of the current place; negative ids count from the end.
Value EmbeddingGradEmitter::rowOf() {
  Lanes raw = element(op.getIds(), idsIndex);
  insertAt(1);
  Value id = toI64(raw.value, tensorType(op.getIds()).getElementType());
  Value negative = make<arith::CmpIOp>(arith::CmpIPredicate::slt, id, zero);
  return make<arith::SelectOp>(negative, make<arith::AddIOp>(id, rows), id);
}

// Returns true (i1) if the id is inside the table and not the padding row.
Value EmbeddingGradEmitter::counts(Value id) {
  Value inside = make<arith::CmpIOp>(arith::CmpIPredicate::ult, id, rows);
  if (!op.getPaddingIndex())
    return inside;
  int64_t padding = *op.getPaddingIndex();
  padding += padding < 0 ? tableRows : 0;
  Value other = make<arith::CmpIOp>(arith::CmpIPredicate::ne, id, i64(padding));
  return make<arith::AndIOp>(inside, other);
}

// Adds the gradient at the current place to the row at address `at` of `to`.
void EmbeddingGradEmitter::addRow(Value to, Type type, const IndexExpr &at,
                                  bool rounds) {
  overColumns([&] {
    Lanes gradient = element(root.value, root.index);
    // Loaded at depth 2, since each place changes the row.
    Lanes sum = load(to, type, at, 2);
    insertAt(2);
    Value total = make<arith::AddFOp>(sum.value, spread(gradient.value));
    store(to, type, at, rounds ? roundTo(declared, total) : total);
  });
}

// Copies the columns of a row, and rounds them to the target's type.
void EmbeddingGradEmitter::copyRow(Value from, Type fromType,
                                   const IndexExpr &source, Value to,
                                   Type toType, const IndexExpr &at) {
  overColumns([&] {
    Lanes value = load(from, fromType, source, 2);
    insertAt(2);
    store(to, toType, at, roundTo(toType, value.value));
  });
}

// f32: adds each place to its row in memory.
void EmbeddingGradEmitter::addEachPlace() {
  overPlaces([&] {
    Value id = rowOf();
    setVariable(tableRow, id);
    when(counts(id), [&] { addRow(table, declared, address, false); });
  });
}

// A 16-bit type with a single id: one addition, so it may round at once.
void EmbeddingGradEmitter::addOnlyPlace() {
  setVariable(tableRow, rowOf());
  when(counts(rowOf()), [&] { addRow(table, declared, address, true); });
}

// ---- 16-bit types ----
//
// Adding rows to such a table one by one would round each time. Instead, the
// first place of an id sums that place and all later places of the id in f32,
// and rounds once. Linked lists of places (linkPlaces) find the later ones.

// Lists hold i32, and -1 for the end.
Value EmbeddingGradEmitter::placeAt(Value list, Value position) {
  Type i32 = builder.getI32Type();
  Value stored =
      make<LLVM::LoadOp>(i32, pointer(list, i32, position), /*alignment=*/4);
  return make<arith::ExtSIOp>(builder.getI64Type(), stored);
}

void EmbeddingGradEmitter::setPlace(Value list, Value position, Value value) {
  Type i32 = builder.getI32Type();
  LLVM::StoreOp::create(builder, loc, make<arith::TruncIOp>(i32, value),
                        pointer(list, i32, position), /*alignment=*/4);
}

// Links the places of each table row into a list. Places are visited from the
// last to the first and pushed in front, so that each list is in ascending
// order.
void EmbeddingGradEmitter::linkPlaces() {
  insertAt(0);
  // The bytes 0xFF make every i32 -1.
  Value none = arith::ConstantIntOp::create(builder, loc, 0xFF, 8);
  LLVM::MemsetOp::create(builder, loc, firstPlaces, none, i64(tableRows * 4),
                         /*isVolatile=*/false);
  overPlaces([&] {
    // Other values at this place are built from the variable, so it must be
    // reversed before the first of them.
    Value &place = variables[placeVariable()];
    insertAt(1);
    Value last = make<arith::SubIOp>(count, i64(1));
    place = make<arith::SubIOp>(last, place);
    Value current = place;
    Value id = rowOf();
    when(make<arith::CmpIOp>(arith::CmpIPredicate::ult, id, rows), [&] {
      setPlace(nextPlaces, current, placeAt(firstPlaces, id));
      setPlace(firstPlaces, id, current);
    });
  });
}

// Every place asks whether it is the first of its row. If so it adds up the
// whole list, so a row is rounded once, and the order of additions is that of
// the places.
void EmbeddingGradEmitter::sumPlaces() {
  Type f32 = builder.getF32Type();
  overPlaces([&] {
    Value current = variables[placeVariable()];
    Value id = rowOf();
    when(counts(id), [&] {
      Value isFirst = make<arith::CmpIOp>(arith::CmpIPredicate::eq,
                                          placeAt(firstPlaces, id), current);
      when(isFirst, [&] {
        setVariable(tableRow, id);
        copyRow(table, declared, address, sums, f32, stage.laneVariable);
        addPlacesFrom(current);
        // addPlacesFrom has set the variable inside its loop, whose values do
        // not dominate the code here.
        variables[placeVariable()] = current;
        setVariable(tableRow, id);
        copyRow(sums, f32, stage.laneVariable, table, declared, address);
      });
    });
  });
}

// Adds the gradients at a place and at all places that follow it in its list.
void EmbeddingGradEmitter::addPlacesFrom(Value first) {
  auto places = scf::WhileOp::create(
      builder, loc, first.getType(), first,
      [&](OpBuilder &, Location, ValueRange at) {
        Value more =
            make<arith::CmpIOp>(arith::CmpIPredicate::sge, at.front(), zero);
        scf::ConditionOp::create(builder, loc, more, at);
      },
      [](OpBuilder &, Location, ValueRange) {});
  within(places.getAfterBody(), [&] {
    Value place = places.getAfterArguments().front();
    variables[placeVariable()] = place;
    addRow(sums, builder.getF32Type(), stage.laneVariable, false);
    insertAt(1);
    scf::YieldOp::create(builder, loc, placeAt(nextPlaces, place));
  });
}
