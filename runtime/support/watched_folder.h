// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Temporary folders, also of a process that somebody ends with Ctrl-C, kill or
// by closing the terminal.
#pragma once

#include "runtime/support/status.h"

#include <string>

namespace fsdpc {

/// A new folder of a name that nobody can guess, readable by its owner alone.
/// During its lifetime, signals that end a process, such as SIGTERM, remove it
/// with all that is in it, and then end the process as they would have: for
/// processes that do not handle them themselves. Whoever ends otherwise removes
/// it.
/// Eight folders are watched at a time; a further one would stay behind.
class WatchedFolder {
public:
  WatchedFolder() = default;
  WatchedFolder(const WatchedFolder &) = delete;
  ~WatchedFolder() { release(); }

  /// Makes the folder `prefix` + six characters. The error of errno is not
  /// worded: the caller names what the folder was for.
  Status make(const std::string &prefix);
  /// No longer watches the folder, which stays. The path is empty from then on.
  void release();
  const std::string &path() const { return name; }

private:
  std::string name;
};

/// Removes all watched folders, for a process that ends at once. Makes nothing
/// but system calls.
void removeWatchedFolders();

} // namespace fsdpc
