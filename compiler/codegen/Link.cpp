// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links programs with lld, as a library. The compiler carries everything that a
// link needs apart from the objects: the runtime's archive and the folder of
// link inputs (tools/cmake/FsdpcLink.cmake). So a machine that compiles needs
// neither a linker nor the files of a C++ compiler, and no variable of the
// environment changes a link.

#include "compiler/codegen/Link.h"

#include "runtime/support/installation.h"

#include "lld/Common/Driver.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

LLD_HAS_DRIVER(elf)

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

// Returns the path of a file in ../lib from the compiler's own folder, where
// the link's inputs lie in the build as well as when installed.
static std::string besideCompiler(StringRef name) {
  llvm::SmallString<128> path(
      llvm::sys::fs::getMainExecutable(nullptr, nullptr));
  llvm::sys::path::append(path, "..", "..", "lib", name);
  llvm::sys::path::remove_dots(path, /*remove_dot_dot=*/true);
  return path.str().str();
}

std::string codegen::runtimeArchive(fsdp::Target target) {
  switch (target) {
  case fsdp::Target::Cuda:
    return besideCompiler("libfsdpc_runtime_cuda.a");
  case fsdp::Target::CudaEmulation:
    return besideCompiler("libfsdpc_runtime_cuda_emulation.a");
  case fsdp::Target::Host:
    return besideCompiler("libfsdpc_runtime.a");
  }
  llvm_unreachable("targets are listed above");
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
    return "install fsdpc again, or build it with 'ninja -C build "
           "fsdpc_runtime_cuda_emulation'";
  case fsdp::Target::Host:
    return "install fsdpc again, or build it with 'ninja -C build "
           "fsdpc_runtime'";
  }
  llvm_unreachable("targets are listed above");
}

FailureOr<LinkInputs> fsdpc::codegen::findLinkInputs(Location loc,
                                                     fsdp::Target target) {
  LinkInputs inputs{besideCompiler("link"), runtimeArchive(target)};
  if (!llvm::sys::fs::exists(inputs.archive))
    return emitError(loc) << "no runtime library for '--target="
                          << nameOf(target) << "': '" << inputs.archive
                          << "' does not exist; " << howToBuild(target);
  if (Status there = checkParts("lib/link"); !there)
    return emitError(loc) << "no start files and stubs to link with: "
                          << there.error().message
                          << ", or build them with 'ninja -C build fsdpc_link'";
  return inputs;
}

// The words of the link, in the order in which a C++ compiler gives them: an
// archive serves only the objects in front of it, and the libraries serve the
// archive.
static std::vector<std::string> linkWords(const LinkInputs &inputs,
                                          fsdp::Target target,
                                          const CudaToolkit &toolkit,
                                          ArrayRef<std::string> objects,
                                          StringRef output) {
  auto start = [&](const char *name) { return inputs.folder + "/" + name; };
  // The program lies at any address, with tables of addresses that are
  // read-only from the start on, as fsdpc itself. Compiles run side by side, so
  // each takes one thread; more do not pay for files of this size.
  std::vector<std::string> words{
      "ld.lld", "-o", output.str(), "-pie", "-z", "relro", "-z", "now",
      "--export-dynamic", "--build-id", "--threads=1", "--eh-frame-hdr",
      "--hash-style=gnu",
      // Libraries that the program takes from archives are its own.
      "--exclude-libs=libdnnl.a:libgomp.a:libz.a",
      "--dynamic-linker=/lib64/ld-linux-x86-64.so.2", start("Scrt1.o"),
      start("crti.o"), start("crtbeginS.o")};
  llvm::append_range(words, objects);
  words.insert(words.end(), {inputs.archive, "-L" + inputs.folder});
  if (target == fsdp::Target::Cuda) {
    // A runpath, not an rpath: LD_LIBRARY_PATH takes precedence over a runpath,
    // and the machine with the GPU may keep these libraries elsewhere.
    words.insert(words.end(), {"--enable-new-dtags", "-rpath",
                               llvm::join(toolkit.libraryFolders(), ":")});
    llvm::append_range(words, toolkit.libraries);
  } else {
    words.insert(words.end(), {"-ldnnl", "-lgomp"});
  }
  words.insert(words.end(),
               {"-lz", "-lstdc++", "-lm", "-lgcc_s", "-lgcc", "-lc",
                "-lc_nonshared", start("crtendS.o"), start("crtn.o")});
  return words;
}

LogicalResult fsdpc::codegen::linkProgram(Location loc, fsdp::Target target,
                                          const CudaToolkit &toolkit,
                                          ArrayRef<std::string> objects,
                                          StringRef output) {
  FailureOr<LinkInputs> inputs = findLinkInputs(loc, target);
  if (failed(inputs))
    return failure();
  std::vector<std::string> words =
      linkWords(*inputs, target, toolkit, objects, output);
  std::vector<const char *> arguments;
  for (const std::string &word : words)
    arguments.push_back(word.c_str());
  std::string said;
  llvm::raw_string_ostream stream(said);
  lld::Result result = lld::lldMain(arguments, llvm::nulls(), stream,
                                    {{lld::Gnu, &lld::elf::link}});
  if (result.retCode != 0)
    return emitError(loc) << "cannot link '" << output
                          << "': " << StringRef(said).trim();
  return success();
}
