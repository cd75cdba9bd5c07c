// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A lock by which processes keep apart, on a file with a fixed name in a
// folder. The kernel gives it up when its process ends, however it ends, so a
// lock is never stale.
#pragma once

#include "runtime/support/folder.h"
#include "runtime/support/status.h"

#include <string>

namespace fsdpc::runtime {

class FileLock {
public:
  enum class Outcome {
    taken,
    busy,       ///< somebody else holds it
    unsupported ///< the file system has no locks; errno says how it refused
  };

  FileLock() = default;
  FileLock(const FileLock &) = delete;
  /// Gives the lock up. The file stays.
  ~FileLock();

  /// Opens the file, and makes it if there is none. Fails if the name is a link
  /// or not a regular file. A second call opens anew.
  Status open(const Folder &folder, const std::string &name);
  /// Tries to take the lock of the open file, without waiting.
  Outcome tryLock();
  /// Returns false if the open file is not the one that has the name any more.
  Result<bool> isNamed(const Folder &folder, const std::string &name) const;
  /// For reading and writing.
  int descriptor() const { return file; }

private:
  int file = -1;
};

} // namespace fsdpc::runtime
