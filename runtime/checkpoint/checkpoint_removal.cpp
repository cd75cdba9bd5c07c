// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tells the files of a checkpoint from others by their names. Their contents
// are not looked at: a checkpoint that is damaged is removed like any other.
#include "runtime/checkpoint/checkpoint_removal.h"
#include "runtime/checkpoint/checkpoint_file.h"
#include "runtime/checkpoint/checkpoint_reader.h"
#include "runtime/support/concat.h"
#include "runtime/support/diagnostics.h"
#include "runtime/support/output_file.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace fsdpc::runtime {
namespace {

bool isOwn(const std::string &name, int64_t ranks) {
  std::string target = temporaryTarget(name);
  const std::string &file = target.empty() ? name : target;
  std::optional<int64_t> rank = rankOfFile(file);
  return file == checkpointManifestName || (rank && *rank < ranks);
}

// Removes the files that are the checkpoint's and returns the names of the
// others. The manifest goes last, so that a removal that was cut short goes on
// by the same names.
Result<std::vector<std::string>> removeFiles(const Folder &folder) {
  Result<std::vector<std::string>> names = folder.names();
  FSDPC_TRY(names);
  // A checkpoint that was never completed has none, and one that is damaged
  // has none that can be read.
  Result<CheckpointManifest> manifest = readCheckpointManifest(folder);
  int64_t ranks = manifest ? manifest->ranks : INT64_MAX;
  std::stable_partition(
      names->begin(), names->end(),
      [](const std::string &name) { return name != checkpointManifestName; });
  std::vector<std::string> others;
  for (const std::string &name : *names) {
    Result<Entry> kind = folder.kind(name);
    FSDPC_TRY(kind);
    bool isFile = *kind == Entry::file || *kind == Entry::link;
    if (isFile && isOwn(name, ranks))
      FSDPC_TRY(folder.removeFile(name));
    else
      others.push_back(name);
  }
  return others;
}

// Makes a folder that nobody has and moves the entry into it, so that it cannot
// replace anything.
Status setAside(const Folder &in, const std::string &name,
                const std::string &title, const std::string &stranger) {
  std::string aside = title + ".kept";
  for (int count = 2;; ++count) {
    Result<Entry> there = in.kind(aside);
    FSDPC_TRY(there);
    if (*there == Entry::none)
      break;
    aside = concat(title, ".kept-", count);
  }
  FSDPC_TRY(in.makeFolder(aside));
  Result<Folder> to = in.openFolder(aside);
  FSDPC_TRY(to);
  FSDPC_TRY(in.move(name, *to, title));
  printWarning("'" + in.pathOf(title) + "' was to be removed, but " + stranger +
               " is not part of a checkpoint; it is now in '" +
               to->pathOf(title) + "'");
  return {};
}

} // namespace

Status removeCheckpoint(const Folder &in, const std::string &name,
                        const std::string &title) {
  Result<Entry> kind = in.kind(name);
  FSDPC_TRY(kind);
  if (*kind == Entry::none)
    return {};
  if (*kind == Entry::link)
    return in.removeFile(name);
  if (*kind != Entry::folder)
    return setAside(in, name, title, "it");
  Result<Folder> folder = in.openFolder(name);
  FSDPC_TRY(folder);
  Result<std::vector<std::string>> others = removeFiles(*folder);
  FSDPC_TRY(others);
  if (others->empty())
    return in.removeEmptyFolder(name);
  return setAside(in, name, title, "'" + others->front() + "' in it");
}

} // namespace fsdpc::runtime
