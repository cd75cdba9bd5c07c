// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns the LLVM dialect into LLVM IR and an object file. The functions carry
// the processor as attributes, because LLVM splits 512-bit vectors unless told
// to prefer them.
#include "compiler/codegen/kernels/LowerToLLVM.h"

#include "compiler/codegen/LLVMPasses.h"

#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

void kernels::registerTranslations(DialectRegistry &registry) {
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

std::string kernels::emitObject(ModuleOp source, const TargetOptions &options,
                                std::string &object) {
  // Each call has a context of its own, since LLVM's are not safe for use by
  // several threads and groups are translated in parallel.
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module =
      translateModuleToLLVMIR(source, context, "kernels");
  if (!module)
    return "kernels do not translate to LLVM IR";
  auto machine = makeTargetMachine(options, llvm::CodeGenOptLevel::Default);
  module->setTargetTriple(machine->getTargetTriple());
  module->setDataLayout(machine->createDataLayout());
  for (llvm::Function &function : *module) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", options.cpu);
    function.addFnAttr("target-features", machine->getTargetFeatureString());
    function.addFnAttr("tune-cpu", options.tuneFor);
    if (options.hasAvx512())
      function.addFnAttr("prefer-vector-width", "512");
  }
  optimize(*module, *machine);

  object = generateCode(*module, *machine);
  return "";
}
