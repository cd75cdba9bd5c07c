// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Exchanges between the threads of a block: shuffles within a warp, shared
// memory between warps. All orders of combination are fixed, and no atomics are
// used, so that equal inputs give equal bits.
#include "compiler/codegen/simt/GridBuilder.h"

#include "compiler/analysis/kernels/GridPlan.h"
#include "compiler/dialects/nn/ElementBytes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::simt;
using analysis::kWarp;

namespace {
constexpr int64_t kSlotBytes = 8; // bytes of one value in shared memory
constexpr unsigned kSharedSpace = 3;
constexpr int64_t kFewWarps = 8; // whose results a thread adds one by one

// Returns the bytes of a vector or a scalar in memory.
int64_t bytesOf(Value value) {
  Type type = value.getType();
  return isa<VectorType>(type) ? nn::tensorBytes(type) : nn::elementBytes(type);
}

int64_t alignmentOf(Value value) {
  return std::min<int64_t>(bytesOf(value), 16);
}

// All values of an exchange get slots of one size, that of the largest, so a
// slot's address needs no table.
int64_t slotOf(ValueRange sums) {
  int64_t bytes = 0;
  for (Value sum : sums)
    bytes = std::max(bytes, bytesOf(sum));
  return bytes;
}
} // namespace

std::string simt::sharedName(llvm::StringRef kernel) {
  return (kernel + ".shared").str();
}

// With one thread per block, the number is the constant 0.
Value GridBuilder::thread() {
  if (threads == 1)
    return make<arith::ConstantIntOp>(0, 32);
  return make<arith::IndexCastOp>(builder.getI32Type(),
                                  make<gpu::ThreadIdOp>(gpu::Dimension::x));
}

Value GridBuilder::block() {
  return make<arith::IndexCastOp>(builder.getI32Type(),
                                  make<gpu::BlockIdOp>(gpu::Dimension::x));
}

// A warp needs its own barrier: since Volta its threads may diverge. Several
// warps of a block that is larger take one of the block's numbered barriers, of
// which the first belongs to the whole block.
void GridBuilder::synchronize(int64_t team) {
  if (team == 1)
    return;
  auto number = [&](int64_t value) {
    return make<arith::ConstantIntOp>(value, 32);
  };
  if (team <= kWarp)
    NVVM::SyncWarpOp::create(builder, loc, number(-1));
  else if (team == threads)
    gpu::BarrierOp::create(builder, loc);
  else
    NVVM::BarrierOp::create(
        builder, loc, Type(),
        make<arith::AddIOp>(make<arith::DivUIOp>(thread(), number(team)),
                            number(1)),
        number(team), NVVM::BarrierReductionAttr(), Value());
}

// Shared memory is one global per kernel, whose size is known at finish().
Value GridBuilder::share(int64_t bytes) {
  MLIRContext *context = builder.getContext();
  Value base =
      make<LLVM::AddressOfOp>(LLVM::LLVMPointerType::get(context, kSharedSpace),
                              sharedName(function.getName()));
  Type pointer = LLVM::LLVMPointerType::get(context);
  // A cast to the generic address space, so that loads and stores need not know
  // that the memory is shared.
  base = make<LLVM::AddrSpaceCastOp>(pointer, base);
  int64_t offset = sharedBytes;
  sharedBytes += llvm::alignTo(bytes, 16);
  return make<LLVM::GEPOp>(pointer, builder.getI8Type(), base,
                           ArrayRef<LLVM::GEPArg>{int32_t(offset)});
}

void GridBuilder::finish() {
  if (sharedBytes == 0)
    return;
  OpBuilder::InsertionGuard guard(builder);
  // The global stands in front of its kernel, in the gpu.module.
  builder.setInsertionPoint(function);
  LLVM::GlobalOp::create(
      builder, loc, LLVM::LLVMArrayType::get(builder.getI8Type(), sharedBytes),
      /*isConstant=*/false, LLVM::Linkage::Internal,
      sharedName(function.getName()), Attribute(), /*alignment=*/16,
      kSharedSpace);
}

// A team of up to a warp exchanges by shuffles alone.
int64_t GridBuilder::sharedFor(size_t count, int64_t team) const {
  return team > kWarp ? count * (threads / kWarp) * kSlotBytes : 0;
}

// Shuffles move 32 bits: narrower values are extended, 64-bit ones are split.
Value GridBuilder::shuffle(Value value, int64_t offset, int64_t width) {
  Type type = value.getType(), i32 = builder.getI32Type();
  unsigned bits = type.getIntOrFloatBitWidth();
  // XOR: both partners of an exchange get each other's value.
  auto exchange = [&](Value word) -> Value {
    return gpu::ShuffleOp::create(builder, loc, word, offset, width,
                                  gpu::ShuffleMode::XOR)
        .getShuffleResult();
  };
  if (bits == 32)
    return exchange(value);
  if (bits < 32)
    return make<arith::TruncIOp>(type,
                                 exchange(make<arith::ExtUIOp>(i32, value)));
  Type i64 = builder.getI64Type();
  Value half = make<arith::ConstantIntOp>(32, 64);
  Value whole = type == i64 ? value : make<arith::BitcastOp>(i64, value);
  Value low = exchange(make<arith::TruncIOp>(i32, whole));
  Value high =
      exchange(make<arith::TruncIOp>(i32, make<arith::ShRUIOp>(whole, half)));
  whole = make<arith::OrIOp>(
      make<arith::ExtUIOp>(i64, low),
      make<arith::ShLIOp>(make<arith::ExtUIOp>(i64, high), half));
  return type == i64 ? whole : make<arith::BitcastOp>(type, whole);
}

