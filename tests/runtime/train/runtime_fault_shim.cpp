// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes one system call of a program fail: a library for LD_PRELOAD.
//
//   FAULT_CALL=write   the call, by the name in `names` below
//   FAULT_AT=3         which one of its calls, counted from 1; later ones work
//   FAULT_FROM=3       or: from which one on all fail, as on a full disk
//   FAULT_ERRNO=28     what it fails with
//   FAULT_KILL=1       or: the process is killed in its place
//   FAULT_KILL=all     or: all processes of its group are
//   FAULT_SLEEP=500    or: it works, after so many milliseconds
//   FAULT_SHORT=1      or: a read or write moves half of its bytes
//   FAULT_PATH=t.json  count only calls on paths that contain this
//   FAULT_CPUS=2000    the machine has so many cores, of which the last two may
//                      be used
//   FAULT_ROOM=5000    every disk has room for so many bytes
//   FAULT_COUNTS=FILE  write how often each call was made, when the program
//   ends
//
// Calls are made by syscall(2), so that nothing of the C library is needed
// before it is ready. Calls that the C library makes by itself are not seen.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

enum Kind {
  openCall,
  readCall,
  writeCall,
  fsyncCall,
  renameCall,
  closeCall,
  ftruncateCall,
  mmapCall,
  statCall,
  unlinkCall,
  flockCall,
  getrandomCall,
  fchmodCall,
  accessCall,
  mkdirCall,
  rmdirCall,
  kinds
};
constexpr const char *names[kinds] = {
    "open",      "read",   "write", "fsync",  "rename", "close",
    "ftruncate", "mmap",   "stat",  "unlink", "flock",  "getrandom",
    "fchmod",    "access", "mkdir", "rmdir"};

std::atomic<long> counts[kinds];
thread_local bool halves = false; // the call that `fails` let pass is short

long setting(const char *name) {
  const char *text = getenv(name);
  return text ? atol(text) : 0;
}

// Counts a call and returns true if it is to fail, with errno set. Output to
// the terminal is not counted.
bool fails(Kind kind, const char *path, int descriptor) {
  char link[64], target[512];
  halves = false;
  if (descriptor >= 0 && descriptor <= 2)
    return false;
  if (const char *wanted = getenv("FAULT_PATH")) {
    if (descriptor >= 0) {
      std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
      long length = syscall(SYS_readlink, link, target, sizeof target - 1);
      target[length > 0 ? length : 0] = 0;
      path = target;
    }
    if (!path || !std::strstr(path, wanted))
      return false;
  }
  long count = ++counts[kind];
  const char *call = getenv("FAULT_CALL");
  if (!call || std::strcmp(call, names[kind]) != 0)
    return false;
  long from = setting("FAULT_FROM");
  if (count != setting("FAULT_AT") && (from == 0 || count < from))
    return false;
  if (const char *killed = getenv("FAULT_KILL")) {
    bool all = std::strcmp(killed, "all") == 0;
    syscall(SYS_kill, all ? 0 : syscall(SYS_getpid), SIGKILL);
  }
  if (long milliseconds = setting("FAULT_SLEEP")) {
    usleep(useconds_t(milliseconds * 1000));
    return false;
  }
  halves = setting("FAULT_SHORT") != 0;
  if (halves)
    return false;
  errno = int(setting("FAULT_ERRNO"));
  return true;
}

// Returns how many of its bytes a read or write may move.
size_t moved(size_t bytes) { return halves ? (bytes + 1) / 2 : bytes; }

