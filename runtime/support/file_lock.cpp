// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Locks files by flock, which is bound to the open file: two objects of one
// process keep apart as well.
#include "runtime/support/file_lock.h"
#include "runtime/support/input_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fsdpc::runtime {

FileLock::~FileLock() {
  if (file >= 0)
    close(file);
}

// Open for writing too, without which a network file system refuses the lock.
Status FileLock::open(const Folder &folder, const std::string &name) {
  if (file >= 0)
    close(file);
  file = openat(folder.descriptor(), name.c_str(),
                O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (file < 0 && errno == ELOOP)
    return linkError(folder.pathOf(name));
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0)
    return fileError(folder.pathOf(name), "open");
  if (!S_ISREG(status.st_mode))
    return inputError("cannot lock '" + folder.pathOf(name) + "': it is " +
                      kindOf(status.st_mode) + ", not a regular file");
  return {};
}

FileLock::Outcome FileLock::tryLock() {
  int result;
  do
    result = flock(file, LOCK_EX | LOCK_NB);
  while (result != 0 && errno == EINTR);
  if (result == 0)
    return Outcome::taken;
  return errno == EWOULDBLOCK ? Outcome::busy : Outcome::unsupported;
}

Result<bool> FileLock::isNamed(const Folder &folder,
                               const std::string &name) const {
  struct stat locked, named;
  if (fstat(file, &locked) != 0)
    return fileError(folder.pathOf(name), "look at");
  if (fstatat(folder.descriptor(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) !=
      0)
    return errno == ENOENT ? Result<bool>(false)
                           : fileError(folder.pathOf(name), "look at");
  return locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
}

} // namespace fsdpc::runtime
