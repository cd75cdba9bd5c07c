// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The commit is read when fsdpc is built (tools/CMakeLists.txt).
#include "tools/fsdpc/Version.h"

#include "compiler/codegen/Link.h"
#include "runtime/support/concat.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FileSystem.h"

#include <dnnl.h>

using namespace fsdpc;

static const char commit[] =
#include "tools/fsdpc/commit.inc"
    ;

// Returns the targets that a program can be linked for.
static std::string installedTargets() {
  using fsdp::Target;
  std::vector<llvm::StringRef> found;
  for (Target target : {Target::Host, Target::Cuda, Target::CudaEmulation})
    if (llvm::sys::fs::exists(codegen::runtimeArchive(target)))
      found.push_back(fsdp::nameOf(target));
  return found.empty() ? "none; install fsdpc again" : llvm::join(found, ", ");
}

std::string fsdpc::driver::versionText() {
  const dnnl_version_t *dnnl = dnnl_version();
  return concat("fsdpc " FSDPC_VERSION "\ncommit ", std::string(commit),
                "\nLLVM " LLVM_VERSION_STRING "\noneDNN ", dnnl->major, ".",
                dnnl->minor, ".", dnnl->patch, "\ntargets ",
                installedTargets());
}
