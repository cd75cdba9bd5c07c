// Compiles a group of kernels in steps: nn ops → loops (scf, arith, vector,
// LLVM's loads and stores) → LLVM dialect → LLVM IR → object. The steps up to
// the LLVM dialect are passes, so that fsdpc-opt can run each.
#include "compiler/codegen/kernels/KernelModule.h"

#include "compiler/codegen/Passes.h"
#include "compiler/codegen/kernels/LowerToLLVM.h"
#include "compiler/dialects/nn/NNDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::kernels;

void kernels::registerKernelDialects(DialectRegistry &registry) {
  registry.insert<arith::ArithDialect, cf::ControlFlowDialect,
                  func::FuncDialect, gpu::GPUDialect, LLVM::LLVMDialect,
                  math::MathDialect, nn::NNDialect, NVVM::NVVMDialect,
                  scf::SCFDialect, vector::VectorDialect>();
}

void kernels::compileModule(llvm::StringRef text, const TargetOptions &options,
                            AddPasses emit, std::string &object,
                            std::string &error) {
  DialectRegistry registry;
  registerKernelDialects(registry);
  registerTranslations(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    error += (error.empty() ? "" : "; ") + diagnostic.str();
    return success();
  });
  auto failWith = [&](llvm::StringRef what) {
    if (error.empty())
      error = what.str();
  };

  OwningOpRef<ModuleOp> source = parseSourceString<ModuleOp>(text, &context);
  if (!source)
    return failWith("kernels do not parse");
  PassManager manager(&context);
  emit(manager);
  manager.addPass(createExpandMath());
  manager.addPass(createLowerKernels());
  if (failed(manager.run(*source)))
    return failWith("kernels do not lower to LLVM");
  std::string message = emitObject(*source, options, object);
  if (!message.empty())
    failWith(message);
}

void kernels::compileModule(llvm::StringRef text, const TargetOptions &options,
                            std::string &object, std::string &error) {
  EmitKernelsOptions target;
  target.lanes = options.hasAvx512() ? 16 : 8;
  target.roundsBf16 = options.hasBf16();
  auto emit = [&](OpPassManager &manager) {
    manager.addPass(createEmitKernels(target));
  };
  compileModule(text, options, emit, object, error);
}