// A butterfly: both partners of an exchange combine the same two values, so all
// threads end with the same bits.
SmallVector<Value> GridBuilder::exchange(ValueRange values, int64_t width,
                                         Combine combine) {
  SmallVector<Value> results(values);
  for (int64_t offset = width / 2; offset >= 1; offset /= 2)
    for (auto [i, value] : llvm::enumerate(results))
      value = combine(i, value, shuffle(value, offset, width));
  return results;
}

// Within a warp by shuffles; then each warp stores its result in shared memory,
// and every thread combines those of all warps in the same order: one after the
// other, or those of many warps by shuffles again.
SmallVector<Value> GridBuilder::reduce(ValueRange values, int64_t team,
                                       Value shared, Combine combine) {
  SmallVector<Value> results = exchange(values, std::min(team, kWarp), combine);
  if (team <= kWarp)
    return results;

  int64_t warps = team / kWarp;
  auto slot = [&](size_t i, Value warp) -> Value {
    int64_t first = int64_t(i) * (threads / kWarp);
    Value place =
        make<arith::AddIOp>(warp, make<arith::ConstantIntOp>(first, 32));
    return make<LLVM::GEPOp>(shared.getType(), builder.getI64Type(), shared,
                             ValueRange{place});
  };
  // All threads of a warp store the same value, so no condition is needed.
  Value warp =
      make<arith::DivUIOp>(thread(), make<arith::ConstantIntOp>(kWarp, 32));
  for (auto [i, value] : llvm::enumerate(results))
    LLVM::StoreOp::create(builder, loc, value, slot(i, warp));
  synchronize(team);
  // The first warp of the team, null for the block's.
  Value begin;
  if (team < threads) {
    Value count = make<arith::ConstantIntOp>(warps, 32);
    begin = make<arith::MulIOp>(make<arith::DivUIOp>(warp, count), count);
  }
  if (warps > kFewWarps) {
    Value lane =
        make<arith::RemUIOp>(thread(), make<arith::ConstantIntOp>(warps, 32));
    for (auto [i, value] : llvm::enumerate(results))
      value = make<LLVM::LoadOp>(value.getType(), slot(i, lane));
    return exchange(results, warps, combine);
  }
  for (auto [i, value] : llvm::enumerate(results)) {
    Type type = value.getType();
    for (int64_t w = 0; w < warps; ++w) {
      Value from = make<arith::ConstantIntOp>(w, 32);
      if (begin)
        from = make<arith::AddIOp>(begin, from);
      Value other = make<LLVM::LoadOp>(type, slot(i, from));
      value = w == 0 ? other : combine(i, value, other);
    }
  }
  return results;
}

int64_t GridBuilder::spaceFor(ValueRange sums) const {
  return slotOf(sums) * sums.size() * threads;
}

Value GridBuilder::place(Value shared, ValueRange sums, size_t i,
                         Value thread) {
  auto number = [&](int64_t value) {
    return make<arith::ConstantIntOp>(value, 32);
  };
  Value slot = make<arith::AddIOp>(thread, number(int64_t(i) * threads));
  slot = make<arith::MulIOp>(slot, number(slotOf(sums)));
  return make<LLVM::GEPOp>(shared.getType(), builder.getI8Type(), shared,
                           ValueRange{slot});
}

// Slots are ordered by value, then by thread.
void GridBuilder::put(Value shared, ValueRange sums) {
  Value own = thread();
  for (auto [i, sum] : llvm::enumerate(sums))
    LLVM::StoreOp::create(builder, loc, sum, place(shared, sums, i, own),
                          alignmentOf(sum));
  synchronize(threads);
}

// Starts with the caller's own sums, those of the first line, and adds the
// lines below in order.
SmallVector<Value> GridBuilder::take(Value shared, ValueRange sums,
                                     Value column, int64_t across,
                                     Combine combine) {
  SmallVector<Value> results(sums);
  for (int64_t first = across; first < threads; first += across) {
    Value above =
        make<arith::AddIOp>(column, make<arith::ConstantIntOp>(first, 32));
    for (auto [i, sum] : llvm::enumerate(results)) {
      Value other = make<LLVM::LoadOp>(
          sum.getType(), place(shared, sums, i, above), alignmentOf(sum));
      sum = combine(i, sum, other);
    }
  }
  return results;
}
