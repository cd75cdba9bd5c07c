// embedding_grad: a table of zeroes, or of an accumulator, into which rows are
// added in the order of their ids. Threads take columns, so no two of them
// meet.
#include "compiler/codegen/kernels/LoopEmitter.h"

#include "compiler/dialects/nn/Build.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::kernels;
using nn::shapeOf;
using nn::tensorType;

void LoopEmitter::emitEmbeddingGrad(Value begin, Value end) {
  auto op = cast<nn::EmbeddingGradOp>(
      kernel.getBody().front().getTerminator()->getOperand(0).getDefiningOp());
  Stage &stage = plan.stages.front();
  const Root &root = stage.roots.front();
  Type declared = tensorType(op.getResult()).getElementType();
  int64_t tableRows = shapeOf(op.getResult())[0];
  Value table = buffers[kernel.getNumArguments()];
  IndexSpace &s = space;
  Index idsIndex = s.delinearize(stage.outerVariable, shapeOf(op.getIds()));

  Value low = make<arith::MulIOp>(begin, i64(kColumnBlock));
  Value high = make<arith::MinSIOp>(make<arith::MulIOp>(end, i64(kColumnBlock)),
                                    i64(stage.lanes));
  // For bf16: a row's sums, each row's first place, and each place's next one.
  Value sums, first, next;
  if (declared.isBF16()) {
    auto allocate = [&](Type type, int64_t count) -> Value {
      Type pointerType = LLVM::LLVMPointerType::get(builder.getContext());
      return make<LLVM::AllocaOp>(pointerType, type, i64(count),
                                  /*alignment=*/64);
    };
    sums = allocate(builder.getF32Type(), stage.lanes);
    first = allocate(builder.getI32Type(), tableRows);
    next = allocate(builder.getI32Type(), stage.outer);
  }
  Value zero = i64(0), rows = i64(tableRows), count = i64(stage.outer);
  // One iteration, for a scope whose values stay outside of all loops.
  auto once = scf::ForOp::create(builder, loc, i64(0), i64(1), i64(1));
  scopes[0] = {once.getBody(), nullptr};

  auto overColumns = [&](llvm::function_ref<void()> body) {
    SmallVector<int64_t> widths;
    if (stage.lanes >= target.lanes)
      widths.push_back(target.lanes);
    widths.push_back(1);
    Value current = low;
    for (int64_t lanes : widths) {
      insertAt(1);
      Value stop = high;
      if (lanes > 1) {
        Value rest = make<arith::RemUIOp>(make<arith::SubIOp>(high, current),
                                          i64(lanes));
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
  };

  // A row of the table, addressed by a variable of its own.
  IndexExpr tableRow = s.variable(1, tableRows);
  IndexExpr address = s.add(s.scale(tableRow, stage.lanes), stage.laneVariable);
  Type element = scalarType(declared);
  Value accumulator = op.getAccumulator();
  auto begun = [&]() -> Value {
    Lanes value;
    if (accumulator)
      value = this->element(accumulator,
                            s.delinearize(address, shapeOf(accumulator)));
    insertAt(2);
    return accumulator ? spread(value.value)
                       : splatLike(lanesOf(element, width > 1), 0);
  };
  auto beginTable = [&] {
    loop(1, tableRow, zero, rows, 1, {}, [&](ValueRange) {
      overColumns([&] { store(table, declared, address, begun()); });
      return SmallVector<Value>();
    });
  };
  // An accumulator that lies where the table does is its beginning already.
  if (auto argument = dyn_cast_if_present<BlockArgument>(accumulator)) {
    insertAt(0);
    Value apart = make<LLVM::ICmpOp>(LLVM::ICmpPredicate::ne, table,
                                     buffers[argument.getArgNumber()]);
    auto guard = scf::IfOp::create(builder, loc, apart, false);
    Scope outer = scopes[0];
    scopes[0] = {guard.thenBlock(), nullptr};
    beginTable();
    forget(0);
    scopes[0] = outer;
  } else {
    beginTable();
  }

  auto rowOf = [&]() -> Value {
    Lanes raw = this->element(op.getIds(), idsIndex);
    insertAt(1);
    Value id = toI64(raw.value, tensorType(op.getIds()).getElementType());
    Value negative = make<arith::CmpIOp>(arith::CmpIPredicate::slt, id, zero);
    return make<arith::SelectOp>(negative, make<arith::AddIOp>(id, rows), id);
  };
  // The padding row and ids outside the table get nothing.
  auto counts = [&](Value id) -> Value {
    Value inside = make<arith::CmpIOp>(arith::CmpIPredicate::ult, id, rows);
    if (!op.getPaddingIndex())
      return inside;
    int64_t padding = *op.getPaddingIndex();
    padding += padding < 0 ? tableRows : 0;
    Value other =
        make<arith::CmpIOp>(arith::CmpIPredicate::ne, id, i64(padding));
    return make<arith::AndIOp>(inside, other);
  };
  // Builds inside `block`, which is part of the loop over ids.
  auto nested = [&](Block *block, llvm::function_ref<void()> body) {
    Scope outer = scopes[1];
    forget(1);
    scopes[1] = {block, nullptr};
    insertAt(1);
    body();
    forget(1);
    scopes[1] = outer;
    insertAt(1);
  };
  auto addRow = [&](Value sums, Type type, const IndexExpr &place) {
    overColumns([&] {
      Lanes gradient = this->element(root.value, root.index);
      Lanes sum = load(sums, type, place, 2);
      insertAt(2);
      store(sums, type, place,
            make<arith::AddFOp>(sum.value, spread(gradient.value)));
    });
  };
  auto when = [&](Value condition, llvm::function_ref<void()> body) {
    auto guard = scf::IfOp::create(builder, loc, condition, false);
    nested(guard.thenBlock(), body);
  };
  auto setTableRow = [&](Value id) { setVariable(tableRow, id); };

  if (!declared.isBF16()) {
    loop(1, stage.outerVariable, zero, count, 1, {}, [&](ValueRange) {
      Value id = rowOf();
      setTableRow(id);
      when(counts(id), [&] { addRow(table, declared, address); });
      return SmallVector<Value>();
    });
    return;
  }

  // bf16: a row is summed in f32 before it is rounded, at its id's first place,
  // over that and all later places of the id.
  if (stage.outerVariable.isConstant()) {
    setTableRow(rowOf());
    when(counts(rowOf()), [&] {
      overColumns([&] {
        Lanes gradient = this->element(root.value, root.index);
        Lanes sum = load(table, declared, address, 2);
        insertAt(2);
        sum.value = make<arith::AddFOp>(sum.value, spread(gradient.value));
        store(table, declared, address, roundBf16(sum.value));
      });
    });
    return;
  }
  Type f32 = builder.getF32Type(), i32 = builder.getI32Type();
  int place = stage.outerVariable.terms.front().first;
  auto place32 = [&](Value list, Value position) -> Value {
    Value stored =
        make<LLVM::LoadOp>(i32, pointer(list, i32, position), /*alignment=*/4);
    return make<arith::ExtSIOp>(builder.getI64Type(), stored);
  };
  auto setPlace32 = [&](Value list, Value position, Value value) {
    LLVM::StoreOp::create(builder, loc, make<arith::TruncIOp>(i32, value),
                          pointer(list, i32, position), /*alignment=*/4);
  };
  // Each row's places as a list in their order, made from the last to the
  // first.
  insertAt(0);
  Value none = arith::ConstantIntOp::create(builder, loc, 0xFF, 8);
  LLVM::MemsetOp::create(builder, loc, first, none, i64(tableRows * 4),
                         /*isVolatile=*/false);
  loop(1, stage.outerVariable, zero, count, 1, {}, [&](ValueRange) {
    insertAt(1);
    Value last = make<arith::SubIOp>(count, i64(1));
    variables[place] = make<arith::SubIOp>(last, variables[place]);
    Value id = rowOf();
    when(make<arith::CmpIOp>(arith::CmpIPredicate::ult, id, rows), [&] {
      setPlace32(next, variables[place], place32(first, id));
      setPlace32(first, id, variables[place]);
    });
    return SmallVector<Value>();
  });
  loop(1, stage.outerVariable, zero, count, 1, {}, [&](ValueRange) {
    Value current = variables[place];
    Value id = rowOf();
    when(counts(id), [&] {
      Value isFirst = make<arith::CmpIOp>(arith::CmpIPredicate::eq,
                                          place32(first, id), current);
      when(isFirst, [&] {
        setTableRow(id);
        overColumns([&] {
          Lanes sum = load(table, declared, address, 2);
          insertAt(2);
          store(sums, f32, stage.laneVariable, sum.value);
        });
        auto places = scf::WhileOp::create(
            builder, loc, current.getType(), current,
            [&](OpBuilder &, Location, ValueRange at) {
              Value more = make<arith::CmpIOp>(arith::CmpIPredicate::sge,
                                               at.front(), zero);
              scf::ConditionOp::create(builder, loc, more, at);
            },
            [](OpBuilder &, Location, ValueRange) {});
        nested(places.getAfterBody(), [&] {
          variables[place] = places.getAfterArguments().front();
          addRow(sums, f32, stage.laneVariable);
          insertAt(1);
          scf::YieldOp::create(builder, loc, place32(next, variables[place]));
        });
        variables[place] = current;
        setTableRow(id);
        overColumns([&] {
          Lanes sum = load(sums, f32, stage.laneVariable, 2);
          insertAt(2);
          store(table, declared, address, roundBf16(sum.value));
        });
      });
    });
    return SmallVector<Value>();
  });
}
