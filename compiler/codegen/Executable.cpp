// Turns the final module into the executable: kernels and the program become
// objects in a temporary folder, and the system's linker joins them with the
// runtime's archive. Targets differ in their kernels only: vector code on the
// host (host), a fat binary (cuda), or grids as host functions
// (cuda-emulation).
#include "compiler/codegen/Executable.h"

#include "compiler/codegen/Files.h"
#include "compiler/codegen/KernelCompiler.h"
#include "compiler/codegen/LLVMPasses.h"
#include "compiler/codegen/Link.h"
#include "compiler/codegen/ManifestBuilder.h"
#include "compiler/codegen/ProgramEmitter.h"
#include "compiler/codegen/nvvm/DeviceCode.h"
#include "compiler/dialects/fsdp/Options.h"
#include "shared/output_file.h"

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

FailureOr<Manifest>
fsdpc::codegen::buildExecutable(ModuleOp module,
                                const ExecutableOptions &options) {
  Location loc = module.getLoc();
  fsdp::CompileOptions compile = fsdp::CompileOptions::of(module);
  bool onHost = compile.target == fsdp::Target::Host;
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

  TemporaryFolder folder(loc);
  if (!folder.valid())
    return failure();
  // In the order in which the linker gets them; it does not matter to it.
  std::vector<std::string> objects;
  std::string deviceCode;
  if (onGpu) {
    FailureOr<std::string> code = compileDeviceCode(
        module, compile.gpus, options.toolkit,
        options.dumpFolder.empty() ? StringRef(folder.path)
                                   : StringRef(options.dumpFolder),
        options.kernelReport);
    if (failed(code))
      return failure();
    deviceCode = std::move(*code);
  } else {
    FailureOr<std::vector<std::string>> kernels =
        onHost ? compileKernels(module, *target)
               : compileEmulatedCode(module, *target);
    if (failed(kernels))
      return failure();
    objects = std::move(*kernels);
  }
  llvm::LLVMContext context;
  // The program is straight-line calls, so there is nothing to optimise.
  auto program =
      emitProgram(module, tables, toJson(manifest), deviceCode, context);
  objects.push_back(generateCode(
      *program, *makeTargetMachine(*target, llvm::CodeGenOptLevel::None)));

  std::vector<std::string> files;
  for (auto [index, object] : llvm::enumerate(objects)) {
    files.push_back(
        (folder.path + "/part" + std::to_string(index) + ".o").str());
    std::string error = writeFile(files.back(), object);
    if (!error.empty())
      return emitError(loc) << error;
  }
  // The linker opens its output by name and truncates it. It therefore writes
  // to our own folder, and only a complete program is copied to the path that
  // the user gave.
  std::string linked = (folder.path + "/program").str();
  if (failed(linkProgram(loc, compile.target, options.toolkit, files, linked)))
    return failure();
  // Asks before the copy, so that a refused program leaves the old file alone.
  if (options.accept && failed(options.accept(manifest)))
    return failure();
  std::string error = copyProgram(linked, options.path);
  if (!error.empty())
    return emitError(loc) << error;
  return manifest;
}
