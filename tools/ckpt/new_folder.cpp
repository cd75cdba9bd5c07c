// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes, renames and removes the temporary folder, by the descriptor of the
// folder that it is in. rename(2) replaces an empty folder and nothing else, so
// no file of the user is ever lost.
#include "tools/ckpt/new_folder.h"
#include "runtime/support/new_file.h"

#include <cstdlib>
#include <filesystem>
#include <sys/stat.h>
#include <utility>
#include <vector>

namespace fsdpc::ckpt {

using namespace runtime;

namespace {

std::string lastOf(const std::string &path) {
  return path.substr(path.rfind('/') + 1); // from 0 without a slash
}

} // namespace

// What cannot be removed has a name with a dot.
NewFolder::~NewFolder() {
  if (!temporary().empty())
    (void)bool(parent.removeTree(lastOf(temporary())));
}

Status NewFolder::open(const std::string &wanted) {
  path = wanted;
  while (path.size() > 1 && path.back() == '/')
    path.pop_back();
  struct stat status;
  if (lstat(path.c_str(), &status) == 0) {
    std::error_code unreadable;
    if (!S_ISDIR(status.st_mode) ||
        !std::filesystem::is_empty(path, unreadable) || unreadable)
      return inputError("'" + path +
                        "' exists already; name a folder that does not");
  }
  Result<Folder> opened = Folder::open(folderOf(path));
  FSDPC_TRY(opened);
  parent = std::move(*opened);
  size_t begin = path.size() - lastOf(path).size();
  // A file name has at most 255 bytes; 200 leave room for the dot and the
  // suffix.
  if (Status done = made.make(path.substr(0, begin) + "." +
                              path.substr(begin, 200) + ".tmp-");
      !done)
    return done.error().reworded("cannot make the folder '" + path +
                                 "': " + done.error().message);
  // A temporary folder is private; the user's mask decides as for any other.
  mode_t mask = umask(0);
  umask(mask);
  if (chmod(temporary().c_str(), 0777 & ~mask) != 0)
    return fileError(path, "make the folder");
  return {};
}

Status NewFolder::commit() {
  FSDPC_TRY(parent.rename(lastOf(temporary()), lastOf(path)));
  made.release();
  (void)bool(parent.sync()); // the folder has its name all the same
  return {};
}

} // namespace fsdpc::ckpt
