// Emits one gpu.func per kernel. Values are not kept in memory from loop to
// loop as on the host; threads compute them again. The rows of attention have
// no grid, since the CUDA runtime brings kernels of its own for attention.
#include "compiler/codegen/simt/GridModule.h"

#include "compiler/codegen/kernels/ExpandMath.h"
#include "compiler/codegen/kernels/KernelModule.h"
#include "compiler/codegen/simt/DeviceMath.h"
#include "compiler/codegen/simt/GridEmitter.h"
#include "compiler/codegen/simt/GridOptimizer.h"
#include "compiler/codegen/simt/LowerGridToHost.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Verifier.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::simt;
using analysis::KernelPlan;

namespace {

// Rows of attention are called by the host's runtime only.
bool hasGrid(func::FuncOp function) {
  return function->hasAttr(nn::NNDialect::kKernelAttr) &&
         !function.getBody().empty() &&
         !function->hasAttr(nn::NNDialect::kRowsAttr);
}

// Threads keep nothing in memory from loop to loop.
FailureOr<KernelPlan> plan(func::FuncOp kernel) {
  FailureOr<KernelPlan> plan = analysis::buildPlan(kernel);
  if (succeeded(plan) && !plan->kept.empty())
    return kernel.emitError("kernel '")
           << kernel.getSymName() << "' keeps values ('"
           << nn::NNDialect::kKeptAttr << "'), which a grid cannot do";
  return plan;
}

} // namespace

LogicalResult simt::planGrids(ModuleOp module, const GridOptions &options) {
  Builder builder(module.getContext());
  for (auto kernel : module.getOps<func::FuncOp>()) {
    if (!hasGrid(kernel))
      continue;
    int64_t blocks = 0;
    if (!kernel->hasAttr(nn::NNDialect::kOptimizerAttr)) {
      FailureOr<KernelPlan> known = plan(kernel);
      if (failed(known))
        return failure();
      blocks = planGrid(kernel, *known, options).blocks;
    }
    kernel->setAttr(kBlocksAttr, builder.getI64IntegerAttr(blocks));
    kernel->setAttr(kThreadsAttr, builder.getI64IntegerAttr(options.threads));
  }
  return success();
}

// The program launches a kernel by the blocks that planGrids has set, so a plan
// that differs from them is an error.
OwningOpRef<ModuleOp> simt::emitGrid(ModuleOp source,
                                     const GridOptions &options) {
  MLIRContext *context = source.getContext();
  OpBuilder builder(context);
  Location loc = builder.getUnknownLoc();
  OwningOpRef<ModuleOp> module(ModuleOp::create(loc));
  (*module)->setAttr(gpu::GPUDialect::getContainerModuleAttrName(),
                     builder.getUnitAttr());
  builder.setInsertionPointToEnd(module->getBody());
  auto kernels = gpu::GPUModuleOp::create(builder, loc, "kernels");
  kernels::VectorTarget target;
  target.roundsBf16 = options.roundsBf16;
  target.gathers = false;
  for (auto kernel : source.getOps<func::FuncOp>()) {
    if (!hasGrid(kernel))
      continue;
    bool isOptimizer = kernel->hasAttr(nn::NNDialect::kOptimizerAttr);
    int64_t count = isOptimizer
                        ? optimizerBuffers(kernel)
                        : kernel.getNumArguments() + kernel.getNumResults();
    SmallVector<Type> pointers(count, LLVM::LLVMPointerType::get(context));
    builder.setInsertionPointToEnd(kernels.getBody());
    auto function =
        gpu::GPUFuncOp::create(builder, loc, kernel.getSymName(),
                               builder.getFunctionType(pointers, {}));
    function->setAttr(gpu::GPUDialect::getKernelFuncAttrName(),
                      builder.getUnitAttr());
    function.setKnownBlockSize(
        ArrayRef<int32_t>{static_cast<int32_t>(options.threads), 1, 1});
    if (isOptimizer) {
      emitOptimizer(builder, kernel, function, options);
      continue;
    }
    FailureOr<KernelPlan> known = plan(kernel);
    if (failed(known))
      return nullptr;
    GridPlan grid = planGrid(kernel, *known, options);
    auto blocks = kernel->getAttrOfType<IntegerAttr>(kBlocksAttr);
    if (blocks && blocks.getInt() != grid.blocks) {
      kernel.emitError("kernel '")
          << kernel.getSymName() << "' has " << blocks.getInt()
          << " blocks, but its body has " << grid.blocks;
      return nullptr;
    }
    function.setKnownGridSize(
        ArrayRef<int32_t>{static_cast<int32_t>(grid.blocks), 1, 1});
    GridEmitter(builder, kernel, *known, grid, target, function).emit();
  }
  if (failed(expandDeviceMath(*module)))
    return nullptr;
  kernels::expandMath(*module);
  if (failed(verify(*module)))
    return nullptr;
  return module;
}

OwningOpRef<ModuleOp> simt::emitGridForHost(ModuleOp source,
                                            const GridOptions &options) {
  OwningOpRef<ModuleOp> module = emitGrid(source, options);
  if (module)
    lowerGridToHost(*module);
  return module;
}

void simt::registerGridDialects(DialectRegistry &registry) {
  registry.insert<arith::ArithDialect, func::FuncDialect, gpu::GPUDialect,
                  LLVM::LLVMDialect, math::MathDialect, nn::NNDialect,
                  NVVM::NVVMDialect, scf::SCFDialect, vector::VectorDialect>();
}
