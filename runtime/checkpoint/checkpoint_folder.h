// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The folder of --checkpoint: one folder per checkpoint, `step-0000120`, which
// appears under its name only when all of it is on disk. A checkpoint that is
// being written lies in a folder whose name begins with a dot. A lock, whose
// name begins with one too, keeps two runs apart. Only rank 0 changes the
// folder.
#pragma once

#include "runtime/support/file_lock.h"
#include "runtime/support/folder.h"
#include "runtime/support/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdpc::runtime {

class CheckpointFolder {
public:
  CheckpointFolder() = default;
  CheckpointFolder(const CheckpointFolder &) = delete;
  /// Gives up the lock. Removes a folder that `open` has made if `begin` was
  /// never called: a run that is refused leaves nothing.
  ~CheckpointFolder();

  /// Names the folder, without touching the disk.
  void name(const std::string &folder) { path = folder; }
  /// Makes the folder if it does not exist, takes its lock, and removes what
  /// killed runs have left. Refuses one that is a checkpoint itself.
  Status open();
  /// Steps of the checkpoints, in ascending order.
  Result<std::vector<int64_t>> steps() const;

  /// Returns the step that the name of a checkpoint's folder says, at the end
  /// of a path; none if it is not such a name.
  static std::optional<int64_t> stepIn(std::string_view path);

  /// Return the folder of a step's checkpoint, and the one in which it is
  /// written.
  std::string folderOf(int64_t step) const;
  std::string temporaryOf(int64_t step) const;

  /// Makes the temporary folder, which is empty.
  Status begin(int64_t step);
  /// Gives the temporary folder its name, in place of a checkpoint of this
  /// step.
  Status publish(int64_t step);
  /// Removes the temporary folder.
  void drop(int64_t step);
  /// Removes the checkpoint of a step. It loses its name first, so that no part
  /// of it is ever taken for a whole one. Files of others stay, aside
  /// (removeCheckpoint).
  Status remove(int64_t step);

private:
  Status checkKind() const;
  bool isGone() const;
  Status syncAbove() const;
  Result<bool> lock();
  Status recover() const;
  std::string path;
  Folder entries; ///< open once `open` has succeeded
  FileLock held;
  bool unused = false; ///< `open` made the folder, and nothing is in it
};

} // namespace fsdpc::runtime
