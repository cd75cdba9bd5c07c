// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loops of the templates on the host. A loop over lanes runs in vectors,
// then in single elements for the tail. The widths suit what the loop computes;
// EmitRows.cpp has the loops that reduce rows, whose order of additions follows
// from the op alone.
#include "compiler/analysis/kernels/ReductionOrder.h"
#include "compiler/codegen/kernels/EmitEmbeddingGrad.h"
#include "compiler/codegen/kernels/LoopEmitter.h"
#include "compiler/dialects/nn/ElementBytes.h"

#include "compiler/dialects/nn/Build.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::kernels;
using nn::tensorType;

// ---- stages ----

// Several registers per step hide the latency of a reduction's additions or of
// a long chain of operations, fill the block of columns, or use all four words
// that a call of the random generator yields.
int64_t LoopEmitter::widest(const Stage &stage) const {
  bool reduces = llvm::any_of(stage.roots, [](const Root &root) {
    return root.reduce && !root.addsRows();
  });
  // Costs are in simple ops (Stage::cost). The more a step computes, the fewer
  // vectors fit the registers.
  int64_t several = stage.cost <= 14 ? 4 : stage.cost <= 40 ? 2 : 1;
  if (stage.roots.size() > 2)
    several = std::min<int64_t>(several, 2);
  if (!reduces)
    several = stage.drawsRandom ? 4 : stage.cost >= 12 ? 2 : 1;
  return several * target.lanes;
}

// Returns the vector widths of the lanes' loop, from wide to narrow. The last
// is 1, for the tail.
SmallVector<int64_t> LoopEmitter::widthsFor(const Stage &stage) const {
  SmallVector<int64_t> widths;
  int64_t longest = 0, previous = 0;
  // The longest part decides, since most steps run there.
  for (int64_t cut : stage.cuts) {
    longest = std::max(longest, cut - previous);
    previous = cut;
  }
  longest = std::max(longest, stage.lanes - previous);

  int64_t wide = widest(stage);
  // A column loop never crosses its block of columns.
  if (plan.kind == nn::KernelTemplate::column)
    wide = std::min<int64_t>(wide, kColumnBlock);
  if (wide > target.lanes && longest >= wide)
    widths.push_back(wide);

  if (int64_t best = analysis::fewestSteps(longest, target.lanes); best > 1)
    widths.push_back(best);
  widths.push_back(1);
  return widths;
}

// All elements are computed before the first store, since a result may lie in
// the memory of an operand (a tie).
SmallVector<Value> LoopEmitter::step(Stage &stage, ValueRange carried) {
  SmallVector<Value> results;
  for (Root &root : stage.roots) {
    Lanes value = element(root.value, root.index);
    if (!root.reduce || root.addsRows())
      continue;
    insertAt(2);
    results.push_back(
        combine(root.reduce, carried[results.size()], spread(value.value)));
  }
  for (Root &root : stage.roots)
    if (root.addsRows())
      addToOutput(root);
    else if (!root.reduce)
      storeOutput(root);
  return results;
}

// Emits the lanes' loops of a stage without reductions of rows over [low,
// high): one per part between cuts and per width.
void LoopEmitter::emitParts(Stage &stage, Value low, Value high) {
  auto constantOf = [](Value value) -> std::optional<int64_t> {
    APInt number;
    if (value && matchPattern(value, m_ConstantInt(&number)))
      return number.getSExtValue();
    return std::nullopt;
  };
  if (stage.lanes == 1) {
    width = 1;
    step(stage, {});
    return;
  }
  SmallVector<int64_t> widths = widthsFor(stage);
  SmallVector<int64_t> bounds = {0};
  llvm::append_range(bounds, stage.cuts);
  bounds.push_back(stage.lanes);
  std::optional<int64_t> first = constantOf(low), last = constantOf(high);
  for (size_t part = 0; part + 1 < bounds.size(); ++part) {
    int64_t begin = bounds[part], end = bounds[part + 1];
    // Conditions on the lane are decided inside a part, so everything that used
    // the lane before the cut must be built again.
    space.setRange(stage.laneVariable, {begin, end - 1});
    forgetLanes();
    // With constant bounds the cuts are constants too, and loops that would not
    // run are not built.
    bool isStatic = first && last;
    insertAt(1);
    Value current = low, limit = high;
    int64_t position = begin;
    if (isStatic) {
      current = i64(begin);
      limit = i64(end);
    } else if (!stage.cuts.empty()) {
      // The call's range [low, high) may begin or end inside a part, or miss
      // it.
      current = make<arith::MaxSIOp>(low, i64(begin));
      limit = make<arith::MinSIOp>(high, i64(end));
    }
    for (int64_t lanes : widths) {
      Value stop = limit;
      if (isStatic) {
        int64_t until = position + (end - position) / lanes * lanes;
        if (until == position)
          continue;
        insertAt(1);
        current = i64(position);
        stop = i64(until);
        position = until;
      } else if (lanes > 1) {
        insertAt(1);
        Value count = make<arith::SubIOp>(limit, current);
        // Negative if the part lies outside the range.
        count = make<arith::MaxSIOp>(count, i64(0));
        Value rest = make<arith::RemUIOp>(count, i64(lanes));
        stop = make<arith::AddIOp>(current, make<arith::SubIOp>(count, rest));
      }
      width = lanes;
      // Parts and blocks begin at cuts and at multiples of a block. The steps
      // before were of a multiple of this width, unless that is odd.
      lanesAligned = plan.blockLanes % lanes == 0 &&
                     llvm::all_of(stage.cuts, [&](int64_t cut) {
                       return cut % lanes == 0;
                     });
      loop(2, stage.laneVariable, current, stop, lanes, {},
           [&](ValueRange carried) { return step(stage, carried); });
      lanesAligned = false;
      current = stop;
      // If the stage is a whole number of vectors, then so is every block of
      // it, and no tail is left.
      if (!isStatic && stage.cuts.empty() && stage.lanes % lanes == 0)
        break;
    }
  }
  space.setRange(stage.laneVariable, {0, stage.lanes - 1});
  width = 1;
}

