// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes, renames and removes folders of checkpoints. Every step leaves either
// the old or the new checkpoint under its name: contents are synced before the
// name is given, and a name is taken away before contents are removed.
//
// All of it happens in the folder that `open` has opened, by descriptor, and
// only to names that this program gives.
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/checkpoint_manifest.h"
#include "runtime/checkpoint/checkpoint_removal.h"
#include "runtime/support/concat.h"
#include "runtime/support/file.h"
#include "runtime/support/new_file.h"
#include "runtime/support/output_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

namespace fsdpc::runtime {
namespace {

// At the end of the name of a checkpoint that makes room for another one of its
// step, and of one that is being removed.
const std::string replaced = ".replaced", removed = ".removed";
constexpr char lockName[] = ".lock";
// What the lock's file says begins with this, and the process follows.
constexpr char lockText[] = "process ";

// For readers, who do not open the folder.
Result<std::vector<std::string>> namesIn(const std::string &path) {
  Result<Folder> folder = Folder::open(path);
  FSDPC_TRY(folder);
  return folder->names();
}

// "step-0000120"; longer if the step has more digits.
std::string nameOf(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%07lld", static_cast<long long>(step));
  return name;
}

std::optional<int64_t> stepOf(const std::string &name) {
  if (name.rfind("step-", 0) != 0)
    return {};
  int64_t step = std::strtoll(name.c_str() + 5, nullptr, 10);
  if (step < 0 || nameOf(step) != name) // not "step-old"
    return {};
  return step;
}

// Takes a suffix from the end of a name. Returns false if it does not end so.
bool takeSuffix(std::string &name, const std::string &suffix) {
  size_t end = name.size() - std::min(name.size(), suffix.size());
  if (name.substr(end) != suffix)
    return false;
  name.resize(end);
  return true;
}

// The temporary name of a step's folder.
std::string hiddenName(int64_t step) { return "." + nameOf(step); }

} // namespace

std::optional<int64_t> CheckpointFolder::stepIn(std::string_view path) {
  while (path.size() > 1 && path.back() == '/')
    path.remove_suffix(1);
  return stepOf(std::string(path.substr(path.rfind('/') + 1)));
}

// The lock goes last, so that no other run takes a folder that is about to go.
// A folder that holds anything else stays.
CheckpointFolder::~CheckpointFolder() {
  if (unused && entries.isOpen())
    (void)bool(entries.removeFile(lockName));
  if (unused)
    rmdir(path.c_str());
}

std::string CheckpointFolder::folderOf(int64_t step) const {
  return path + "/" + nameOf(step);
}
std::string CheckpointFolder::temporaryOf(int64_t step) const {
  return path + "/" + hiddenName(step);
}

// Such a folder holds no checkpoints, so a run that resumes would begin at step
// 0, inside of the one that was meant.
Status CheckpointFolder::checkKind() const {
  auto holds = [&](const char *name) {
    return access((path + "/" + name).c_str(), F_OK) == 0;
  };
  if (holds("checkpoint.json"))
    return inputError(
        "'" + path +
        "' is a checkpoint, not a folder of them; name the folder "
        "that holds it, and this one with --resume=STEP");
  if (holds(".metadata"))
    return inputError(
        "'" + path +
        "' is a checkpoint of PyTorch; make one for this program with "
        "'fsdpc ckpt convert --from dcp', in another folder");
  return {};
}

// A run that was refused may remove its folder between two of these calls; then
// there is another folder to make, or another lock to take.
Status CheckpointFolder::open() {
  FSDPC_TRY(checkKind());
  for (Result<bool> holds = false; !*holds;) {
    unused = mkdir(path.c_str(), 0777) == 0;
    if (!unused && errno != EEXIST)
      return fileError(path, "make the folder");
    Result<Folder> opened = Folder::open(path);
    if (!opened && isGone())
      continue;
    FSDPC_TRY(opened);
    entries = std::move(*opened);
    holds = lock();
    FSDPC_TRY(holds);
  }
  if (unused)
    FSDPC_TRY(syncAbove());
  return recover();
}

// Another run may remove the folder that it has made. A link that leads nowhere
// is not gone.
bool CheckpointFolder::isGone() const {
  struct stat status;
  return lstat(path.c_str(), &status) != 0 && errno == ENOENT;
}

// Else a crash of the machine could take the folder with all that is in it. A
// folder that may not be read cannot be synced.
Status CheckpointFolder::syncAbove() const {
  Result<Folder> above = Folder::open(runtime::folderOf(path));
  return above ? above->sync() : Status();
}

// Under the lock nobody else writes here. A checkpoint that had made room for
// one that never took its place gets its name back.
Status CheckpointFolder::recover() const {
  auto names = entries.names();
  FSDPC_TRY(names);
  for (const std::string &name : *names) {
    auto kind = entries.kind(name);
    FSDPC_TRY(kind);
    // A file by which a rank has tried whether it can write.
    if (*kind == Entry::file && rankOfFile(temporaryTarget(name)))
      FSDPC_TRY(entries.removeFile(name));
    std::string title = name.substr(1);
    bool madeRoom = takeSuffix(title, replaced);
    if (!madeRoom)
      takeSuffix(title, removed);
    if (name[0] != '.' || !stepOf(title))
      continue;
    auto whole = entries.kind(title);
    FSDPC_TRY(whole);
    FSDPC_TRY(madeRoom && *whole == Entry::none
                  ? entries.rename(name, title)
                  : removeCheckpoint(entries, name, title));
  }
  return {};
}

// Takes the lock of the open folder, or returns false if the folder or the lock
// is gone. The text in its file is for the message only. A file that says
// anything else is the user's and stays as it is.
Result<bool> CheckpointFolder::lock() {
  Status opened = held.open(entries, lockName);
  if (!opened)
    return isGone() ? Result<bool>(false) : opened.error();
  char content[256];
  ssize_t length = pread(held.descriptor(), content, sizeof content, 0);
  std::string owner(content, size_t(std::max<ssize_t>(length, 0)));
  std::string file = entries.pathOf(lockName);
  if (!owner.empty() && owner.rfind(lockText, 0) != 0)
    return inputError("'" + file +
                      "' is not the lock of a run; move it, or name "
                      "another folder");
  if (held.tryLock() == FileLock::Outcome::busy) {
    unused = false; // the other run's, though this one has made it
    return runError("another run writes its checkpoints to '" + path + "'" +
                    (owner.empty() ? "" : " (" + owner + ")") +
                    "; give each run its own --checkpoint");
  }
  auto named = held.isNamed(entries, lockName);
  if (!named || !*named)
    return named;
  char host[128] = "";
  gethostname(host, sizeof host - 1);
  std::string text = concat(lockText, getpid(), " on ", host);
  if (ftruncate(held.descriptor(), 0) != 0 ||
      !writeAll(held.descriptor(), text.data(), text.size()))
    return fileError(file, "write");
  return true;
}

Result<std::vector<int64_t>> CheckpointFolder::steps() const {
  auto names = entries.isOpen() ? entries.names() : namesIn(path);
  FSDPC_TRY(names);
  std::vector<int64_t> steps;
  for (const std::string &name : *names)
    if (std::optional<int64_t> step = stepOf(name))
      steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

// Removes first what a killed run has left of the same step.
Status CheckpointFolder::begin(int64_t step) {
  unused = false;
  drop(step);
  return entries.makeFolder(hiddenName(step));
}

// A checkpoint of the same step makes room under a name with a dot, and is
// removed only when the new one has its place. Every file inside is synced
// already. After a crash between the two renames, recover() gives the old one
// its name back.
Status CheckpointFolder::publish(int64_t step) {
  std::string title = nameOf(step), old = hiddenName(step) + replaced;
  FSDPC_TRY(removeCheckpoint(entries, old, title));
  auto before = entries.kind(title);
  FSDPC_TRY(before);
  bool replaces = *before != Entry::none;
  if (replaces)
    FSDPC_TRY(entries.rename(title, old));
  if (Status named = entries.rename(hiddenName(step), title); !named) {
    Error error = named.error();
    if (replaces && !entries.rename(old, title))
      error.message +=
          "; the one before it is in '" + entries.pathOf(old) + "'";
    return error;
  }
  FSDPC_TRY(entries.sync());
  return replaces ? removeCheckpoint(entries, old, title) : Status();
}

// A folder that cannot be removed now is removed by the next run.
void CheckpointFolder::drop(int64_t step) {
  (void)bool(removeCheckpoint(entries, hiddenName(step), nameOf(step)));
}

Status CheckpointFolder::remove(int64_t step) {
  std::string title = nameOf(step), old = hiddenName(step) + removed;
  FSDPC_TRY(removeCheckpoint(entries, old, title));
  FSDPC_TRY(entries.rename(title, old));
  return removeCheckpoint(entries, old, title);
}

} // namespace fsdpc::runtime
