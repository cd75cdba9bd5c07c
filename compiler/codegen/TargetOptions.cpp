// The x86-64 microarchitecture levels of the System V ABI, and which of them
// the compiling machine has. Kernels are compiled for a level rather than for a
// model of processor, so that a program runs on every node of a mixed cluster.
#include "compiler/codegen/TargetOptions.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

#include <mutex>

using namespace fsdpc;
using namespace fsdpc::codegen;

namespace {

// The features that levels 3 and 4 add, in LLVM's names.
const char *const kLevel3[] = {"avx",  "avx2", "bmi",   "bmi2",
                               "f16c", "fma",  "lzcnt", "movbe"};
const char *const kLevel4[] = {"avx512f", "avx512bw", "avx512cd", "avx512dq",
                               "avx512vl"};

} // namespace

bool TargetOptions::hasAvx512() const {
  return llvm::is_contained(features, "avx512f");
}

bool TargetOptions::hasBf16() const {
  return llvm::is_contained(features, "avx512bf16");
}

// `native` never yields a model of processor: it takes the highest level that
// this machine has in full. bf16 rounding is the one feature beyond a level,
// and only `native` adds it, since no level includes it.
llvm::FailureOr<TargetOptions>
fsdpc::codegen::resolveTarget(mlir::Location loc, llvm::StringRef name) {
  TargetOptions options;
  bool level4 = name == "x86-64-v4";
  bool native = name.empty() || name == "native";
  if (!native && !level4 && name != "x86-64-v3")
    return mlir::emitError(loc) << "unknown processor '" << name
                                << "'; use native, x86-64-v3 or x86-64-v4";
  auto host = llvm::sys::getHostCPUFeatures();
  auto present = [&](const char *feature) { return host.lookup(feature); };
  if (native) {
    if (!llvm::all_of(kLevel3, present))
      return mlir::emitError(loc)
             << "this machine's processor '" << llvm::sys::getHostCPUName()
             << "' does not support AVX2; choose the target processor "
                "explicitly, as in --cpu=x86-64-v3";
    level4 = llvm::all_of(kLevel4, present);
  }
  options.cpu = level4 ? "x86-64-v4" : "x86-64-v3";
  options.tuneFor = native ? llvm::sys::getHostCPUName().str() : options.cpu;
  options.features.assign(std::begin(kLevel3), std::end(kLevel3));
  if (level4)
    options.features.insert(options.features.end(), std::begin(kLevel4),
                            std::end(kLevel4));
  if (native && level4 && present("avx512bf16"))
    options.features.push_back("avx512bf16");
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
