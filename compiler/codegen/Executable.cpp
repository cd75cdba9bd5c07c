// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns the final module into the executable: kernels and the program become
// objects in a temporary folder, and lld joins them with the runtime's
// archive. Targets differ in their kernels only: vector code on the
// host (host), a fat binary (cuda), or grids as host functions
// (cuda-emulation).
#include "compiler/codegen/Executable.h"

#include "compiler/codegen/Files.h"
#include "compiler/codegen/KernelCompiler.h"
#include "compiler/codegen/LLVMPasses.h"
#include "compiler/codegen/Link.h"
#include "compiler/codegen/ManifestBuilder.h"
#include "compiler/codegen/ProgramEmitter.h"
#include "compiler/codegen/SourceHashes.h"
#include "compiler/codegen/SourcePaths.h"
#include "compiler/codegen/nvvm/DeviceCode.h"
#include "compiler/options/Options.h"
#include "runtime/support/concat.h"
#include "runtime/support/output_file.h"

#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

LogicalResult fsdpc::codegen::checkOutput(Location loc, StringRef path) {
  // Renaming the finished program over a device file would replace the device.
  if (!mayBeReplaced(path.str()))
    return emitError(loc) << "'" << path
                          << "' exists and is not a regular file; choose "
                             "another output";
  StringRef folder = llvm::sys::path::parent_path(path);
  if (folder.empty())
    folder = ".";
  if (!llvm::sys::fs::is_directory(folder))
    return emitError(loc) << "cannot write '" << path << "': no such folder '"
                          << folder << "'";
  if (std::error_code error =
          llvm::sys::fs::access(folder, llvm::sys::fs::AccessMode::Write))
    return emitError(loc) << "cannot write '" << path << "': folder '" << folder
                          << "': " << error.message();
  return success();
}

namespace {

// The kernels of a program: object files for the linker, whose order does not
// matter to it, or the device code that the program carries.
struct Code {
  std::vector<std::string> objects;
  std::string device;
};

} // namespace

// Device code goes through files in the folder of --dump, or else in `folder`.
static FailureOr<Code> compileCode(ModuleOp module, const TargetOptions &target,
                                   const ExecutableOptions &options,
                                   StringRef folder) {
  fsdp::CompileOptions compile = fsdp::CompileOptions::of(module);
  if (compile.target == fsdp::Target::Cuda) {
    FailureOr<std::string> code = compileDeviceCode(
        module, compile.gpus, options.toolkit,
        options.dumpFolder.empty() ? folder : StringRef(options.dumpFolder),
        options.kernelReport, options.kernels);
    if (failed(code))
      return failure();
    return Code{{}, std::move(*code)};
  }
  FailureOr<std::vector<std::string>> kernels =
      compile.target == fsdp::Target::Host
          ? compileKernels(module, target, options.kernels)
          : compileEmulatedCode(module, target, options.kernels);
  if (failed(kernels))
    return failure();
  return Code{std::move(*kernels), ""};
}

FailureOr<Manifest>
fsdpc::codegen::buildExecutable(ModuleOp module,
                                const ExecutableOptions &options) {
  Location loc = module.getLoc();
  fsdp::CompileOptions compile = fsdp::CompileOptions::of(module);
  bool onGpu = compile.target == fsdp::Target::Cuda;
  // A CUDA program is often compiled on one machine and run on another. Its
  // host code only makes calls, so the baseline x86-64 costs nothing.
  FailureOr<TargetOptions> target =
      onGpu ? anyProcessor() : resolveTarget(loc, fsdp::nameOf(compile.cpu));
  if (failed(target))
    return failure();
  ProgramTables tables(module);
  Manifest manifest = buildManifest(module, tables);
  manifest.commandLine = options.commandLine;
  manifest.cpu = target->cpu;
  manifest.cpuFeatures = target->features;
  if (failed(hashSources(loc, manifest)) ||
      failed(
          setSourcePaths(loc, manifest, options.path, options.absolutePaths)))
    return failure();

  TemporaryFolder folder(loc);
  if (!folder.valid())
    return failure();
  FailureOr<Code> code = compileCode(module, *target, options, folder.path());
  if (failed(code))
    return failure();
  options.kernels.beginPart("program");
  llvm::LLVMContext context;
  // The program is straight-line calls, so there is nothing to optimise.
  auto program =
      emitProgram(module, tables, toJson(manifest), code->device, context);
  code->objects.push_back(generateCode(
      *program, *makeTargetMachine(*target, llvm::CodeGenOptLevel::None)));

  std::vector<std::string> files;
  for (auto [index, object] : llvm::enumerate(code->objects)) {
    files.push_back(concat(folder.path(), "/part", index, ".o"));
    std::string error = writeFile(files.back(), object);
    if (!error.empty())
      return emitError(loc) << error;
  }
  // The linker opens its output by name and truncates it. It therefore writes
  // to our own folder, and only a complete program is copied to the path that
  // the user gave.
  options.kernels.beginPart("link");
  std::string linked = (folder.path() + "/program").str();
  if (failed(linkProgram(loc, compile.target, options.toolkit, files, linked)))
    return failure();
  options.kernels.beginPart("write");
  // Asks before the copy, so that a refused program leaves the old file alone.
  if (options.accept && failed(options.accept(manifest)))
    return failure();
  std::string error = copyProgram(linked, options.path);
  if (!error.empty())
    return emitError(loc) << error;
  return manifest;
}
