// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// emit-grids and lower-grids-to-host: kernels with grids become gpu.funcs, and
// for an emulated GPU functions that the host calls. Both replace the kernels
// of a module in place, so lit tests read what code generation runs.
#include "compiler/codegen/Passes.h"
#include "compiler/codegen/kernels/EmitOptimizer.h"
#include "compiler/codegen/kernels/Half.h"
#include "compiler/codegen/simt/DeviceMath.h"
#include "compiler/codegen/simt/GridEmitter.h"
#include "compiler/codegen/simt/GridOptimizer.h"
#include "compiler/codegen/simt/LowerGridToHost.h"
#include "compiler/dialects/nn/NNDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace fsdpc::codegen {
#define GEN_PASS_DEF_EMITGRIDS
#define GEN_PASS_DEF_LOWERGRIDSTOHOST
#include "compiler/codegen/Passes.h.inc"
} // namespace fsdpc::codegen

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::simt;
using nn::NNDialect;

namespace {

// Moves each kernel into a gpu.module named "kernels", as a gpu.func of the
// same name. The runtime finds it by that name in the device code.
struct EmitGrids : codegen::impl::EmitGridsBase<EmitGrids> {
  using EmitGridsBase::EmitGridsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    OpBuilder builder(&getContext());
    module->setAttr(gpu::GPUDialect::getContainerModuleAttrName(),
                    builder.getUnitAttr());
    builder.setInsertionPointToEnd(module.getBody());
    auto device =
        gpu::GPUModuleOp::create(builder, builder.getUnknownLoc(), "kernels");
    auto functions = module.getOps<func::FuncOp>();
    for (auto kernel : llvm::make_early_inc_range(functions)) {
      if (!kernel->hasAttr(NNDialect::kKernelAttr))
        continue;
      builder.setInsertionPointToEnd(device.getBody());
      // Rows of attention have no grid: on a GPU a library runs attention as a
      // whole.
      if (analysis::hasGrid(kernel) && failed(emit(builder, kernel)))
        return signalPassFailure();
      kernel.erase();
    }
    if (!roundsBf16)
      kernels::expandRoundingToBf16(module);
    // After all kernels, since the expansions work on a module.
    if (failed(expandDeviceMath(module)))
      signalPassFailure();
  }

  // Emits one gpu.func with a pointer per buffer.
  LogicalResult emit(OpBuilder &builder, func::FuncOp kernel) {
    nn::GridAttr shape = analysis::gridOf(kernel);
    if (!shape)
      return kernel.emitError("kernel '")
             << kernel.getSymName() << "' has no '" << analysis::kGridAttr
             << "'; run plan-grids first";
    bool isOptimizer = kernel->hasAttr(NNDialect::kOptimizerAttr);
    int64_t count = isOptimizer
                        ? optimizerBuffers(kernel)
                        : kernel.getNumArguments() + kernel.getNumResults();
    SmallVector<Type> pointers(
        count, LLVM::LLVMPointerType::get(builder.getContext()));
    auto function = gpu::GPUFuncOp::create(
        builder, builder.getUnknownLoc(), kernel.getSymName(),
        builder.getFunctionType(pointers, {}));
    function->setAttr(gpu::GPUDialect::getKernelFuncAttrName(),
                      builder.getUnitAttr());
    // Grids are one-dimensional.
    auto ofThreads = [](int64_t number) {
      return SmallVector<int32_t>{static_cast<int32_t>(number), 1, 1};
    };
    function.setKnownBlockSize(ofThreads(shape.getThreads()));
    if (isOptimizer) {
      emitOptimizer(builder, kernel, function, shape.getThreads(), roundsBf16);
      return success();
    }
    FailureOr<analysis::KernelPlan> plan = analysis::buildPlan(kernel);
    if (failed(plan))
      return failure();
    FailureOr<GridPlan> grid = analysis::buildGrid(kernel, *plan);
    if (failed(grid))
      return failure();
    // An optimizer has no known grid: the runtime launches a block per segment.
    function.setKnownGridSize(ofThreads(grid->blocks));
    kernels::VectorTarget target;
    target.roundsBf16 = roundsBf16;
    // Loads of scattered lanes are emitted one by one.
    target.gathers = false;
    GridEmitter(builder, kernel, *plan, *grid, target, function).emit();
    return success();
  }
};

// The passes of the emulation and of tests.
struct LowerGridsToHost
    : codegen::impl::LowerGridsToHostBase<LowerGridsToHost> {
  void runOnOperation() override { lowerGridToHost(getOperation()); }
};

} // namespace
