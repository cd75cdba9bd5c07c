// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Looks for a toolkit that is complete: the tools that assemble kernels, and
// the libraries that a program is linked with. An incomplete one is refused
// with what is missing. NVIDIA's packages from PyPI make a toolkit too: PyTorch
// brings the libraries of it, and nvidia-cuda-nvcc the tools.
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
// With the name by which programs load each: packages from PyPI have no other.
constexpr struct {
  llvm::StringLiteral linked, loaded;
} kLibraries[] = {{"libcudart.so", "libcudart.so.13"},
                  {"libcublasLt.so", "libcublasLt.so.13"},
                  {"libcudnn.so", "libcudnn.so.9"},
                  {"libnccl.so", "libnccl.so.2"}};
// Distributions and containers put the libraries in different folders. Of the
// packages from PyPI, cudnn and nccl have folders beside the toolkit's.
constexpr llvm::StringLiteral kLibraryFolders[] = {
    "lib64", "lib", "targets/x86_64-linux/lib", "../cudnn/lib", "../nccl/lib"};
constexpr llvm::StringLiteral kPackages =
    "pip install nvidia-cuda-nvcc nvidia-cublas nvidia-cudnn-cu13 "
    "nvidia-nccl-cu13";

// Returns the path of a library below `root`, or an empty text.
std::string findLibrary(StringRef root, StringRef linked, StringRef loaded) {
  for (StringRef name : {linked, loaded})
    for (StringRef folder : kLibraryFolders) {
      llvm::SmallString<128> path(root);
      llvm::sys::path::append(path, folder, name);
      llvm::sys::path::remove_dots(path, /*remove_dot_dot=*/true);
      if (llvm::sys::fs::exists(path))
        return path.str().str();
    }
  return "";
}

// Returns the toolkit in the absolute folder `root` if it is complete, else
// appends what it lacks to `missing`.
std::optional<CudaToolkit> look(StringRef root,
                                SmallVectorImpl<std::string> &missing) {
  CudaToolkit toolkit;
  toolkit.root = root.str();
  for (StringRef name : kPrograms)
    if (!llvm::sys::fs::can_execute(toolkit.program(name)))
      missing.push_back("bin/" + name.str());
  for (auto [linked, loaded] : kLibraries) {
    toolkit.libraries.push_back(findLibrary(root, linked, loaded));
    if (toolkit.libraries.back().empty())
      missing.push_back(linked.str());
  }
  if (!missing.empty())
    return std::nullopt;
  return toolkit;
}

// A folder that may hold a toolkit, and who named it.
struct Candidate {
  std::string from, path;
};

// Appends the folders of Python's packages that have files of NVIDIA's.
void appendPackages(SmallVectorImpl<Candidate> &candidates) {
  auto append = [&](const Twine &from, StringRef packages) {
    llvm::SmallString<128> path(packages);
    llvm::sys::path::append(path, "nvidia", "cu13");
    if (llvm::sys::fs::is_directory(path))
      candidates.push_back({from.str(), path.str().str()});
  };
  std::string own = ownProgram();
  StringRef packages = own;
  if (packages.consume_back("/fsdpc/compiler/bin/fsdpc"))
    append("beside this fsdpc", packages);
  for (const char *variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char *value = std::getenv(variable);
    if (!value || !llvm::sys::path::is_absolute(value))
      continue;
    std::error_code error;
    for (llvm::sys::fs::directory_iterator each(value + Twine("/lib"), error),
         end;
         each != end && !error; each.increment(error))
      if (llvm::sys::path::filename(each->path()).starts_with("python3"))
        append(variable, each->path() + "/site-packages");
  }
}

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
  appendPackages(candidates);
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
    // The folders of the libraries become the program's runpath.
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

std::vector<std::string> CudaToolkit::libraryFolders() const {
  std::vector<std::string> folders;
  for (StringRef library : libraries) {
    StringRef folder = llvm::sys::path::parent_path(library);
    if (!llvm::is_contained(folders, folder))
      folders.push_back(folder.str());
  }
  return folders;
}

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
                        << places
                        << "; set one with --cuda-path=DIR, or: " << kPackages;
}
