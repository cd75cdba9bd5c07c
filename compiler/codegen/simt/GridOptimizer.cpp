// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The optimizer for grids: 16-byte vectors in the middle of a segment, where
// they are aligned, and single elements at its ends. A rank's segments begin
// anywhere in the flat buffer, so the ends must be found at run time.
#include "compiler/codegen/simt/GridOptimizer.h"

#include "compiler/codegen/kernels/EmitOptimizer.h"
#include "compiler/codegen/simt/GridBuilder.h"
#include "runtime/abi/cuda_scratch.h"
#include "runtime/abi/member_sums.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::simt;

namespace {

constexpr int64_t kLanes = 4; // 16 bytes

// Emits the code of one thread for its block's segment.
class OptimizerGrid : kernels::OptimizerEmitter {
public:
  OptimizerGrid(OpBuilder &builder, func::FuncOp program,
                gpu::GPUFuncOp function, int64_t blockThreads, bool roundsBf16)
      : OptimizerEmitter(builder, program, roundsBf16), function(function),
        threads(builder, function, blockThreads), blockThreads(blockThreads) {}

  void emit();

private:
  Value toIndex(Value value) {
    return make<arith::ExtUIOp>(builder.getI64Type(), value);
  }
  // Rounds down to a multiple of kLanes, which is a power of two.
  Value align(Value value) { return make<arith::AndIOp>(value, i64(-kLanes)); }
  // The threads of the block take the vectors of [begin, end) in turn.
  void emitRange(Value begin, Value end, int64_t width);
  void emitUpdate(Value from, Value to);
  void emitSums(Value from, Value to, Value sums);

  gpu::GPUFuncOp function;
  GridBuilder threads;
  int64_t blockThreads;
  Value thread;
};

void OptimizerGrid::emitRange(Value begin, Value end, int64_t width) {
  Value first =
      make<arith::AddIOp>(begin, make<arith::MulIOp>(thread, i64(width)));
  auto loop =
      scf::ForOp::create(builder, loc, first, end, i64(width * blockThreads));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  // Vectors begin at multiples of their width, as emit() makes sure, hence the
  // alignment.
  emitStep(loop.getInductionVar(), width, width);
}

// Segments begin and end anywhere. If a short one lies between two multiples of
// kLanes, head and tail are both its end.
void OptimizerGrid::emitUpdate(Value from, Value to) {
  Value head = align(make<arith::AddIOp>(from, i64(kLanes - 1)));
  head = make<arith::MinSIOp>(head, to);
  Value tail = make<arith::MaxSIOp>(align(to), head);
  emitRange(from, head, 1);
  emitRange(head, tail, kLanes);
  emitRange(tail, to, 1);
}

// A thread takes whole groups. Each block has room for those of a segment.
void OptimizerGrid::emitSums(Value from, Value to, Value sums) {
  auto perSegment = static_cast<int64_t>(
      optimizerSegment / sumGroup * body.getTerminator()->getNumOperands());
  sums =
      address(sums, builder.getF64Type(),
              make<arith::MulIOp>(toIndex(threads.block()), i64(perSegment)));
  Value first =
      make<arith::AddIOp>(from, make<arith::MulIOp>(thread, i64(sumGroup)));
  auto loop =
      scf::ForOp::create(builder, loc, first, to, i64(sumGroup * blockThreads));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  emitGroup(loop.getInductionVar(), from, to, sums, kLanes);
}

void OptimizerGrid::emit() {
  Block *entry = &function.getBody().front();
  builder.setInsertionPointToEnd(entry);
  unsigned count = bufferCount();
  for (unsigned i = 0; i < count; ++i)
    buffers.push_back(entry->getArgument(i));
  scale = make<LLVM::LoadOp>(builder.getF32Type(), entry->getArgument(count));
  thread = toIndex(threads.thread());
  // A segment is three numbers: from, to, and the member whose rates apply.
  Value slot = make<arith::MulIOp>(toIndex(threads.block()), i64(3));
  Value segment[3];
  for (int64_t i = 0; i < 3; ++i) {
    Value place = address(entry->getArgument(count + 1), builder.getI64Type(),
                          make<arith::AddIOp>(slot, i64(i)));
    segment[i] = make<LLVM::LoadOp>(builder.getI64Type(), place);
  }
  auto &[from, to, number] = segment;
  // A scale that is NaN says that the step is skipped (fsdpc_clip).
  Value skips = make<arith::CmpFOp>(arith::CmpFPredicate::UNO, scale, scale);
  to = make<arith::SelectOp>(skips, from, to);
  // Four words per member, as the rates.
  if (takesWord)
    buffers.back() = address(buffers.back(), builder.getI64Type(),
                             make<arith::MulIOp>(number, i64(4)));
  // A member's sums lie together.
  Value memberSums;
  if (sums > 0)
    memberSums =
        address(entry->getArgument(count + 3), builder.getF64Type(),
                make<arith::MulIOp>(number, i64(static_cast<int64_t>(sums))));
  // The rates of a member are four doubles, of which emitUniform reads three.
  emitUniform(address(entry->getArgument(count + 2), builder.getF64Type(),
                      make<arith::MulIOp>(number, i64(4))),
              memberSums);
  if (isSum)
    emitSums(from, to, entry->getArgument(count + 3));
  else
    emitUpdate(from, to);
  gpu::ReturnOp::create(builder, loc);
}

} // namespace

int64_t simt::optimizerBuffers(func::FuncOp program) {
  // The program's arguments less lr, step, decay and sums, the copy, the three
  // tables of the launch (scale, segments, rates), and sums that it takes or
  // writes. The random word stands for the keys from which it follows.
  int64_t copies = kernels::computeCopyOf(program) ? 1 : 0;
  int64_t sums = kernels::sumsOf(program);
  int64_t ofSums = sums > 0 || kernels::yieldsSums(program) ? 1 : 0;
  return program.getNumArguments() - 3 - sums + copies + 3 + ofSums;
}

void simt::emitOptimizer(OpBuilder &builder, func::FuncOp program,
                         gpu::GPUFuncOp function, int64_t blockThreads,
                         bool roundsBf16) {
  OptimizerGrid(builder, program, function, blockThreads, roundsBf16).emit();
}
