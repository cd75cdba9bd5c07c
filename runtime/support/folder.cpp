// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Opens folders and changes their entries, with the system calls that take a
// folder's descriptor (openat, unlinkat). A path would be looked up anew by
// each call, and one of its parts may have become a link in between.
#include "runtime/support/folder.h"
#include "runtime/support/input_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace fsdpc::runtime {

Error linkError(const std::string &path) {
  return inputError("'" + path +
                    "' is a link, which is not followed here; remove it");
}

Folder::Folder(Folder &&other) noexcept { *this = std::move(other); }

// Swaps, so that `other` closes what this one held.
Folder &Folder::operator=(Folder &&other) noexcept {
  std::swap(path, other.path);
  std::swap(file, other.file);
  return *this;
}

Folder::~Folder() {
  if (file >= 0)
    close(file);
}

Result<Folder> Folder::open(const std::string &path) {
  Folder folder;
  folder.path = path;
  folder.file = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder.file < 0)
    return fileError(path, "open the folder");
  return folder;
}

// O_NONBLOCK, since opening a FIFO would wait for a writer.
int Folder::openEntry(const std::string &name, int flags) const {
  return openat(file, name.c_str(),
                O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY |
                    flags);
}

Result<Folder> Folder::openFolder(const std::string &name) const {
  Folder folder;
  folder.path = pathOf(name);
  folder.file = openEntry(name, O_DIRECTORY);
  if (folder.file < 0)
    return fileError(folder.path, "open the folder");
  return folder;
}

Result<File> Folder::openFile(const std::string &name) const {
  int descriptor = openEntry(name, 0);
  if (descriptor < 0 && errno == ELOOP)
    return linkError(pathOf(name));
  struct stat status;
  if (descriptor < 0 || fstat(descriptor, &status) != 0) {
    Error error = fileError(pathOf(name), "open");
    if (descriptor >= 0)
      close(descriptor);
    return error;
  }
  File opened = File::adopt(pathOf(name), descriptor, uint64_t(status.st_size));
  if (!S_ISREG(status.st_mode))
    return inputError("cannot open '" + pathOf(name) + "': it is " +
                      kindOf(status.st_mode) + ", not a regular file");
  return opened;
}

// Reads by a descriptor of its own, which has its own position in the folder.
Result<std::vector<std::string>> Folder::names() const {
  int own = openEntry(".", O_DIRECTORY);
  std::unique_ptr<DIR, int (*)(DIR *)> list(own < 0 ? nullptr : fdopendir(own),
                                            closedir);
  if (!list) {
    Error error = fileError(path, "read");
    if (own >= 0)
      close(own);
    return error;
  }
  std::vector<std::string> names;
  errno = 0; // readdir returns null at the end and at an error
  while (const dirent *entry = readdir(list.get()))
    if (std::strcmp(entry->d_name, ".") && std::strcmp(entry->d_name, ".."))
      names.push_back(entry->d_name);
  if (errno != 0)
    return fileError(path, "read");
  return names;
}

Result<Entry> Folder::kind(const std::string &name) const {
  struct stat status;
  if (fstatat(file, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT ? Result<Entry>(Entry::none)
                           : fileError(pathOf(name), "look at");
  return S_ISREG(status.st_mode)   ? Entry::file
         : S_ISDIR(status.st_mode) ? Entry::folder
         : S_ISLNK(status.st_mode) ? Entry::link
                                   : Entry::other;
}

Status Folder::makeFolder(const std::string &name) const {
  if (mkdirat(file, name.c_str(), 0777) != 0)
    return fileError(pathOf(name), "make the folder");
  return {};
}

Status Folder::rename(const std::string &from, const std::string &to) const {
  return move(from, *this, to);
}

Status Folder::move(const std::string &from, const Folder &other,
                    const std::string &to) const {
  if (renameat(file, from.c_str(), other.file, to.c_str()) == 0)
    return {};
  Error error = fileError(pathOf(from), "rename");
  error.message += "; it was to be '" + other.pathOf(to) + "'";
  return error;
}

Status Folder::removeFile(const std::string &name) const {
  if (unlinkat(file, name.c_str(), 0) != 0)
    return fileError(pathOf(name), "remove");
  return {};
}

Status Folder::removeEmptyFolder(const std::string &name) const {
  if (unlinkat(file, name.c_str(), AT_REMOVEDIR) != 0)
    return fileError(pathOf(name), "remove");
  return {};
}

Status Folder::removeTree(const std::string &name) const {
  Result<Entry> what = kind(name);
  FSDPC_TRY(what);
  if (*what != Entry::folder)
    return removeFile(name);
  Result<Folder> folder = openFolder(name);
  FSDPC_TRY(folder);
  Result<std::vector<std::string>> inside = folder->names();
  FSDPC_TRY(inside);
  for (const std::string &entry : *inside)
    FSDPC_TRY(folder->removeTree(entry));
  return removeEmptyFolder(name);
}

Status Folder::sync() const {
  if (fsync(file) != 0 && errno != EINVAL)
    return fileError(path, "sync");
  return {};
}

} // namespace fsdpc::runtime
