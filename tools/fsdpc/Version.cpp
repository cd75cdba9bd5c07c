// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The commit is read when fsdpc is built (tools/CMakeLists.txt).
#include "tools/fsdpc/Version.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <dnnl.h>

using namespace fsdpc;

static const char commit[] =
#include "tools/fsdpc/commit.inc"
    ;

// Returns the targets that a program can be linked for.
static std::string installedTargets() {
  llvm::SmallString<128> library(llvm::sys::path::parent_path(
      llvm::sys::fs::getMainExecutable(nullptr, nullptr)));
  llvm::sys::path::append(library, "..", "lib");
  std::vector<std::string> found;
  for (auto [target, archive] :
       {std::pair("host", "libfsdpc_runtime.a"),
        std::pair("cuda", "libfsdpc_runtime_cuda.a"),
        std::pair("cuda-emulation", "libfsdpc_runtime_cuda_emulation.a")})
    if (llvm::sys::fs::exists(library + "/" + archive))
      found.push_back(target);
  return found.empty() ? "none; install fsdpc again" : llvm::join(found, ", ");
}

std::string fsdpc::driver::versionText() {
  const dnnl_version_t *dnnl = dnnl_version();
  return "fsdpc " FSDPC_VERSION "\ncommit " + std::string(commit) +
         "\nLLVM " LLVM_VERSION_STRING "\noneDNN " +
         std::to_string(dnnl->major) + "." + std::to_string(dnnl->minor) + "." +
         std::to_string(dnnl->patch) + "\ntargets " + installedTargets();
}
