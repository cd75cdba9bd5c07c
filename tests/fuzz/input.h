// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Helpers of the fuzz targets: the fuzzer's bytes as a file with a path, and a
// check that ends the target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace fsdpc::fuzz {

/// A file in memory, which is written anew for each input.
/// A target keeps one as a static and passes the path to a reader, which opens
/// it like any other file. Not copied: the descriptor stays open until the
/// process ends.
class MemoryFile {
public:
  MemoryFile() : descriptor(memfd_create("input", MFD_CLOEXEC)) {}
  /// Returns the path under which the file can be opened.
  std::string write(const uint8_t *data, size_t size) {
    if (ftruncate(descriptor, 0) != 0 ||
        pwrite(descriptor, data, size, 0) != ssize_t(size))
      std::abort();
    return "/proc/self/fd/" + std::to_string(descriptor);
  }

private:
  int descriptor;
};

/// Ends the target unless a promise holds. Aborts, which the fuzzer reports
/// with the input.
inline void demand(bool holds, const char *promise) {
  if (holds)
    return;
  std::fprintf(stderr, "not kept: %s\n", promise);
  std::abort();
}

/// Demands that an error has a message of one line.
inline void demandOneLine(const std::string &message) {
  demand(!message.empty() && message.find('\n') == std::string::npos,
         "an error has one line");
}

} // namespace fsdpc::fuzz
