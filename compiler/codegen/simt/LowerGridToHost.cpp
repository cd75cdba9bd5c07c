// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Clones the body of each kernel into a loop over blocks, then replaces the ops
// that only a GPU has (thread and block numbers, shuffles, barriers, shared
// memory) with calls. This lets tests compare grids with the reference on
// machines without a GPU.
#include "compiler/codegen/simt/LowerGridToHost.h"

#include "compiler/codegen/simt/GridBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::simt;

namespace {

// Lowers the kernels of one gpu.module. `module` receives the host's functions.
class Lowering {
public:
  Lowering(ModuleOp module, gpu::GPUModuleOp kernels)
      : module(module), kernels(kernels), builder(module.getContext()),
        loc(builder.getUnknownLoc()),
        pointer(LLVM::LLVMPointerType::get(module.getContext())) {}

  void lower(gpu::GPUFuncOp source);

private:
  template <typename OpTy, typename... Args> Value make(Args &&...args) {
    return OpTy::create(builder, loc, std::forward<Args>(args)...);
  }
  Value call(StringRef name, ValueRange operands, Type result = {});
  Value shuffle(gpu::ShuffleOp op);
  Value onStack(LLVM::GlobalOp shared, Type bytes);
  Value replacement(Operation *op, Value block);

  ModuleOp module;
  gpu::GPUModuleOp kernels;
  OpBuilder builder;
  Location loc;
  Type pointer;
  // These belong to the kernel that is being lowered.
  Block *entry = nullptr;
  bool isLone = false; // its blocks have one thread
};

// Calls a C function and declares it at its first use.
Value Lowering::call(StringRef name, ValueRange operands, Type result) {
  auto callee = module.lookupSymbol<func::FuncOp>(name);
  SmallVector<Type, 1> results;
  if (result)
    results.push_back(result);
  if (!callee) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(module.getBody());
    callee = func::FuncOp::create(
        builder, loc, name,
        builder.getFunctionType(operands.getTypes(), results));
    callee.setPrivate();
  }
  auto op = func::CallOp::create(builder, loc, callee, operands);
  return result ? op.getResult(0) : Value();
}

// The host function moves an i32; floats are cast to it.
Value Lowering::shuffle(gpu::ShuffleOp op) {
  Type i32 = builder.getI32Type(), type = op.getValue().getType();
  Value word = op.getValue();
  if (type != i32)
    word = make<arith::BitcastOp>(i32, word);
  word = call("fsdpc_simt_shuffle", {word, op.getOffset()}, i32);
  return type == i32 ? word : make<arith::BitcastOp>(type, word);
}

// All blocks of a call take the same memory, in front of their loop.
Value Lowering::onStack(LLVM::GlobalOp shared, Type bytes) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(entry);
  Value one = arith::ConstantIntOp::create(builder, loc, 1, 64);
  return make<LLVM::AllocaOp>(pointer, bytes, one,
                              shared.getAlignment().value_or(1));
}

// Returns the replacement of the op's first result, or null if the op does not
// belong to a grid.
Value Lowering::replacement(Operation *op, Value block) {
  Type index = builder.getIndexType();
  return TypeSwitch<Operation *, Value>(op)
      .Case([&](gpu::BlockIdOp) {
        return make<arith::IndexCastOp>(index, block);
      })
      .Case([&](gpu::ThreadIdOp) {
        Value number = call("fsdpc_simt_thread", {}, builder.getI32Type());
        return make<arith::IndexCastOp>(index, number);
      })
      .Case([&](gpu::ShuffleOp shuffled) { return shuffle(shuffled); })
      .Case([&](LLVM::AddrSpaceCastOp space) -> Value {
        // Shared memory is a global of the GPU module. On the host each block
        // asks for its bytes; one of a single thread has them on its stack.
        auto shared = space.getArg().getDefiningOp<LLVM::AddressOfOp>();
        auto global =
            kernels.lookupSymbol<LLVM::GlobalOp>(shared.getGlobalName());
        auto bytes = cast<LLVM::LLVMArrayType>(global.getGlobalType());
        Value count = arith::ConstantIntOp::create(builder, loc,
                                                   bytes.getNumElements(), 64);
        if (isLone)
          return onStack(global, bytes);
        return call("fsdpc_simt_shared", {count}, pointer);
      })
      .Default([](Operation *) { return Value(); });
}

// Clones first and replaces afterwards, since a replacement may need values of
// the clone.
void Lowering::lower(gpu::GPUFuncOp source) {
  Type i64 = builder.getI64Type();
  builder.setInsertionPointToEnd(module.getBody());
  auto function =
      func::FuncOp::create(builder, loc, source.getName(),
                           builder.getFunctionType({i64, i64, pointer}, {}));
  entry = function.addEntryBlock();
  std::optional<ArrayRef<int32_t>> size = source.getKnownBlockSize();
  isLone = size && size->front() == 1;
  builder.setInsertionPointToStart(entry);
  IRMapping mapping;
  for (BlockArgument argument : source.getArguments()) {
    auto number = static_cast<int32_t>(argument.getArgNumber());
    Value slot = make<LLVM::GEPOp>(pointer, pointer, entry->getArgument(2),
                                   ArrayRef<LLVM::GEPArg>{number});
    mapping.map(argument, make<LLVM::LoadOp>(pointer, slot));
  }
  // A block is one iteration, so the host's threads may divide the range.
  Value one = arith::ConstantIntOp::create(builder, loc, 1, 64);
  auto blocks = scf::ForOp::create(builder, loc, entry->getArgument(0),
                                   entry->getArgument(1), one);
  func::ReturnOp::create(builder, loc);
  builder.setInsertionPointToStart(blocks.getBody());
  for (Operation &op : source.getBody().front().without_terminator())
    builder.clone(op, mapping);

  // Collects first: replacements add ops and erase others.
  SmallVector<Operation *> ops;
  blocks.walk([&](Operation *op) { ops.push_back(op); });
  for (Operation *op : ops) {
    builder.setInsertionPoint(op);
    if (isa<gpu::BarrierOp>(op))
      call("fsdpc_simt_barrier", {});
    else if (isa<NVVM::SyncWarpOp>(op))
      call("fsdpc_simt_warp_barrier", {});
    else if (auto barrier = dyn_cast<NVVM::BarrierOp>(op))
      call("fsdpc_simt_team_barrier",
           {barrier.getBarrierId(), barrier.getNumberOfThreads()});
    else if (Value value = replacement(op, blocks.getInductionVar()))
      op->getResult(0).replaceAllUsesWith(value);
    else
      continue;
    op->erase();
  }
  // The addresses of shared memory have lost their users.
  blocks.walk([](LLVM::AddressOfOp op) { op->erase(); });
}

} // namespace

void simt::lowerGridToHost(ModuleOp module) {
  auto kernels = *module.getOps<gpu::GPUModuleOp>().begin();
  Lowering lowering(module, kernels);
  for (auto function : kernels.getOps<gpu::GPUFuncOp>())
    lowering.lower(function);
  // All kernels are lowered now, so the globals of shared memory go with the
  // module.
  kernels->erase();
  module->removeAttr(gpu::GPUDialect::getContainerModuleAttrName());
}
