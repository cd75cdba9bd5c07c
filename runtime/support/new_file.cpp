// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Creates, writes, syncs and renames, in this order. Every call that can report
// a lost write is checked before the rename: fsync, and close, which is where
// network file systems report a quota.
#include "runtime/support/new_file.h"
#include "runtime/support/file.h"
#include "runtime/support/input_file.h"
#include "runtime/support/output_file.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fsdpc::runtime {

// Keeps the slash, so that the folder of "/x" is "/".
std::string folderOf(const std::string &path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

NewFile::~NewFile() { discard(); }

void NewFile::discard() {
  if (descriptor >= 0)
    close(descriptor);
  descriptor = -1;
  if (!temporary.empty())
    unlink(temporary.c_str());
  temporary.clear();
}

Status NewFile::open(const std::string &target) {
  return failure = create(target, true);
}

Status NewFile::openUnnamed(const std::string &target) {
  return failure = create(target, false);
}

// stat follows a link, so a link to a device is refused; the rename in `commit`
// replaces a link to a regular file by the file itself, but not one into /proc.
Status NewFile::create(const std::string &target, bool named) {
  path = target;
  struct stat status;
  bool exists = stat(path.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode))
    return inputError("cannot save '" + path + "': it is " +
                      kindOf(status.st_mode) + ", not a regular file");
  if (!mayBeReplaced(path))
    return inputError("cannot save '" + path +
                      "': it is a link into /proc, not a regular file");
  // The rename would replace a file that is write-protected.
  if (exists && access(path.c_str(), W_OK) != 0)
    return fileError(path, "save");
  // In the same folder, because a rename cannot cross file systems. 0666 is cut
  // by the process's umask, as for any new file.
  if (!named)
    descriptor = createUnnamed(folderOf(path), 0666);
  if (descriptor < 0)
    descriptor = createBeside(path, 0666, temporary);
  if (descriptor < 0)
    return fileError(path, "save");
  // A private file stays private.
  if (exists && fchmod(descriptor, status.st_mode & 0777) != 0)
    return fileError(path, "save");
  return {};
}

// Some file systems refuse the flag here, others only the write.
void NewFile::setDirect(bool wanted) {
  int flags = descriptor < 0 ? -1 : fcntl(descriptor, F_GETFL);
  if (flags < 0)
    return;
  flags = wanted ? flags | O_DIRECT : flags & ~O_DIRECT;
  direct = fcntl(descriptor, F_SETFL, flags) == 0 && wanted;
}

// Pieces may come in any order. A gap reads as zeroes. A direct write that was
// cut short, as on a full disk, cannot go on where it ended, so it is repeated
// through the cache.
Status NewFile::write(uint64_t offset, const void *data, uint64_t bytes) {
  if (!failure)
    return failure;
  bool wrote = writeAt(descriptor, offset, data, bytes);
  if (!wrote && direct && errno == EINVAL) {
    setDirect(false);
    wrote = writeAt(descriptor, offset, data, bytes);
  }
  if (!wrote)
    return failure = fileError(path, "save");
  return {};
}

Status NewFile::sync() {
  if (!failure)
    return failure;
  if (fsync(descriptor) != 0)
    failure = fileError(path, "save");
  return failure;
}

Status NewFile::commit() {
  // Before the rename, or a power failure could leave an empty file under the
  // final name.
  FSDPC_TRY(sync());
  // A link cannot replace a file as a rename can, so an unnamed file gets a
  // temporary name first.
  if (temporary.empty() && !nameBeside(descriptor, path, temporary))
    return fileError(path, "save");
  // close releases the descriptor even if it fails, so it is never called
  // twice.
  bool closed = close(descriptor) == 0;
  descriptor = -1;
  if (!closed)
    return fileError(path, "save");
  bool renamed = rename(temporary.c_str(), path.c_str()) == 0;
  std::string complete;
  complete.swap(temporary); // it is not removed any more
  if (!renamed) {
    Error error = fileError(path, "save");
    error.message += "; what was to be saved is in '" + complete + "'";
    return error;
  }
  // The rename is durable only after its folder is synced, which not every file
  // system can do.
  int folder = ::open(folderOf(path).c_str(), O_RDONLY | O_CLOEXEC);
  if (folder >= 0) {
    fsync(folder);
    close(folder);
  }
  return {};
}

// Trying is the only reliable check: quotas, read-only mounts and access lists
// do not show in the permissions.
Status checkWritable(const std::string &path) {
  NewFile file; // the destructor removes the file
  return file.open(path);
}

} // namespace fsdpc::runtime
