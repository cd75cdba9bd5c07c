// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files without a name whose room on the disk is reserved when they are made.
// Nothing is left of them however the process ends.
#pragma once

#include "runtime/support/file.h"
#include "runtime/support/status.h"

#include <cstdint>
#include <string>

namespace fsdpc::runtime {

struct ReservedFile {
  File file;
  int descriptor = -1; ///< owned by `file`; open for writing
};

/// Makes a file of `bytes` zeroes beside `path`, whose name it has in messages.
/// If the folder's disk has too little room, the error has both numbers.
Result<ReservedFile> reserveFile(const std::string &path, uint64_t bytes);

/// Bytes that may still be written to the disk of a folder, or -1 if unknown.
int64_t freeBytes(const std::string &folder);
/// Returns true if the files of a folder lie in memory (tmpfs).
bool liesInMemory(const std::string &folder);

} // namespace fsdpc::runtime
