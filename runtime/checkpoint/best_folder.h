// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The folder of --best: the parameters of the lowest eval_loss, and best.json,
// which names their file. best.json is replaced after the new file is whole and
// before the old one goes, so the folder always holds what it names.
//
// Several runs may share a folder: a lock makes them compare and replace one
// after the other, so the lowest loss of all of them wins.
#pragma once

#include "runtime/support/file_lock.h"
#include "runtime/support/folder.h"
#include "runtime/support/new_file.h"
#include "runtime/support/status.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace fsdpc::runtime {

/// Call open once; then, for each evaluation that is better, write a file for
/// pathOf(step) and publish it.
class BestFolder {
public:
  /// `patience`: how long `publish` waits for another run that holds the lock,
  /// which takes it for the time of a few renames.
  explicit BestFolder(
      std::chrono::milliseconds patience = std::chrono::seconds(30))
      : patience(patience) {}
  BestFolder(const BestFolder &) = delete;
  /// Removes a folder that `open` has made if it is still empty: a run that is
  /// refused leaves nothing.
  ~BestFolder();

  /// Makes the folder if it does not exist. If the run resumes, the best of
  /// before counts on; otherwise a folder that holds one is refused. So is one
  /// whose best.json names anything that `publish` would not have written.
  Status open(const std::string &folder, bool resumes);
  /// The lowest loss so far, infinite if there is none.
  double loss() const { return lowest; }

  /// Returns the path for the parameters of a step.
  std::string pathOf(int64_t step) const;
  /// Commits `parameters`, a file for `pathOf(step)`, makes it the best, and
  /// removes the one before it. If another run has published a loss that is as
  /// low since, it drops the file instead, and a warning says so. Fails, and
  /// changes nothing, if the lock cannot be had in time. A file system without
  /// locks is a warning.
  Status publish(int64_t step, double loss, NewFile &parameters);

private:
  struct Best {
    int64_t step;
    double loss;
  };
  Result<std::optional<Best>> read() const;
  Status lock(FileLock &held);

  std::chrono::milliseconds patience;
  std::string path;
  Folder entries;
  bool made = false, warned = false;
  double lowest = std::numeric_limits<double>::infinity();
};

} // namespace fsdpc::runtime
