// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The folders that are watched, and the handler of signals that removes them.
// It may interrupt malloc, so it makes nothing but system calls: opendir and
// readdir allocate, getdents64 does not.
#include "runtime/support/watched_folder.h"
#include "runtime/support/signals.h"
#include "runtime/support/system_error.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace fsdpc {

namespace {

constexpr int endings[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                           SIGXCPU, SIGALRM, SIGUSR2, SIGVTALRM,
                           SIGPROF, SIGIO,   SIGPWR};
constexpr int deepest = 4; // our folders have one level below them

std::atomic<const char *> folders[8];

// As the kernel writes it; the C library has no declaration.
struct Entry {
  uint64_t inode;
  int64_t next;
  unsigned short bytes;
  unsigned char kind;
  char name[1];
};

// Removes what the buffer lists, and returns true if anything was.
bool removeListed(int folder, const char *buffer, long bytes, int depth);

// Entries may be skipped where others go, so the folder is read anew until
// nothing in it can be removed.
void removeAt(int above, const char *name, int depth) {
  int folder =
      openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  alignas(Entry) char buffer[4096];
  for (bool removed = folder >= 0 && depth < deepest; removed;) {
    removed = false;
    lseek(folder, 0, SEEK_SET);
    for (long got;
         (got = syscall(SYS_getdents64, folder, buffer, sizeof buffer)) > 0;)
      removed |= removeListed(folder, buffer, got, depth);
  }
  if (folder >= 0)
    close(folder);
  unlinkat(above, name, AT_REMOVEDIR);
}

bool removeListed(int folder, const char *buffer, long bytes, int depth) {
  bool removed = false;
  for (long at = 0; at < bytes;) {
    auto *entry = reinterpret_cast<const Entry *>(buffer + at);
    at += entry->bytes;
    const char *name = entry->name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
      continue;
    if (unlinkat(folder, name, 0) != 0)
      removeAt(folder, name, depth + 1);
    removed |= faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
  }
  return removed;
}

void endBySignal(int ending) {
  removeWatchedFolders();
  signal(ending, SIG_DFL);
  raise(ending);
}

} // namespace

void removeWatchedFolders() {
  for (std::atomic<const char *> &slot : folders)
    if (const char *folder = slot.exchange(nullptr))
      removeAt(AT_FDCWD, folder, 0);
}

// Watched before it is made: mkdtemp writes the name before it makes the
// folder.
Status WatchedFolder::make(const std::string &prefix) {
  for (int ending : endings)
    if (!isIgnored(ending))
      signal(ending, endBySignal);
  name = prefix + "XXXXXX";
  for (std::atomic<const char *> &slot : folders) {
    const char *none = nullptr;
    if (slot.compare_exchange_strong(none, name.c_str()))
      break;
  }
  if (mkdtemp(name.data()))
    return {};
  Error error = systemError(errno);
  release();
  return error;
}

void WatchedFolder::release() {
  for (std::atomic<const char *> &slot : folders) {
    const char *own = name.c_str();
    if (slot.compare_exchange_strong(own, nullptr))
      break;
  }
  name.clear();
}

} // namespace fsdpc
