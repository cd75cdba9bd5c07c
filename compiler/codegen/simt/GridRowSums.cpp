// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows that are added up in blocks: one block of threads takes one block of
// rows. Its teams take the rows in turn, and each thread keeps the sums of its
// columns in registers; at the end the teams' sums are combined in order, in
// shared memory. A single thread, or one with too many columns, adds to the
// result in memory instead.
#include "compiler/codegen/simt/GridEmitter.h"

#include "compiler/dialects/nn/Build.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::simt;
using nn::tensorType;

namespace {
constexpr int64_t kSharedAtOnce = 40 << 10; // bytes for the sums of a round
} // namespace

// Hides from LLVM that a number is a loop's counter. Otherwise loop strength
// reduction gives each access of the loop a pointer of its own, two registers
// each: 28 of the 118 of a norm's gradient. All accesses now share the row's
// offset. An emulated block, of one thread, has no need for it.
Value GridEmitter::opaque(Value number) {
  return LLVM::InlineAsmOp::create(
             builder, loc, number.getType(), number, /*asm_string=*/"",
             number.getType().isInteger(64) ? "=l,0" : "=r,0",
             /*has_side_effects=*/false,
             /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None,
             LLVM::AsmDialectAttr(), ArrayAttr())
      .getResult(0);
}

// The last vectors may exist for a part of the team only; ownVector guards
// them.
int64_t GridEmitter::ownVectors(const Stage &stage) const {
  return llvm::divideCeil(stage.outer * stage.lanes / width, grid.team);
}

// Builds `body` for the thread's vector number `number`, guarded if the last
// ones do not exist for all threads. The loop is unrolled, hence the number is
// a constant.
GridEmitter::Values GridEmitter::ownVector(Stage &stage, int64_t number,
                                           ValueRange carried, Body body) {
  int64_t total = stage.outer * stage.lanes / width;
  insertAt(0);
  Value flat =
      make<arith::AddIOp>(member, count(member.getType(), number * grid.team));
  Values results;
  // Every thread of the team has this vector.
  if ((number + 1) * grid.team <= total) {
    setPosition(stage, stage.outerVariable, stage.outer, flat);
    results = overParts(stage, carried, body);
  } else {
    // The branch without a vector returns the values as they are.
    auto guard = scf::IfOp::create(
        builder, loc, llvm::to_vector(carried.getTypes()), below(flat, total),
        /*withElseRegion=*/!carried.empty());
    scopes[0].anchor = guard;
    scopes[1] = {guard.thenBlock(), nullptr};
    insertAt(1);
    setPosition(stage, stage.outerVariable, stage.outer, flat);
    results = overParts(stage, carried, body);
    if (!carried.empty()) {
      builder.setInsertionPointToEnd(guard.thenBlock());
      scf::YieldOp::create(builder, loc, results);
      builder.setInsertionPointToEnd(guard.elseBlock());
      scf::YieldOp::create(builder, loc, carried);
    }
    results = llvm::to_vector_of<Value>(guard.getResults());
    scopes[1] = {};
    scopes[0].anchor = nullptr;
  }
  forget(1);
  return results;
}

GridEmitter::Values GridEmitter::overOwnVectors(Stage &stage,
                                                ValueRange carried, Body body) {
  Values values(carried);
  // A stage that sums no rows has no running sums and only computes.
  size_t count = llvm::count_if(
      stage.roots, [](const Root &root) { return root.addsRows(); });
  for (int64_t number = 0; number < ownVectors(stage); ++number) {
    // Each vector owns the next `count` running sums: they follow the other
    // carried values in and out.
    auto *sums = rowSums.begin() + nextSum;
    Values both = values;
    both.append(sums, sums + count);
    Values results = ownVector(stage, number, both, body);
    values.assign(results.begin(), results.end() - count);
    std::copy(results.end() - count, results.end(), sums);
    nextSum += count;
  }
  return values;
}

