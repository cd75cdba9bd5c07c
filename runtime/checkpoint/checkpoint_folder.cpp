// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes, renames and removes folders of checkpoints. Every step leaves either
// the old or the new checkpoint under its name: contents are synced before the
// name is given, and a name is taken away before contents are removed.
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/support/file.h"
#include "runtime/support/new_file.h"
#include "runtime/support/output_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fsdpc::runtime {
namespace {

// At the end of the name of a checkpoint that makes room for another one of its
// step, and of one that is being removed.
const std::string replaced = ".replaced", removed = ".removed";

// The names in a folder, without "." and "..".
Result<std::vector<std::string>> namesIn(const std::string &folder) {
  std::unique_ptr<DIR, int (*)(DIR *)> opened(opendir(folder.c_str()),
                                              closedir);
  if (!opened)
    return fileError(folder, "read");
  std::vector<std::string> names;
  errno = 0; // readdir returns null at the end and at an error
  while (const dirent *entry = readdir(opened.get()))
    if (std::strcmp(entry->d_name, ".") && std::strcmp(entry->d_name, ".."))
      names.push_back(entry->d_name);
  if (errno != 0)
    return fileError(folder, "read");
  return names;
}

// "step-0000120"; longer if the step has more digits.
std::string nameOf(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%07lld", static_cast<long long>(step));
  return name;
}

} // namespace

// The lock goes last, so that no other run takes a folder that is about to go.
// A folder that holds anything else stays.
CheckpointFolder::~CheckpointFolder() {
  if (unused) {
    unlink((path + "/.lock").c_str());
    rmdir(path.c_str());
  }
  if (lockFile >= 0)
    close(lockFile);
}

std::string CheckpointFolder::folderOf(int64_t step) const {
  return path + "/" + nameOf(step);
}
std::string CheckpointFolder::temporaryOf(int64_t step) const {
  return path + "/." + nameOf(step);
}

// Such a folder holds no checkpoints, so a run that resumes would begin at step
// 0, inside of the one that was meant.
Status CheckpointFolder::checkKind() const {
  auto holds = [&](const char *name) {
    return access((path + "/" + name).c_str(), F_OK) == 0;
  };
  if (holds("checkpoint.json"))
    return Error{"'" + path +
                 "' is a checkpoint, not a folder of them; name the folder "
                 "that holds it, and this one with --resume=STEP"};
  if (holds(".metadata"))
    return Error{"'" + path +
                 "' is a checkpoint of PyTorch; make one for this program with "
                 "'fsdpc ckpt convert --from dcp', in another folder"};
  return {};
}

// A run that was refused may remove its folder between two of these calls; then
// there is another lock to take.
Status CheckpointFolder::open() {
  FSDPC_TRY(checkKind());
  for (Result<bool> holds = false; !*holds;) {
    unused = mkdir(path.c_str(), 0777) == 0;
    if (!unused && errno != EEXIST)
      return fileError(path, "make the folder");
    FSDPC_TRY(lock());
    holds = holdsLock();
    FSDPC_TRY(holds);
  }
  // Else a crash of the machine could take the folder with all that is in it.
  if (unused)
    FSDPC_TRY(sync(runtime::folderOf(path)));
  return recover();
}

// Returns false if the locked file is not the one in the folder any more.
Result<bool> CheckpointFolder::holdsLock() const {
  struct stat locked, named;
  std::string file = path + "/.lock";
  if (fstat(lockFile, &locked) != 0)
    return fileError(file, "read");
  if (stat(file.c_str(), &named) != 0)
    return errno == ENOENT ? Result<bool>(false) : fileError(file, "read");
  return locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
}

// Under the lock nobody else writes here. A checkpoint that had made room for
// one that never took its place gets its name back.
Status CheckpointFolder::recover() const {
  auto names = namesIn(path);
  FSDPC_TRY(names);
  for (const std::string &name : *names) {
    // A file by which a rank has tried whether it can write.
    if (name.rfind(".rank-", 0) == 0 &&
        unlink((path + "/" + name).c_str()) != 0)
      return fileError(path + "/" + name, "remove");
    if (name.rfind(".step-", 0) != 0)
      continue;
    std::string left = path + "/" + name, step = name.substr(1);
    size_t end = step.size() - std::min(step.size(), replaced.size());
    struct stat status;
    if (step.substr(end) == replaced) {
      std::string whole = path + "/" + step.substr(0, end);
      if (lstat(whole.c_str(), &status) != 0 && errno == ENOENT) {
        if (rename(left.c_str(), whole.c_str()) != 0)
          return fileError(whole, "make the folder");
        continue;
      }
    }
    FSDPC_TRY(removeFolder(left));
  }
  return {};
}

