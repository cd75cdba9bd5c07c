// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Looks for a toolkit that is complete: the tools that assemble kernels, and
// the libraries that a program is linked with. An incomplete one is refused
// with what is missing.
#include "compiler/codegen/nvvm/Toolkit.h"

#include "runtime/support/programs.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

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

// Returns the toolkit in the absolute folder `root` if it is complete, else
// appends what it lacks to `missing`.
std::optional<CudaToolkit> look(StringRef root,
                                SmallVectorImpl<std::string> &missing) {
  CudaToolkit toolkit;
  toolkit.root = root.str();
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

// A folder that may hold a toolkit, and who named it.
struct Candidate {
  std::string from, path;
};

// The user means a folder with --cuda-path, which may be relative. A variable
// of the environment does not say relative to which folder it was meant.
SmallVector<Candidate> candidatesOf(StringRef folder) {
  // A folder that the user names is the only candidate: to fall back on another
  // one would hide a typo.
  if (!folder.empty()) {
    llvm::SmallString<128> absolute(folder);
    llvm::sys::fs::make_absolute(absolute);
    return {{"--cuda-path", absolute.str().str()}};
  }
  SmallVector<Candidate> candidates;
  for (const char *variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char *value = std::getenv(variable); value && *value)
      candidates.push_back({variable, value});
  candidates.push_back({"default", "/usr/local/cuda"});
  if (Result<std::string> nvcc = findProgram("nvcc"))
    candidates.push_back(
        {"nvcc in PATH",
         llvm::sys::path::parent_path(llvm::sys::path::parent_path(*nvcc))
             .str()});
  return candidates;
}

// Returns the toolkit of a candidate, or sets `fault` to why it has none.
std::optional<CudaToolkit> toolkitOf(const Candidate &candidate,
                                     std::string &fault) {
  StringRef path = candidate.path;
  SmallVector<std::string> missing;
  if (!llvm::sys::path::is_absolute(path))
    fault = "is not an absolute path";
  else if (path.contains(':'))
    // The folder of the libraries becomes the program's runpath.
    fault = "contains ':', which separates the folders of a runpath";
  else if (!llvm::sys::fs::is_directory(path))
    fault = "does not exist or is not a folder";
  else if (std::optional<CudaToolkit> toolkit = look(path, missing))
    return toolkit;
  else
    fault = "lacks " + llvm::join(missing, ", ");
  return std::nullopt;
}

} // namespace

FailureOr<CudaToolkit> fsdpc::codegen::findCudaToolkit(Location loc,
                                                       StringRef folder) {
  // Every candidate that failed is listed with the reason.
  std::string places;
  for (const Candidate &candidate : candidatesOf(folder)) {
    std::string fault;
    if (std::optional<CudaToolkit> toolkit = toolkitOf(candidate, fault))
      return *toolkit;
    places += (places.empty() ? "'" : "; '") + candidate.path + "' (" +
              candidate.from + ") " + fault;
  }
  return emitError(loc) << "cannot find a CUDA toolkit with ptxas, fatbinary, "
                           "cudart, cublasLt, cudnn and nccl; searched "
                        << places << "; set one with --cuda-path=DIR";
}
