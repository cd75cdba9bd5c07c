#include "compiler/codegen/nvvm/GpuArch.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/CodeGen.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

#include <mutex>

using namespace fsdpc;
using namespace fsdpc::codegen;

static constexpr GpuArch table[] = {
    {"sm_80", 80, 70}, {"sm_86", 86, 71},   {"sm_89", 89, 78},
    {"sm_90", 90, 80}, {"sm_100", 100, 86}, {"sm_120", 120, 87},
};

mlir::FailureOr<llvm::SmallVector<GpuArch>>
fsdpc::codegen::resolveGpuArchs(mlir::Location loc, llvm::StringRef text) {
  llvm::SmallVector<llvm::StringRef> names;
  text.split(names, ',');
  for (llvm::StringRef name : names)
    if (!llvm::is_contained(llvm::map_range(table, std::mem_fn(&GpuArch::name)),
                            name)) {
      auto error = mlir::emitError(loc)
                   << "unknown GPU architecture '" << name << "'; supported:";
      for (const GpuArch &arch : table)
        error << ' ' << arch.name;
      return error;
    }
  llvm::SmallVector<GpuArch> archs;
  for (const GpuArch &arch : table)
    if (llvm::is_contained(names, arch.name))
      archs.push_back(arch);
  return archs;
}

std::unique_ptr<llvm::TargetMachine>
fsdpc::codegen::makeGpuMachine(const GpuArch &arch) {
  static std::once_flag once;
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
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, arch.name, "+ptx" + std::to_string(arch.ptx),
      llvm::TargetOptions(), llvm::Reloc::PIC_, std::nullopt,
      llvm::CodeGenOptLevel::Aggressive));
}
