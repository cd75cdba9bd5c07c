// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Only the folder of a path is resolved: a file that is a link, as in the cache
// of a model hub, keeps the name by which the model knows it.
#include "compiler/codegen/SourcePaths.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/Path.h"

#include <filesystem>
#include <map>

using namespace mlir;
using namespace fsdpc;

namespace fs = std::filesystem;

// Returns the path without links and ".." in its folder, or an empty one.
static fs::path resolved(StringRef path) {
  std::error_code error;
  fs::path whole = fs::absolute(path.str(), error);
  fs::path folder = fs::canonical(whole.parent_path(), error);
  return error ? fs::path() : folder / whole.filename();
}

LogicalResult codegen::setSourcePaths(Location loc, Manifest &manifest,
                                      StringRef program, bool absolute) {
  fs::path folder = resolved(program).parent_path();
  // A model has one or two files, and thousands of parameters.
  std::map<std::string, std::string> known;
  auto set = [&](Source &source) -> LogicalResult {
    if (source.kind != "file")
      return success();
    auto [path, isNew] = known.try_emplace(source.file);
    if (isNew) {
      fs::path whole = resolved(source.file);
      if (folder.empty() || whole.empty())
        return emitError(loc)
               << "cannot find the path from '" << program << "' to '"
               << source.file << "': a folder cannot be read";
      path->second =
          (absolute ? whole : whole.lexically_relative(folder)).string();
    }
    source.file = path->second;
    return success();
  };
  for (Layout &layout : manifest.layouts)
    for (Member &member : layout.members)
      if (failed(set(member.source)))
        return failure();
  for (Buffer &buffer : manifest.buffers)
    if (failed(set(buffer.source)))
      return failure();
  return success();
}

OwningOpRef<ModuleOp> codegen::withoutFolders(ModuleOp module) {
  OwningOpRef<ModuleOp> copy = module.clone();
  for (Operation &op : copy->getOps())
    if (auto source = op.getAttrOfType<fsdp::SourceAttr>("source"))
      op.setAttr("source", fsdp::SourceAttr::get(
                               op.getContext(),
                               llvm::sys::path::filename(source.getFile()),
                               source.getOffset(), source.getLength(),
                               source.getDtype(), source.getHash()));
  return copy;
}
