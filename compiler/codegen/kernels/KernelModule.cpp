// Compiles a kernel in steps: nn ops → loops (scf, arith, vector, LLVM's loads
// and stores) → LLVM dialect → LLVM IR → object. Buffers are bare pointers from
// the start, so neither memref nor bufferisation is needed.
#include "compiler/codegen/kernels/KernelModule.h"

#include "compiler/codegen/kernels/EmitAttention.h"
#include "compiler/codegen/kernels/EmitOptimizer.h"
#include "compiler/codegen/kernels/ExpandMath.h"
#include "compiler/codegen/kernels/LoopEmitter.h"
#include "compiler/codegen/kernels/LowerToLLVM.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::kernels;

namespace {

// Emits all kernels of a module for the host.
OwningOpRef<ModuleOp> emitLoops(ModuleOp source, const VectorTarget &target) {
  MLIRContext *context = source.getContext();
  OpBuilder builder(context);
  OwningOpRef<ModuleOp> module(ModuleOp::create(builder.getUnknownLoc()));
  Type i64 = builder.getI64Type();
  auto type = builder.getFunctionType(
      {i64, i64, LLVM::LLVMPointerType::get(context)}, {});
  for (auto kernel : source.getOps<func::FuncOp>()) {
    builder.setInsertionPointToEnd(module->getBody());
    auto function = func::FuncOp::create(builder, kernel.getLoc(),
                                         kernel.getSymName(), type);
    if (kernel->hasAttr(nn::NNDialect::kOptimizerAttr)) {
      auto compute = kernel->getAttrOfType<TypeAttr>(kComputeAttr);
      bool copy = compute && compute.getValue().isBF16();
      emitOptimizer(builder, kernel, function, copy, target);
      continue;
    }
    if (kernel->hasAttr(nn::NNDialect::kRowsAttr)) {
      emitAttention(builder, kernel, function, target);
      continue;
    }
    FailureOr<KernelPlan> plan = analysis::buildPlan(kernel);
    if (failed(plan) ||
        failed(LoopEmitter(builder, kernel, *plan, target).emit(function)))
      return nullptr;
  }
  return module;
}

} // namespace

void kernels::compileModule(llvm::StringRef text, const TargetOptions &options,
                            EmitFunctions emit, std::string &object,
                            std::string &error) {
  DialectRegistry registry;
  registry.insert<arith::ArithDialect, cf::ControlFlowDialect,
                  func::FuncDialect, gpu::GPUDialect, LLVM::LLVMDialect,
                  math::MathDialect, nn::NNDialect, NVVM::NVVMDialect,
                  scf::SCFDialect, vector::VectorDialect>();
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
  OwningOpRef<ModuleOp> module = emit(*source);
  if (!module)
    return failWith("kernels cannot be emitted");
  expandMath(*module);
  if (failed(verify(*module)) || failed(lowerToLLVM(*module)))
    return failWith("kernels do not lower to LLVM");
  std::string message = emitObject(*module, options, object);
  if (!message.empty())
    failWith(message);
}

void kernels::compileModule(llvm::StringRef text, const TargetOptions &options,
                            std::string &object, std::string &error) {
  VectorTarget target;
  target.lanes = options.hasAvx512() ? 16 : 8;
  target.roundsBf16 = options.hasBf16();
  auto emit = [&](ModuleOp source) { return emitLoops(source, target); };
  compileModule(text, options, emit, object, error);
}