// Builds the loop of this thread's team over the rows of the block. The loop
// carries the running sums.
void GridEmitter::emitRowBlock(Value block) {
  Type type = block.getType();
  Value first = make<arith::MulIOp>(block, count(type, plan.rowsPerBlock));
  Value end = make<arith::AddIOp>(first, count(type, plan.rowsPerBlock));
  Value start = first, line;
  int64_t teams = grid.threads / grid.team;
  if (teams > 1) {
    Value team = count(member.getType(), grid.team);
    line = make<arith::DivUIOp>(member, team);
    member = make<arith::RemUIOp>(member, team);
    start = make<arith::AddIOp>(first, convert(line, type));
  }
  // The order in which overOwnVectors and formRounds take the sums.
  if (grid.sumsInRegisters)
    for (auto [i, stage] : llvm::enumerate(plan.stages)) {
      width = grid.widths[i];
      for (int64_t number = 0; number < ownVectors(stage); ++number)
        for (Root &root : stage.roots)
          if (root.addsRows()) {
            Type element = tensorType(root.reduce.getResult()).getElementType();
            rowSums.push_back(
                neutral(root.reduce, lanesOf(element, width > 1)));
          }
    }
  auto rows =
      scf::ForOp::create(builder, loc, start, end, count(type, teams), rowSums);
  rowSums.assign(rows.getRegionIterArgs().begin(),
                 rows.getRegionIterArgs().end());
  scopes[0] = {rows.getBody(), nullptr};
  insertAt(0);
  Value number = rows.getInductionVar();
  setVariable(plan.row, toIndex(grid.threads > 1 ? opaque(number) : number));
  // In memory, the first row of the block stores instead of adding.
  if (!grid.sumsInRegisters)
    isFirstRow = make<arith::CmpIOp>(arith::CmpIPredicate::eq,
                                     rows.getInductionVar(), first);
  emitRow();
  insertAt(0);
  // The next row uses the same shared memory for its exchanges.
  if (sharesMemory())
    threads.synchronize(grid.team);
  if (!grid.sumsInRegisters)
    return;
  builder.setInsertionPointToEnd(rows.getBody());
  scf::YieldOp::create(builder, loc, rowSums);
  rowSums.assign(rows.getResults().begin(), rows.getResults().end());
  // Values of the loop do not dominate what follows. The row is the first of
  // the block again, from which the address of the sums follows.
  forget(0);
  scopes[0] = {&function.getBody().front(), nullptr};
  insertAt(0);
  setVariable(plan.row, toIndex(first));
  storeRowSums(line);
}

// A vector of columns that the thread owns, and the roots that sum it.
struct GridEmitter::SumVector {
  Stage *stage;
  int64_t width, number;
  SmallVector<Root *, 2> roots;
};

// Vectors whose sums fit shared memory together, so that the teams combine them
// at once. `sums` and `roots` have an entry per vector and root.
struct GridEmitter::SumRound {
  Values sums;
  SmallVector<Root *> roots;
  SmallVector<SumVector> vectors;
};

// Divides the running sums into rounds. Without teams there is one.
std::vector<GridEmitter::SumRound> GridEmitter::formRounds(bool hasTeams) {
  std::vector<SumRound> rounds;
  const Value *sum = rowSums.begin();
  auto add = [&](const SumVector &vector) {
    ArrayRef<Value> own(sum, vector.roots.size());
    // All slots have the size of the widest sum, so the space is asked for
    // together.
    Values both = rounds.empty() ? Values() : rounds.back().sums;
    llvm::append_range(both, own);
    if (rounds.empty() || (hasTeams && threads.spaceFor(both) > kSharedAtOnce))
      rounds.emplace_back();
    SumRound &round = rounds.back();
    round.vectors.push_back(vector);
    round.roots.append(vector.roots);
    llvm::append_range(round.sums, own);
    sum += own.size();
  };
  for (auto [i, stage] : llvm::enumerate(plan.stages)) {
    width = grid.widths[i];
    for (int64_t number = 0; number < ownVectors(stage); ++number) {
      SumVector vector{&stage, width, number, {}};
      for (Root &root : stage.roots)
        if (root.addsRows())
          vector.roots.push_back(&root);
      if (!vector.roots.empty())
        add(vector);
    }
  }
  return rounds;
}

// Goes through ownVector for the guard and the position; the values are already
// computed.
void GridEmitter::storeVector(const SumVector &vector, ValueRange sums) {
  width = vector.width;
  ownVector(*vector.stage, vector.number, {}, [&](ValueRange) {
    for (auto [root, sum] : llvm::zip(vector.roots, sums))
      store(buffers[kernel.getNumArguments() + root->output],
            tensorType(root->reduce.getResult()).getElementType(), root->sum,
            sum);
    return Values();
  });
}

// Combines the sums of all teams in rounds: each round puts as many vectors as
// shared memory holds, and the first team combines and stores them.
void GridEmitter::storeRowSums(Value line) {
  std::vector<SumRound> rounds = formRounds(/*hasTeams=*/bool(line));
  int64_t bytes = 0;
  for (const SumRound &round : rounds)
    bytes = std::max(bytes, threads.spaceFor(round.sums));
  insertAt(0);
  // A single buffer serves all rounds.
  Value shared = line ? threads.share(bytes) : Value();
  for (auto [number, round] : llvm::enumerate(rounds)) {
    insertAt(0);
    Scope outer = scopes[0];
    if (line) {
      // Waits until the first team has read the round before.
      if (number > 0)
        threads.synchronize(grid.threads);
      threads.put(shared, round.sums);
      auto first = scf::IfOp::create(builder, loc, below(line, 1),
                                     /*withElseRegion=*/false);
      scopes[0] = {first.thenBlock(), nullptr};
      insertAt(0);
      ArrayRef<Root *> roots = round.roots;
      round.sums = threads.take(shared, round.sums, member, grid.team,
                                [&](size_t i, Value a, Value b) {
                                  return combine(roots[i]->reduce, a, b);
                                });
    }
    ValueRange rest(round.sums);
    for (const SumVector &vector : round.vectors) {
      storeVector(vector, rest.take_front(vector.roots.size()));
      rest = rest.drop_front(vector.roots.size());
    }
    forget(0);
    scopes[0] = outer;
  }
}
