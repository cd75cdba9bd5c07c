// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds and runs the linker. The C++ driver is called and not ld itself, since
// it knows where this system keeps its start files and libraries.

#include "compiler/codegen/Link.h"

#include "compiler/codegen/Files.h"
#include "runtime/support/programs.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

// Returns the path of the runtime's archive for a target. The archives lie in
// ../lib from the compiler's own folder, in the build as well as when
// installed.
static std::string runtimeArchive(fsdp::Target target) {
  llvm::SmallString<128> path(llvm::sys::path::parent_path(
      llvm::sys::fs::getMainExecutable(nullptr, nullptr)));
  StringRef name = target == fsdp::Target::Cuda ? "libfsdpc_runtime_cuda.a"
                   : target == fsdp::Target::CudaEmulation
                       ? "libfsdpc_runtime_cuda_emulation.a"
                       : "libfsdpc_runtime.a";
  llvm::sys::path::append(path, "..", "lib", name);
  return path.str().str();
}

// Says how to get the archive for `target`.
static StringRef howToBuild(fsdp::Target target) {
  switch (target) {
  case fsdp::Target::Cuda:
    return "build it with a CUDA toolkit, cuDNN and NCCL ('cmake -S . -B build "
           "-DFSDPC_CUDA_TOOLKIT=/usr/local/cuda', then 'ninja -C build "
           "fsdpc_runtime_cuda'); CMake's line 'CUDA runtime' lists what is "
           "missing";
  case fsdp::Target::CudaEmulation:
    return "build it with 'ninja -C build fsdpc_runtime_cuda_emulation'";
  case fsdp::Target::Host:
    return "build it with 'ninja -C build fsdpc_runtime'";
  }
  llvm_unreachable("targets are listed above");
}

FailureOr<LinkInputs> fsdpc::codegen::findLinkInputs(Location loc,
                                                     fsdp::Target target) {
  LinkInputs inputs;
  Result<std::string> driver = findProgram("c++");
  if (!driver)
    return emitError(loc) << driver.error().message
                          << "; programs are linked with it: install g++";
  inputs.driver = *driver;
  inputs.archive = runtimeArchive(target);
  if (!llvm::sys::fs::exists(inputs.archive))
    return emitError(loc) << "no runtime library for '--target="
                          << nameOf(target) << "': '" << inputs.archive
                          << "' does not exist; " << howToBuild(target);
  return inputs;
}

// The order of the words matters to the linker: an archive serves only the
// objects in front of it, and the libraries serve the archive.
LogicalResult fsdpc::codegen::linkProgram(Location loc, fsdp::Target target,
                                          const CudaToolkit &toolkit,
                                          ArrayRef<std::string> objects,
                                          StringRef output) {
  FailureOr<LinkInputs> inputs = findLinkInputs(loc, target);
  if (failed(inputs))
    return failure();
  std::vector<std::string> words{inputs->driver, "-o", output.str()};
  llvm::append_range(words, objects);
  words.push_back(inputs->archive);
  if (target == fsdp::Target::Cuda) {
    // A runpath, not an rpath: LD_LIBRARY_PATH takes precedence over a runpath,
    // and the machine with the GPU may keep these libraries elsewhere.
    words.insert(words.end(),
                 {"-L" + toolkit.libraries, "-Wl,--enable-new-dtags",
                  "-Xlinker", "-rpath", "-Xlinker", toolkit.libraries,
                  "-lcudart", "-lcublasLt", "-lcudnn", "-lnccl"});
  } else {
    words.insert(words.end(), {"-ldnnl", "-lgomp"});
  }
  // At any address, with tables of addresses that are read-only from the start
  // on, as fsdpc itself is linked.
  words.insert(words.end(), {"-lz", "-lpthread", "-ldl", "-rdynamic", "-pie",
                             "-Wl,-z,relro,-z,now"});
  std::string error = runProgram(words, llvm::sys::path::parent_path(output));
  if (!error.empty())
    return emitError(loc) << "cannot link '" << output << "': " << error;
  return success();
}
