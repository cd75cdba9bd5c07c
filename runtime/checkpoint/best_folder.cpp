// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Only rank 0 uses the folder. A name of its own for each step keeps a crash
// from leaving one step's parameters beside another step's loss. best.json says
// of which step the best is, and the file's name follows from that: nothing
// else in it leads to a file that is removed.
#include "runtime/checkpoint/best_folder.h"
#include "runtime/support/concat.h"
#include "runtime/support/diagnostics.h"
#include "runtime/support/json_fields.h"
#include "runtime/support/json_text.h"
#include "runtime/support/system_error.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace fsdpc::runtime {
namespace {

constexpr char indexName[] = "best.json";
// Not that of a folder of checkpoints, which may be the same one.
constexpr char lockName[] = ".best.lock";
// Far more than any best.json has.
constexpr uint64_t mostIndexBytes = 1 << 16;

std::string nameOf(int64_t step) {
  char name[64];
  std::snprintf(name, sizeof name, "step-%07lld.safetensors",
                static_cast<long long>(step));
  return name;
}

} // namespace

BestFolder::~BestFolder() {
  if (made)
    rmdir(path.c_str());
}

// A folder without best.json may hold other files, which stay.
Status BestFolder::open(const std::string &folder, bool resumes) {
  path = folder;
  made = mkdir(path.c_str(), 0777) == 0;
  if (!made && errno != EEXIST)
    return fileError(path, "create");
  Result<Folder> opened = Folder::open(path);
  FSDPC_TRY(opened);
  entries = std::move(*opened);
  Result<Entry> index = entries.kind(indexName);
  FSDPC_TRY(index);
  if (*index != Entry::none && !resumes)
    return inputError(
        "'" + path +
        "' holds the best parameters of another run; continue that "
        "run with --resume, or name another folder");
  Result<std::optional<Best>> before = read();
  FSDPC_TRY(before);
  if (*before)
    lowest = (*before)->loss;
  return checkWritable(entries.pathOf(indexName));
}

// Returns what best.json says, or nothing if there is none.
Result<std::optional<BestFolder::Best>> BestFolder::read() const {
  Result<Entry> kind = entries.kind(indexName);
  FSDPC_TRY(kind);
  if (*kind == Entry::none)
    return std::optional<Best>();
  Result<File> file = entries.openFile(indexName);
  FSDPC_TRY(file);
  std::string text(size_t(std::min(file->size(), mostIndexBytes)), ' ');
  FSDPC_TRY(file->read(0, text.data(), text.size()));
  Json json = parseJsonOrNull(text, /*deepest=*/1);
  try {
    int64_t step = numberIn(json, "step", INT64_MAX);
    const Json &loss = fieldIn(json, "eval_loss");
    if (textIn(json, "file") == nameOf(step) && loss.is_number())
      return std::optional<Best>({step, loss.get<double>()});
  } catch (const std::runtime_error &) {
    // A field is missing or has another type.
  }
  return inputError("'" + entries.pathOf(indexName) +
                    "' is not a file that --best wrote; name another folder");
}

std::string BestFolder::pathOf(int64_t step) const {
  return path + "/" + nameOf(step);
}

// Waits for another run, but not for ever: that one may have been stopped.
Status BestFolder::lock(FileLock &held) {
  FSDPC_TRY(held.open(entries, lockName));
  auto end = std::chrono::steady_clock::now() + patience;
  FileLock::Outcome outcome;
  while ((outcome = held.tryLock()) == FileLock::Outcome::busy) {
    if (std::chrono::steady_clock::now() >= end)
      return runError(
          concat("cannot lock '", entries.pathOf(lockName),
                 "': another run has held it for ", patience.count(),
                 " ms; continue or end that run, or give each its own "
                 "--best"));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  int code = errno;
  if (outcome == FileLock::Outcome::unsupported && !warned) {
    printWarning("cannot lock '" + entries.pathOf(lockName) + "': " +
                 systemText(code) + "; no other run may use this --best");
    warned = true;
  }
  return {};
}

// The order keeps best.json true at every moment: new file, new index, and only
// then is the old file removed. Nothing that takes long happens under the lock.
Status BestFolder::publish(int64_t step, double loss, NewFile &parameters) {
  FSDPC_TRY(parameters.sync());
  FileLock held;
  FSDPC_TRY(lock(held));
  Result<std::optional<Best>> before = read();
  FSDPC_TRY(before);
  if (*before && (*before)->loss <= loss) {
    lowest = (*before)->loss;
    printWarning(concat("another run has left the parameters of its step ",
                        (*before)->step, " in '", path,
                        "', whose loss is as low; those of step ", step,
                        " are not kept"));
    return {};
  }
  FSDPC_TRY(parameters.commit());
  std::string text =
      dump(Json{{"file", nameOf(step)}, {"step", step}, {"eval_loss", loss}}) +
      "\n";
  NewFile index;
  FSDPC_TRY(index.open(entries.pathOf(indexName)));
  FSDPC_TRY(index.write(0, text.data(), text.size()));
  FSDPC_TRY(index.commit());
  // One that cannot be removed does no harm.
  if (*before && (*before)->step != step)
    (void)bool(entries.removeFile(nameOf((*before)->step)));
  lowest = loss;
  return {};
}

} // namespace fsdpc::runtime
