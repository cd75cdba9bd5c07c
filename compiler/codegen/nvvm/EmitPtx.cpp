// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Translates NVVM to LLVM IR and runs LLVM's back end for PTX. ptxas, which
// makes machine code of PTX, is a separate program (Assemble.cpp).
#include "compiler/codegen/nvvm/EmitPtx.h"

#include "compiler/codegen/LLVMPasses.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

void kernels::registerGpuTranslations(DialectRegistry &registry) {
  registerBuiltinDialectTranslation(registry);
  registerGPUDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
}

std::string kernels::emitPtx(ModuleOp source, const GpuArch &arch,
                             std::string &ptx) {
  auto grids = source.getOps<gpu::GPUModuleOp>();
  if (!llvm::hasSingleElement(grids))
    return "kernels are not in a single gpu.module";
  // A context of its own, since groups and architectures are translated in
  // parallel.
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module =
      translateModuleToLLVMIR(*grids.begin(), context, "kernels");
  if (!module)
    return "cannot translate kernels to LLVM IR";
  // The generator must exist before optimisation, because LLVM's passes ask the
  // target for costs.
  auto machine = makeGpuMachine(arch);
  module->setTargetTriple(machine->getTargetTriple());
  module->setDataLayout(machine->createDataLayout());
  optimize(*module, *machine);
  ptx = generateCode(*module, *machine);
  return "";
}

std::string kernels::joinPtx(llvm::ArrayRef<std::string> modules) {
  // Each text begins with the same three directives, of which .address_size is
  // the last.
  std::string joined;
  for (llvm::StringRef ptx : modules) {
    // Only the first module keeps its head.
    if (!joined.empty()) {
      size_t last = ptx.find("\n.address_size");
      ptx = ptx.substr(ptx.find('\n', last + 1));
    }
    joined += ptx;
  }
  return joined;
}