[[gnu::destructor]] void writeCounts() {
  const char *path = getenv("FAULT_COUNTS");
  if (!path)
    return;
  int file = int(syscall(SYS_openat, AT_FDCWD, path,
                         O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  for (int kind = 0; kind < kinds; ++kind) {
    char line[64];
    int length = std::snprintf(line, sizeof line, "%s %ld\n", names[kind],
                               counts[kind].load());
    if (syscall(SYS_write, file, line, length) < 0)
      return;
  }
}

// The same for a name in an open folder. FAULT_PATH is compared with its path.
bool failsIn(int folder, Kind kind, const char *name) {
  char link[64], path[1024];
  if (folder == AT_FDCWD || name[0] == '/')
    return fails(kind, name, -1);
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
  long length = syscall(SYS_readlink, link, path, sizeof path / 2);
  std::snprintf(path + (length > 0 ? length : 0), sizeof path / 2, "/%s", name);
  return fails(kind, path, -1);
}

int openFile(int folder, const char *path, int flags, va_list rest) {
  int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
  if (failsIn(folder, openCall, path))
    return -1;
  return int(syscall(SYS_openat, folder, path, flags, mode));
}

} // namespace

extern "C" {

int open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  int file = openFile(AT_FDCWD, path, flags, rest);
  va_end(rest);
  return file;
}
int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  int file = openFile(AT_FDCWD, path, flags, rest);
  va_end(rest);
  return file;
}
int openat(int folder, const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  int file = openFile(folder, path, flags, rest);
  va_end(rest);
  return file;
}
ssize_t read(int file, void *to, size_t bytes) {
  return fails(readCall, nullptr, file)
             ? -1
             : syscall(SYS_read, file, to, moved(bytes));
}
ssize_t pread(int file, void *to, size_t bytes, off_t offset) {
  return fails(readCall, nullptr, file)
             ? -1
             : syscall(SYS_pread64, file, to, moved(bytes), offset);
}
ssize_t write(int file, const void *from, size_t bytes) {
  return fails(writeCall, nullptr, file)
             ? -1
             : syscall(SYS_write, file, from, moved(bytes));
}
ssize_t pwrite(int file, const void *from, size_t bytes, off_t offset) {
  return fails(writeCall, nullptr, file)
             ? -1
             : syscall(SYS_pwrite64, file, from, moved(bytes), offset);
}
int fsync(int file) {
  return fails(fsyncCall, nullptr, file) ? -1 : int(syscall(SYS_fsync, file));
}
int rename(const char *from, const char *to) noexcept {
  return fails(renameCall, to, -1) ? -1 : int(syscall(SYS_rename, from, to));
}
int renameat(int fromFolder, const char *from, int toFolder,
             const char *to) noexcept {
  return failsIn(toFolder, renameCall, to)
             ? -1
             : int(syscall(SYS_renameat, fromFolder, from, toFolder, to));
}
// Closes the file also when it fails, as the kernel does.
int close(int file) {
  bool failing = fails(closeCall, nullptr, file);
  int code = errno;
  int result = int(syscall(SYS_close, file));
  if (!failing)
    return result;
  errno = code;
  return -1;
}
int ftruncate(int file, off_t bytes) noexcept {
  return fails(ftruncateCall, nullptr, file)
             ? -1
             : int(syscall(SYS_ftruncate, file, bytes));
}
void *mmap(void *at, size_t bytes, int protection, int flags, int file,
           off_t offset) noexcept {
  if (fails(mmapCall, nullptr, file >= 0 ? file : -1))
    return reinterpret_cast<void *>(intptr_t(-1));
  return reinterpret_cast<void *>(
      syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}
int stat(const char *path, struct stat *status) noexcept {
  return fails(statCall, path, -1) ? -1 : int(syscall(SYS_stat, path, status));
}
int fstat(int file, struct stat *status) noexcept {
  return fails(statCall, nullptr, file) ? -1
                                        : int(syscall(SYS_fstat, file, status));
}
int fstatat(int folder, const char *path, struct stat *status,
            int flags) noexcept {
  return failsIn(folder, statCall, path)
             ? -1
             : int(syscall(SYS_newfstatat, folder, path, status, flags));
}
int unlinkat(int folder, const char *path, int flags) noexcept {
  Kind kind = flags & AT_REMOVEDIR ? rmdirCall : unlinkCall;
  return failsIn(folder, kind, path)
             ? -1
             : int(syscall(SYS_unlinkat, folder, path, flags));
}
int unlink(const char *path) noexcept {
  return fails(unlinkCall, path, -1) ? -1 : int(syscall(SYS_unlink, path));
}
int flock(int file, int operation) noexcept {
  return fails(flockCall, nullptr, file)
             ? -1
             : int(syscall(SYS_flock, file, operation));
}
ssize_t getrandom(void *to, size_t bytes, unsigned flags) {
  return fails(getrandomCall, nullptr, -1)
             ? -1
             : syscall(SYS_getrandom, to, bytes, flags);
}
// The kernel refuses a mask that has no room for all of its cores.
int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *mask) noexcept {
  size_t cores = size_t(setting("FAULT_CPUS"));
  if (cores == 0) {
    std::memset(mask, 0, bytes); // the kernel writes its own size only
    return syscall(SYS_sched_getaffinity, process, bytes, mask) < 0 ? -1 : 0;
  }
  if (bytes * 8 < cores) {
    errno = EINVAL;
    return -1;
  }
  CPU_ZERO_S(bytes, mask);
  CPU_SET_S(cores - 2, bytes, mask);
  CPU_SET_S(cores - 1, bytes, mask);
  return 0;
}
int fchmod(int file, mode_t mode) noexcept {
  return fails(fchmodCall, nullptr, file)
             ? -1
             : int(syscall(SYS_fchmod, file, mode));
}
int mkdir(const char *path, mode_t mode) noexcept {
  return fails(mkdirCall, path, -1) ? -1 : int(syscall(SYS_mkdir, path, mode));
}
int mkdirat(int folder, const char *path, mode_t mode) noexcept {
  return failsIn(folder, mkdirCall, path)
             ? -1
             : int(syscall(SYS_mkdirat, folder, path, mode));
}
int rmdir(const char *path) noexcept {
  return fails(rmdirCall, path, -1) ? -1 : int(syscall(SYS_rmdir, path));
}
int statvfs(const char *path, struct statvfs *disk) noexcept {
  struct stat status;
  if (syscall(SYS_stat, path, &status) != 0)
    return -1;
  std::memset(disk, 0, sizeof *disk);
  disk->f_frsize = 1;
  disk->f_bavail = getenv("FAULT_ROOM") ? fsblkcnt_t(setting("FAULT_ROOM"))
                                        : fsblkcnt_t(1) << 50;
  return 0;
}
int access(const char *path, int mode) noexcept {
  return fails(accessCall, path, -1) ? -1
                                     : int(syscall(SYS_access, path, mode));
}

} // extern "C"
