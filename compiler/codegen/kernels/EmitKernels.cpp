// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// emit-kernels, expand-math and lower-kernels: a kernel's way from nn ops to
// the LLVM dialect. Buffers are bare pointers from the start, so neither memref
// nor bufferisation is needed.
#include "compiler/codegen/Passes.h"
#include "compiler/codegen/kernels/EmitAttention.h"
#include "compiler/codegen/kernels/EmitOptimizer.h"
#include "compiler/codegen/kernels/ExpandMath.h"
#include "compiler/codegen/kernels/Half.h"
#include "compiler/codegen/kernels/LoopEmitter.h"
#include "compiler/codegen/kernels/LowerToLLVM.h"
#include "compiler/dialects/nn/NNDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace fsdpc::codegen {
#define GEN_PASS_DEF_EMITKERNELS
#define GEN_PASS_DEF_EXPANDMATH
#define GEN_PASS_DEF_LOWERKERNELS
#include "compiler/codegen/Passes.h.inc"
} // namespace fsdpc::codegen

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::kernels;
using nn::NNDialect;

namespace {

// Replaces each kernel by a function of the same name with the signature of
// fsdpc_kernel_body. Callers refer to it by name, so nothing else changes.
struct EmitKernels : codegen::impl::EmitKernelsBase<EmitKernels> {
  using EmitKernelsBase::EmitKernelsBase;

  void runOnOperation() override {
    VectorTarget target;
    target.lanes = lanes;
    target.roundsBf16 = roundsBf16;
    OpBuilder builder(&getContext());
    Type i64 = builder.getI64Type();
    auto type = builder.getFunctionType(
        {i64, i64, LLVM::LLVMPointerType::get(&getContext())}, {});
    auto functions = getOperation().getOps<func::FuncOp>();
    // The kernel is erased in the loop, so the iterator must already be ahead.
    for (auto kernel : llvm::make_early_inc_range(functions)) {
      if (!kernel->hasAttr(NNDialect::kKernelAttr) || kernel.isExternal())
        continue;
      builder.setInsertionPoint(kernel);
      auto function = func::FuncOp::create(builder, kernel.getLoc(),
                                           kernel.getSymName(), type);
      if (failed(emit(builder, kernel, function, target)))
        return signalPassFailure();
      if (!roundsBf16)
        expandRoundingToBf16(function);
      kernel.erase();
    }
  }

  // Chooses the emitter: optimizers and the rows of attention have ranges that
  // only the runtime knows, hence no plan; all others have one.
  static LogicalResult emit(OpBuilder &builder, func::FuncOp kernel,
                            func::FuncOp function, const VectorTarget &target) {
    if (kernel->hasAttr(NNDialect::kOptimizerAttr)) {
      emitOptimizer(builder, kernel, function, target);
      return success();
    }
    if (kernel->hasAttr(NNDialect::kRowsAttr)) {
      emitAttention(builder, kernel, function, target);
      return success();
    }
    // Built again from the attribute, so that an edited plan takes effect.
    FailureOr<KernelPlan> plan = analysis::buildPlan(kernel);
    if (failed(plan))
      return failure();
    return LoopEmitter(builder, kernel, *plan, target).emit(function);
  }
};

struct ExpandMath : codegen::impl::ExpandMathBase<ExpandMath> {
  void runOnOperation() override { expandMath(getOperation()); }
};

struct LowerKernels : codegen::impl::LowerKernelsBase<LowerKernels> {
  void runOnOperation() override {
    if (failed(lowerToLLVM(getOperation())))
      signalPassFailure();
  }
};

} // namespace
