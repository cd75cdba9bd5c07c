// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The list of lib/link is a file, as the libraries differ between builds
// (tools/cmake/FsdpcLink.cmake). All other parts are the same everywhere.
#include "runtime/support/installation.h"

#include "runtime/support/concat.h"
#include "runtime/support/programs.h"

#include <filesystem>
#include <fstream>

namespace fsdpc {

namespace fs = std::filesystem;

static const char *const scripts[] = {
    "lib/ckpt/dcp_metadata.py",    "lib/ckpt/plain_pickle.py",
    "lib/ckpt/torch_convert.py",   "lib/ckpt/torch_files.py",
    "lib/calibrate/calibrate.py",  "lib/calibrate/fit.py",
    "lib/calibrate/transformer.py"};
static const char *const headers[] = {"include/fsdpc/fsdpc.h",
                                      "include/fsdpc/fsdpc_calls.h"};

std::vector<std::string> missingParts(const std::string &root) {
  std::vector<std::string> parts = {"lib/libfsdpc_runtime.a",
                                    "lib/link/complete"};
  std::ifstream list(fs::path(root) / "lib/link/complete");
  for (std::string name; std::getline(list, name);)
    if (!name.empty())
      parts.push_back("lib/link/" + name);
  parts.insert(parts.end(), std::begin(scripts), std::end(scripts));
  std::error_code error;
  if (!fs::exists(fs::path(root) / "CMakeCache.txt", error))
    parts.insert(parts.end(), std::begin(headers), std::end(headers));
  std::erase_if(parts, [&](const std::string &part) {
    return fs::is_regular_file(fs::path(root) / part, error);
  });
  return parts;
}

Status checkParts(const std::string &folder) {
  fs::path root = fs::path(ownProgram()).parent_path().parent_path();
  for (const std::string &part : missingParts(root.string()))
    if (part.rfind(folder + "/", 0) == 0)
      return inputError(concat("'", (root / part).string(),
                               "' does not exist; install fsdpc again"));
  return {};
}

} // namespace fsdpc
