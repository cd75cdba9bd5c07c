// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lowers with MLIR's own conversions. Structured loops go first; all other
// dialects are converted together, so that no unrealized casts are left.
#include "compiler/codegen/kernels/LowerToLLVM.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Transforms/DialectConversion.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

LogicalResult kernels::lowerToLLVM(ModuleOp module) {
  MLIRContext *context = module.getContext();
  // First scf alone, partially: its patterns make blocks and branches of cf,
  // and bodies keep their other ops until these are all converted below.
  {
    RewritePatternSet patterns(context);
    populateSCFToControlFlowConversionPatterns(patterns);
    ConversionTarget target(*context);
    target.addIllegalDialect<scf::SCFDialect>();
    target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
    if (failed(applyPartialConversion(module, target, std::move(patterns))))
      return failure();
  }
  LLVMTypeConverter converter(context);
  RewritePatternSet patterns(context);
  arith::populateArithToLLVMConversionPatterns(converter, patterns);
  populateMathToLLVMConversionPatterns(converter, patterns);
  populateVectorToLLVMConversionPatterns(converter, patterns);
  populateFuncToLLVMConversionPatterns(converter, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
  // Anything left that is not LLVM's is an error here, not a crash in the
  // translation.
  LLVMConversionTarget target(*context);
  target.addLegalOp<ModuleOp>();
  return applyFullConversion(module, target, std::move(patterns));
}
