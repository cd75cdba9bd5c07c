// From the final module to the executable.
#include "compiler/codegen/Executable.h"

#include "compiler/codegen/KernelCompiler.h"
#include "compiler/codegen/ManifestBuilder.h"
#include "compiler/codegen/ProgramEmitter.h"
#include "compiler/dialects/fsdp/Options.h"

#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace fsdpc;

namespace {

// A folder for objects that is gone with the compile.
class TemporaryFolder {
public:
  explicit TemporaryFolder(Location loc) {
    if (std::error_code error =
            llvm::sys::fs::createUniqueDirectory("fsdpc", path))
      emitError(loc) << "cannot make a temporary folder: " << error.message();
  }
  ~TemporaryFolder() {
    if (valid())
      llvm::sys::fs::remove_directories(path);
  }
  bool valid() const { return !path.empty(); }

  // Writes a file and returns its path.
  FailureOr<std::string> write(Location loc, StringRef name, StringRef bytes) {
    llvm::SmallString<128> file(path);
    llvm::sys::path::append(file, name);
    std::error_code error;
    llvm::raw_fd_ostream stream(file, error);
    if (!error) {
      stream << bytes;
      stream.close();
      error = stream.error();
      stream.clear_error();
    }
    if (error)
      return emitError(loc)
             << "cannot write '" << file << "': " << error.message();
    return file.str().str();
  }

  llvm::SmallString<128> path;
};

// The straight-line program is calls alone, so nothing is to be optimised.
std::string emitObject(llvm::Module &module, llvm::TargetMachine &machine) {
  module.setTargetTriple(machine.getTargetTriple());
  module.setDataLayout(machine.createDataLayout());
  llvm::SmallString<0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  machine.addPassesToEmitFile(passes, stream, nullptr,
                              llvm::CodeGenFileType::ObjectFile);
  passes.run(module);
  return bytes.str().str();
}

// The runtime's archive lies beside the compiler, where it was built or
// installed.
std::string runtimeArchive() {
  llvm::SmallString<128> path(llvm::sys::path::parent_path(
      llvm::sys::fs::getMainExecutable(nullptr, nullptr)));
  llvm::sys::path::append(path, "..", "lib", "libfsdpc_runtime.a");
  return path.str().str();
}

LogicalResult link(Location loc, ArrayRef<std::string> objects,
                   StringRef output) {
  auto driver = llvm::sys::findProgramByName("c++");
  if (!driver)
    return emitError(loc) << "cannot find the linker driver 'c++'; install g++";
  std::string archive = runtimeArchive();
  SmallVector<StringRef> arguments{*driver, "-o", output};
  llvm::append_range(arguments, objects);
  llvm::append_range(arguments,
                     ArrayRef<StringRef>{archive, "-ldnnl", "-lgomp",
                                         "-lpthread", "-ldl", "-rdynamic"});
  std::string message;
  int code = llvm::sys::ExecuteAndWait(*driver, arguments, std::nullopt, {}, 0,
                                       0, &message);
  if (code == 0)
    return success();
  return emitError(loc) << "linking '" << output << "' failed with status "
                        << code << (message.empty() ? "" : ": ") << message;
}

} // namespace

FailureOr<Manifest> fsdpc::buildExecutable(ModuleOp module, StringRef path,
                                           StringRef commandLine) {
  Location loc = module.getLoc();
  FailureOr<TargetOptions> target =
      resolveTarget(loc, fsdp::getString(module, "cpu"));
  if (failed(target) || failed(prepareKernels(module, *target)))
    return failure();
  ProgramTables tables(module);
  Manifest manifest = buildManifest(module, tables);
  manifest.commandLine = commandLine.str();
  manifest.cpu = target->cpu;
  manifest.cpuFeatures = target->features;

  FailureOr<std::vector<std::string>> objects = compileKernels(module, *target);
  if (failed(objects))
    return failure();
  llvm::LLVMContext context;
  auto program = emitProgram(module, tables, toJson(manifest), context);
  objects->push_back(emitObject(
      *program, *makeTargetMachine(*target, llvm::CodeGenOptLevel::None)));

  TemporaryFolder folder(loc);
  if (!folder.valid())
    return failure();
  std::vector<std::string> files;
  for (auto [index, object] : llvm::enumerate(*objects)) {
    auto file =
        folder.write(loc, "part" + std::to_string(index) + ".o", object);
    if (failed(file))
      return failure();
    files.push_back(*file);
  }
  // Under a temporary name beside the output: a failed link leaves the old one.
  std::string temporary = (path + ".tmp").str();
  if (failed(link(loc, files, temporary))) {
    llvm::sys::fs::remove(temporary);
    return failure();
  }
  if (std::error_code error = llvm::sys::fs::rename(temporary, path)) {
    llvm::sys::fs::remove(temporary);
    return emitError(loc) << "cannot write '" << path
                          << "': " << error.message();
  }
  return manifest;
}
