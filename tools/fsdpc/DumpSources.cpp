// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tools/fsdpc/DumpSources.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"

#include <filesystem>
#include <set>
#include <system_error>

using namespace mlir;
using namespace fsdpc;

namespace {

namespace fs = std::filesystem;

// Without links and "..". What does not exist is left as far as it goes: that
// the file is missing is said when it is read.
fs::path resolved(const fs::path &path) {
  std::error_code ignored;
  fs::path whole = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  return whole.empty() ? path : whole;
}

bool liesIn(const fs::path &file, const fs::path &folder) {
  auto [end, rest] =
      std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  (void)rest;
  return end == folder.end();
}

} // namespace

LogicalResult
fsdpc::driver::checkSources(ModuleOp module, StringRef dump,
                            const std::vector<std::string> &folders) {
  fs::path own = resolved(dump.str()).parent_path();
  std::vector<fs::path> allowed = {own};
  for (const std::string &folder : folders)
    allowed.push_back(resolved(folder));
  // A model has one or two files, and thousands of parameters.
  std::set<std::string> passed;
  auto result = module.walk([&](Operation *op) {
    auto source = op->getAttrOfType<fsdp::SourceAttr>("source");
    if (!source || passed.count(source.getFile().str()))
      return WalkResult::advance();
    fs::path file = resolved(source.getFile().str());
    if (llvm::none_of(allowed, [&](const fs::path &folder) {
          return liesIn(file, folder);
        })) {
      op->emitError("the dump takes weights from '")
          << source.getFile() << "', which is not in its folder '"
          << own.string() << "'; if you trust the dump, add '--weights="
          << file.parent_path().string() << "'";
      return WalkResult::interrupt();
    }
    passed.insert(source.getFile().str());
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}
