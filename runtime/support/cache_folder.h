// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Folders in which tools keep, for this user, what took long to make and can be
// made again at any time. The name of a file there is a digest of all that
// decides its content, so a file is never outdated.
#pragma once

#include "runtime/support/status.h"

#include <chrono>
#include <cstdint>
#include <string>

namespace fsdpc {

/// Returns the absolute path of the folder `name` in `chosen`, or if that is
/// empty in $XDG_CACHE_HOME/fsdpc or ~/.cache/fsdpc. Makes it if needed. Fails
/// with the reason if it cannot be written, or if others can write to it or
/// replace it: they could put code there.
Result<std::string> cacheFolder(const std::string &chosen,
                                const std::string &name);

/// What a folder may keep.
struct CacheLimits {
  std::chrono::hours unused{24 * 30}; ///< files with no use for so long go
  uint64_t bytes = UINT64_MAX;        ///< the least recently used go beyond it
};

/// Removes what exceeds the limits. Errors are ignored: others may be removing
/// the same files.
void trimCache(const std::string &folder, CacheLimits limits);

/// Notes that a file has been used now.
void noteUse(const std::string &path);

} // namespace fsdpc