// The kernel releases the lock when the process ends, however it ends, so a
// lock is never stale. The text is for the message only.
Status CheckpointFolder::lock() {
  std::string file = path + "/.lock";
  if (lockFile >= 0)
    close(lockFile);
  lockFile =
      ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (lockFile < 0)
    return fileError(file, "write");
  if (flock(lockFile, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    char owner[256];
    ssize_t length = pread(lockFile, owner, sizeof owner, 0);
    std::string text(owner, size_t(std::max<ssize_t>(length, 0)));
    return Error{"another run writes its checkpoints to '" + path + "'" +
                 (text.empty() ? "" : " (" + text + ")") +
                 "; give each run its own --checkpoint"};
  }
  char host[128] = "";
  gethostname(host, sizeof host - 1);
  std::string text = "process " + std::to_string(getpid()) + " on " + host;
  if (ftruncate(lockFile, 0) != 0 ||
      !writeAll(lockFile, text.data(), text.size()))
    return fileError(file, "write");
  return {};
}

Result<std::vector<int64_t>> CheckpointFolder::steps() const {
  auto names = namesIn(path);
  FSDPC_TRY(names);
  std::vector<int64_t> steps;
  for (const std::string &name : *names) {
    if (name.rfind("step-", 0) != 0)
      continue;
    int64_t step = std::strtoll(name.c_str() + 5, nullptr, 10);
    if (step >= 0 && nameOf(step) == name) // not "step-old"
      steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

// Removes first what a killed run has left of the same step.
Status CheckpointFolder::begin(int64_t step) {
  unused = false;
  drop(step);
  std::string folder = temporaryOf(step);
  if (mkdir(folder.c_str(), 0777) != 0)
    return fileError(folder, "make the folder");
  return {};
}

// A checkpoint of the same step makes room under a name with a dot, and is
// removed only when the new one has its place. Every file inside is synced
// already. After a crash between the two renames, recover() gives the old one
// its name back.
Status CheckpointFolder::publish(int64_t step) {
  std::string folder = folderOf(step), old = temporaryOf(step) + replaced;
  FSDPC_TRY(removeFolder(old));
  bool replaces = rename(folder.c_str(), old.c_str()) == 0;
  if (!replaces && errno != ENOENT)
    return fileError(folder, "replace");
  if (rename(temporaryOf(step).c_str(), folder.c_str()) != 0) {
    Error error = fileError(folder, "make the folder");
    if (replaces && rename(old.c_str(), folder.c_str()) != 0)
      error.message += "; the one before it is in '" + old + "'";
    return error;
  }
  FSDPC_TRY(sync(path));
  return replaces ? removeFolder(old) : Status();
}

// A folder that cannot be removed now is removed by the next run.
void CheckpointFolder::drop(int64_t step) {
  (void)bool(removeFolder(temporaryOf(step)));
}

Status CheckpointFolder::remove(int64_t step) {
  std::string folder = folderOf(step), old = temporaryOf(step) + removed;
  FSDPC_TRY(removeFolder(old));
  if (rename(folder.c_str(), old.c_str()) != 0)
    return fileError(folder, "remove");
  return removeFolder(old);
}

// Checkpoints hold only files, so a folder inside, which is somebody else's,
// stays and is an error. A link is removed and not followed.
Status CheckpointFolder::removeFolder(const std::string &folder) const {
  struct stat status;
  if (lstat(folder.c_str(), &status) != 0 && errno == ENOENT)
    return {};
  auto names = namesIn(folder);
  FSDPC_TRY(names);
  for (const std::string &name : *names)
    if (unlink((folder + "/" + name).c_str()) != 0)
      return fileError(folder + "/" + name, "remove");
  if (rmdir(folder.c_str()) != 0)
    return fileError(folder, "remove");
  return {};
}

// Not every file system can sync a folder.
Status CheckpointFolder::sync(const std::string &name) const {
  int folder = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
  if (folder < 0)
    return {};
  bool synced = fsync(folder) == 0 || errno == EINVAL;
  Error error = fileError(name, "sync");
  close(folder);
  return synced ? Status() : error;
}

} // namespace fsdpc::runtime