// Emits one stage of a row.
void LoopEmitter::emitStage(Stage &stage, Value low, Value high) {
  if (stage.run)
    return emitReducingStage(stage);
  insertAt(0);
  if (stage.outer == 1)
    emitParts(stage, low, high);
  else
    loop(1, stage.outerVariable, i64(0), i64(stage.outer), 1, {},
         [&](ValueRange) {
           emitParts(stage, low, high);
           return SmallVector<Value>();
         });
  insertAt(0);
  // Later stages of the row read what this one has stored.
  for (Root &root : stage.roots)
    if (!root.reduce && root.output >= 0)
      storedRows[root.value] = root.output;
}

// ---- the kernel ----

// Sets the running sums of a block of rows to 0. Returns the block's first row
// and the row after its last.
std::pair<Value, Value> LoopEmitter::beginBlock(Value block) {
  for (Stage &stage : plan.stages)
    for (Root &root : stage.roots) {
      if (!root.addsRows())
        continue;
      auto type = tensorType(root.reduce.getResult());
      Type storage = storageType(type.getElementType());
      int64_t count = type.getNumElements() / plan.extent;
      // All bits zero are 0 in every type that is summed.
      Value zero = arith::ConstantIntOp::create(builder, loc, 0, 8);
      Value bytes = i64(count * nn::elementBytes(storage));
      Value sums = pointer(buffers[kernel.getNumArguments() + root.output],
                           storage, make<arith::MulIOp>(block, i64(count)));
      LLVM::MemsetOp::create(builder, loc, sums, zero, bytes,
                             /*isVolatile=*/false);
    }
  Value first = make<arith::MulIOp>(block, i64(plan.rowsPerBlock));
  return {first, make<arith::AddIOp>(first, i64(plan.rowsPerBlock))};
}

// Emits the loop over the steps [begin, end) of the kernel's range. A step is a
// row, a block of a row, a block of columns or a block of rows.
void LoopEmitter::emitRows(Value begin, Value end) {
  if (plan.rowsPerBlock > 1) {
    auto blocks = scf::ForOp::create(builder, loc, begin, end, i64(1));
    builder.setInsertionPointToStart(blocks.getBody());
    std::tie(begin, end) = beginBlock(blocks.getInductionVar());
  }
  auto range = scf::ForOp::create(builder, loc, begin, end, i64(1));
  scopes[0] = {range.getBody(), nullptr};
  builder.setInsertionPointToStart(range.getBody());
  Value row = range.getInductionVar();
  Value low = i64(0), high = i64(plan.stages.front().lanes);
  // The number of the step holds the row and the block of the row. Which of
  // them is the inner one is the plan's choice (rowsInside).
  if (plan.blocks > 1) {
    Value inner = i64(plan.rowsInside ? plan.rows : plan.blocks);
    Value block = make<arith::RemUIOp>(row, inner);
    row = make<arith::DivUIOp>(row, inner);
    if (plan.rowsInside)
      std::swap(block, row);
    low = make<arith::MulIOp>(block, i64(plan.blockLanes));
    Value stop = make<arith::AddIOp>(low, i64(plan.blockLanes));
    high = make<arith::MinSIOp>(stop, high);
  }
  setVariable(plan.row, row);
  for (Stage &stage : plan.stages) {
    if (plan.kind == nn::KernelTemplate::column) {
      emitColumns(stage, low, high);
      continue;
    }
    insertAt(0);
    // Without blocks each stage covers the lanes of its own row, which may have
    // another length than the first stage's.
    if (plan.blocks == 1)
      high = i64(stage.lanes);
    emitStage(stage, low, high);
  }
}

// Loads the buffers' addresses, allocates the kept rows on the stack, and
// builds the loops.
LogicalResult LoopEmitter::emit(func::FuncOp function) {
  Block *entry = function.addEntryBlock();
  builder.setInsertionPointToStart(entry);
  Value begin = entry->getArgument(0), end = entry->getArgument(1);
  Type pointerType = LLVM::LLVMPointerType::get(builder.getContext());
  int64_t count = kernel.getNumArguments() + kernel.getNumResults();
  for (int64_t i = 0; i < count; ++i) {
    Value slot =
        make<LLVM::GEPOp>(pointerType, pointerType, entry->getArgument(2),
                          ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(i)});
    buffers.push_back(make<LLVM::LoadOp>(pointerType, slot));
  }
  for (int64_t count : plan.keptRows)
    buffers.push_back(make<LLVM::AllocaOp>(pointerType, builder.getF32Type(),
                                           i64(count), /*alignment=*/64));
  if (plan.kind == nn::KernelTemplate::embedding_grad)
    EmbeddingGradEmitter(*this).emit(begin, end);
  else
    emitRows(begin, end);
  builder.setInsertionPointToEnd(entry);
  func::ReturnOp::create(builder, loc);
  return success();
}
