// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A processor for LLVM's code generation. Kernels are compiled for a level of
// x86-64 (Processor.h) rather than for a model of processor, so that a program
// runs on every node of a mixed cluster.
#include "compiler/codegen/TargetOptions.h"

#include "compiler/options/OptionTypes.h"
#include "compiler/options/Processor.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

#include <mutex>

using namespace fsdpc;
using namespace fsdpc::codegen;

bool TargetOptions::hasAvx512() const {
  return llvm::is_contained(features, "avx512f");
}

bool TargetOptions::hasBf16() const {
  return llvm::is_contained(features, "avx512bf16");
}

// Only `native` may tune for this machine's model; its features are still those
// of a level.
llvm::FailureOr<TargetOptions>
fsdpc::codegen::resolveTarget(mlir::Location loc, llvm::StringRef name) {
  fsdp::Cpu cpu = fsdp::Cpu::Native;
  if (!name.empty() && !fsdp::parseName(name, cpu).empty())
    return mlir::emitError(loc) << "unknown processor '" << name
                                << "'; use native, x86-64-v3 or x86-64-v4";
  TargetOptions options;
  options.features = fsdp::featuresOf(cpu);
  if (options.features.empty())
    return mlir::emitError(loc)
           << "this machine's processor '" << llvm::sys::getHostCPUName()
           << "' does not support AVX2; choose the target processor "
              "explicitly, as in --cpu=x86-64-v3";
  options.cpu = options.hasAvx512() ? "x86-64-v4" : "x86-64-v3";
  options.tuneFor = cpu == fsdp::Cpu::Native ? llvm::sys::getHostCPUName().str()
                                             : options.cpu;
  return options;
}

// Leaves the features empty, so that the program checks for none when it
// starts.
TargetOptions fsdpc::codegen::anyProcessor() {
  TargetOptions options;
  options.cpu = options.tuneFor = "x86-64";
  return options;
}

// Safe to call from several threads, as emitObject does: LLVM's registry is
// filled once.
std::unique_ptr<llvm::TargetMachine>
fsdpc::codegen::makeTargetMachine(const TargetOptions &options,
                                  llvm::CodeGenOptLevel level) {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  llvm::Triple triple(llvm::sys::getDefaultTargetTriple());
  std::string error, features;
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  for (const std::string &feature : options.features)
    features += (features.empty() ? "+" : ",+") + feature;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, options.cpu, features, llvm::TargetOptions(), llvm::Reloc::PIC_,
      std::nullopt, level));
}
