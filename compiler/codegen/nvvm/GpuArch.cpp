// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of architectures. One that is added to --gpu-arch must be added
// here, which -Wswitch enforces.
#include "compiler/codegen/nvvm/GpuArch.h"

#include "runtime/support/concat.h"

#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/CodeGen.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

#include <mutex>

using namespace fsdpc;
using namespace fsdpc::codegen;

// Returns the lowest PTX version that knows the architecture, times 10.
static int ptxVersion(fsdp::Gpu gpu) {
  switch (gpu) {
  case fsdp::Gpu::SM80:
    return 70;
  case fsdp::Gpu::SM86:
    return 71;
  case fsdp::Gpu::SM89:
    return 78;
  case fsdp::Gpu::SM90:
    return 80;
  case fsdp::Gpu::SM100:
    return 86;
  case fsdp::Gpu::SM120:
    return 87;
  }
  llvm_unreachable("architectures are listed above");
}

// Returns the shared memory of a multiprocessor, in KiB (CUDA C++ Programming
// Guide, "Technical Specifications per Compute Capability").
static int64_t sharedKiB(fsdp::Gpu gpu) {
  switch (gpu) {
  case fsdp::Gpu::SM80:
    return 164;
  case fsdp::Gpu::SM86:
  case fsdp::Gpu::SM89:
  case fsdp::Gpu::SM120:
    return 100;
  case fsdp::Gpu::SM90:
  case fsdp::Gpu::SM100:
    return 228;
  }
  llvm_unreachable("architectures are listed above");
}

llvm::SmallVector<GpuArch>
fsdpc::codegen::gpuArchs(llvm::ArrayRef<fsdp::Gpu> gpus) {
  llvm::SmallVector<GpuArch> archs;
  for (fsdp::Gpu gpu : gpus) {
    llvm::StringRef name = nameOf(gpu); // sm_90
    int number = 0;
    name.drop_front(3).getAsInteger(10, number);
    archs.push_back({name, number, ptxVersion(gpu), sharedKiB(gpu) << 10});
  }
  return archs;
}

std::unique_ptr<llvm::TargetMachine>
fsdpc::codegen::makeGpuMachine(const GpuArch &arch) {
  static std::once_flag once;
  // Only this back end is initialised; the host's has its own call
  // (TargetOptions.cpp).
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  // The lowest version that will do, so that an old toolkit accepts the text.
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, arch.name, concat("+ptx", arch.ptx), llvm::TargetOptions(),
      llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}
