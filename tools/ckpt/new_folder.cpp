// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes, renames and removes the temporary folder. rename(2) replaces an empty
// folder and nothing else, so no file of the user is ever lost.
#include "tools/ckpt/new_folder.h"
#include "runtime/support/file.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace fsdpc::ckpt {

using runtime::fileError;

NewFolder::~NewFolder() {
  std::error_code ignored; // what cannot be removed has a name with a dot
  if (!name.empty())
    std::filesystem::remove_all(name, ignored);
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
      return Error{"'" + path +
                   "' exists already; name a folder that does not"};
  }
  size_t begin = path.rfind('/') + 1; // 0 without a slash
  std::string pattern =
      // A file name has at most 255 bytes; 200 leave room for the dot and the
      // suffix.
      path.substr(0, begin) + "." + path.substr(begin, 200) + ".tmp-XXXXXX";
  std::vector<char> text(pattern.begin(), pattern.end());
  text.push_back(0);
  if (!mkdtemp(text.data()))
    return fileError(path, "make the folder");
  name = text.data();
  // mkdtemp makes a private folder; the user's mask decides as for any other.
  mode_t mask = umask(0);
  umask(mask);
  if (chmod(name.c_str(), 0777 & ~mask) != 0)
    return fileError(path, "make the folder");
  return {};
}

Status NewFolder::commit() {
  if (rename(name.c_str(), path.c_str()) != 0)
    return fileError(path, "make the folder");
  name.clear();
  size_t slash = path.rfind('/');
  std::string parent = slash == std::string::npos ? "."
                       : slash == 0               ? "/"
                                                  : path.substr(0, slash);
  // Not every file system can sync a folder.
  int descriptor = ::open(parent.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor >= 0) {
    fsync(descriptor);
    close(descriptor);
  }
  return {};
}

} // namespace fsdpc::ckpt
