// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Looks for a toolkit that is complete: the tools that assemble kernels, and
// the libraries that a program is linked with.
#include "compiler/codegen/nvvm/Toolkit.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

#include <cstdlib>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

namespace {

constexpr llvm::StringLiteral kPrograms[] = {"ptxas", "fatbinary"};
constexpr llvm::StringLiteral kLibraries[] = {"libcudart.so", "libcublasLt.so",
                                              "libcudnn.so", "libnccl.so"};
// Distributions and containers put the libraries in different folders.
constexpr llvm::StringLiteral kLibraryFolders[] = {"lib64", "lib",
                                                   "targets/x86_64-linux/lib"};

// Returns the toolkit in `root` if it is complete, else appends what it lacks
// to `missing`.
std::optional<CudaToolkit> look(StringRef root,
                                SmallVectorImpl<std::string> &missing) {
  // The path must be absolute, since the folder of the libraries becomes the
  // program's runpath.
  llvm::SmallString<128> absolute(root);
  llvm::sys::fs::make_absolute(absolute);
  CudaToolkit toolkit;
  toolkit.root = absolute.str().str();
  for (StringRef name : kPrograms)
    if (!llvm::sys::fs::can_execute(toolkit.program(name)))
      missing.push_back("bin/" + name.str());
  // The user probably means the folder that lacks the fewest libraries, so the
  // message lists only what is missing there.
  SmallVector<std::string> best;
  for (StringRef folder : kLibraryFolders) {
    std::string path = toolkit.root + "/" + folder.str();
    SmallVector<std::string> lacks;
    for (StringRef name : kLibraries)
      if (!llvm::sys::fs::exists(path + "/" + name))
        lacks.push_back((folder + "/" + name).str());
    if (toolkit.libraries.empty() || lacks.size() < best.size()) {
      toolkit.libraries = path;
      best = lacks;
    }
  }
  missing.append(best);
  if (!missing.empty())
    return std::nullopt;
  return toolkit;
}

} // namespace

FailureOr<CudaToolkit> fsdpc::codegen::findCudaToolkit(Location loc,
                                                       StringRef folder) {
  // The folders that may hold a toolkit, and who named each.
  SmallVector<std::pair<std::string, std::string>> candidates;
  if (!folder.empty()) {
    // A folder that the user names is the only candidate: to fall back on
    // another one would hide a typo.
    candidates.emplace_back("--cuda-path", folder.str());
  } else {
    for (const char *variable : {"CUDA_HOME", "CUDA_PATH"})
      if (const char *value = std::getenv(variable); value && *value)
        candidates.emplace_back(variable, value);
    candidates.emplace_back("default", "/usr/local/cuda");
    if (auto nvcc = llvm::sys::findProgramByName("nvcc"))
      candidates.emplace_back(
          "nvcc in PATH",
          llvm::sys::path::parent_path(llvm::sys::path::parent_path(*nvcc)));
  }
  // Every candidate that failed is listed with what it lacks.
  std::string places;
  for (const auto &[name, path] : candidates) {
    SmallVector<std::string> missing;
    if (std::optional<CudaToolkit> toolkit = look(path, missing))
      return *toolkit;
    places += (places.empty() ? "" : "; ") + ("'" + path + "' (" + name + ")");
    places += llvm::sys::fs::is_directory(path)
                  ? " lacks " + llvm::join(missing, ", ")
                  : std::string(" does not exist or is not a folder");
  }
  return emitError(loc) << "cannot find a CUDA toolkit with ptxas, fatbinary, "
                           "cudart, cublasLt, cudnn and nccl; searched "
                        << places << "; set one with --cuda-path=DIR";
}
