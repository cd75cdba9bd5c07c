// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes files for what is offloaded.
#include "runtime/support/reserved_file.h"
#include "runtime/support/output_file.h"
#include "runtime/support/spelling.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

namespace fsdpc::runtime {

static Error noRoom(const std::string &folder, uint64_t bytes) {
  return runError("a file of what is offloaded takes " +
                  bytesText(int64_t(bytes)) + ", but '" + folder +
                  "' has room for " +
                  bytesText(std::max<int64_t>(0, freeBytes(folder))) +
                  ", also for other ranks there; name another folder by "
                  "--offload-dir");
}

// Reserving is the reliable check, since other ranks may take the same room.
// Asking first spares the disk an attempt that cannot succeed.
Result<ReservedFile> reserveFile(const std::string &path, uint64_t bytes) {
  std::string folder = path.substr(0, path.rfind('/'));
  if (int64_t room = freeBytes(folder); room >= 0 && uint64_t(room) < bytes)
    return noRoom(folder, bytes);
  Result<int> made = makeUnnamed(path);
  FSDPC_TRY(made);
  ReservedFile reserved{File::adopt(path, *made, bytes), *made};
  int code;
  do
    code = bytes ? posix_fallocate(*made, 0, off_t(bytes)) : 0;
  while (code == EINTR);
  if (code == ENOSPC)
    return noRoom(folder, bytes);
  errno = code;
  if (code)
    return fileError(path, "reserve room in");
  return reserved;
}

bool liesInMemory(const std::string &folder) {
  struct statfs system;
  return statfs(folder.c_str(), &system) == 0 && system.f_type == TMPFS_MAGIC;
}

// Counts the room that an unprivileged process may use, without the blocks that
// are reserved for root.
int64_t freeBytes(const std::string &folder) {
  struct statvfs disk;
  if (statvfs(folder.c_str(), &disk) != 0)
    return -1;
  return int64_t(disk.f_bavail) * int64_t(disk.f_frsize);
}

} // namespace fsdpc::runtime
