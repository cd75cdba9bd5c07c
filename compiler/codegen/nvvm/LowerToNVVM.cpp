// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lowers with MLIR's own conversions. Its pipeline gpu-lower-to-nvvm is not
// used, because it also generates a host half that launches kernels through a
// runtime of its own.
#include "compiler/codegen/nvvm/LowerToNVVM.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Transforms/DialectConversion.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

namespace {

// Threads of a warp, and the bits that one shuffle moves.
constexpr unsigned kLanes = 32, kShuffleBits = 32;

// A reduction over a warp becomes five shuffles per 32-bit piece.
LogicalResult breakDownReductions(gpu::GPUModuleOp kernels) {
  RewritePatternSet patterns(kernels.getContext());
  populateGpuBreakDownSubgroupReducePatterns(patterns, kShuffleBits,
                                             PatternBenefit(2));
  populateGpuLowerSubgroupReduceToShufflePatterns(patterns, kLanes,
                                                  kShuffleBits);
  return applyPatternsGreedily(kernels, std::move(patterns));
}

// As on the host, scf goes first: bodies are converted when they are plain
// blocks.
LogicalResult lowerLoops(gpu::GPUModuleOp kernels) {
  RewritePatternSet patterns(kernels.getContext());
  populateSCFToControlFlowConversionPatterns(patterns);
  ConversionTarget target(*kernels.getContext());
  target.addIllegalDialect<scf::SCFDialect>();
  target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
  return applyPartialConversion(kernels, target, std::move(patterns));
}

// Converts everything that is left at once, so that no unrealized casts remain.
LogicalResult lowerOps(gpu::GPUModuleOp kernels) {
  MLIRContext *context = kernels.getContext();
  LowerToLLVMOptions options(context);
  // Kernels take plain pointers, as the runtime passes them, and no memref
  // descriptors.
  options.useBarePtrCallConv = true;
  LLVMTypeConverter converter(context, options);
  configureGpuToNVVMTypeConverter(converter);
  RewritePatternSet patterns(context);
  arith::populateArithToLLVMConversionPatterns(converter, patterns);
  // The patterns of MathToLLVM are preferred to those of GPUToNVVM, which call
  // libdevice.
  populateMathToLLVMConversionPatterns(converter, patterns,
                                       /*approximateLog1p=*/false,
                                       PatternBenefit(2));
  populateVectorToLLVMConversionPatterns(converter, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
  populateGpuToNVVMConversionPatterns(converter, patterns);
  LLVMConversionTarget target(*context);
  configureGpuToNVVMConversionLegality(target);
  // PTX has exact instructions for these, so no calls of CUDA's libdevice are
  // needed.
  target.addLegalOp<LLVM::CopySignOp, LLVM::FAbsOp, LLVM::FCeilOp,
                    LLVM::FFloorOp, LLVM::RoundEvenOp, LLVM::SqrtOp>();
  return applyFullConversion(kernels, target, std::move(patterns));
}

} // namespace

LogicalResult kernels::lowerToNVVM(ModuleOp module) {
  for (auto kernels : module.getOps<gpu::GPUModuleOp>())
    if (failed(breakDownReductions(kernels)) || failed(lowerLoops(kernels)) ||
        failed(lowerOps(kernels)))
      return failure();
  return success();
}
