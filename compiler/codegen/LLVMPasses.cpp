// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LLVM's own pipeline, with the new pass manager, and its code generator, which
// still needs the legacy one.

#include "compiler/codegen/LLVMPasses.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

using namespace fsdpc;
using namespace fsdpc::codegen;

// The four analysis managers must outlive the run and know each other, since a
// function pass may ask for an analysis of its module.
void fsdpc::codegen::optimize(llvm::Module &module,
                              llvm::TargetMachine &machine) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  tuning.LoopInterleaving = false;
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder passes(&machine, tuning);
  passes.registerModuleAnalyses(modules);
  passes.registerCGSCCAnalyses(components);
  passes.registerFunctionAnalyses(functions);
  passes.registerLoopAnalyses(loops);
  passes.crossRegisterProxies(loops, functions, components, modules);
  passes.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3)
      .run(module, modules);
}

std::string fsdpc::codegen::generateCode(llvm::Module &module,
                                         llvm::TargetMachine &machine) {
  // The data layout must be the target's before any pass runs: it decides
  // alignment and pointer sizes in memory.
  module.setTargetTriple(machine.getTargetTriple());
  module.setDataLayout(machine.createDataLayout());
  llvm::SmallString<0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  // The NVPTX back end writes assembly only; x86 writes objects directly.
  bool isGpu = machine.getTargetTriple().isNVPTX();
  [[maybe_unused]] bool unsupported =
      machine.addPassesToEmitFile(passes, stream, nullptr,
                                  isGpu ? llvm::CodeGenFileType::AssemblyFile
                                        : llvm::CodeGenFileType::ObjectFile);
  assert(!unsupported && "both targets write such files");
  passes.run(module);
  return bytes.str().str();
}
