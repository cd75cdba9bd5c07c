// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A folder that appears whole or not at all: filled under a name with a dot
// beside its own, and renamed at the end.
#pragma once

#include "runtime/support/folder.h"
#include "runtime/support/status.h"
#include "runtime/support/watched_folder.h"

#include <string>

namespace fsdpc::ckpt {

/// One use: open, write files below temporary(), commit.
class NewFolder {
public:
  NewFolder() = default;
  NewFolder(const NewFolder &) = delete;
  /// Removes the files that were written, unless they were committed, as does a
  /// signal that ends the process. Links in the folder are removed and not
  /// followed.
  ~NewFolder();
  /// Makes the temporary folder. Fails if `path` exists, unless it is an empty
  /// folder.
  Status open(const std::string &path);
  /// The path under which the caller writes the files, without a slash at the
  /// end.
  const std::string &temporary() const { return made.path(); }
  /// Renames the folder to its own name and syncs its parent. Fails if another
  /// program has put files there meanwhile. Call it once.
  Status commit();

private:
  std::string path;
  WatchedFolder made;
  runtime::Folder parent; ///< the one that both are in
};

} // namespace fsdpc::ckpt
