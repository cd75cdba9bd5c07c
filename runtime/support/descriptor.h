// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A file descriptor that its scope closes.
#pragma once

#include <unistd.h>

namespace fsdpc {

/// Owns a descriptor, or none (-1), as open() returns it.
struct Descriptor {
  explicit Descriptor(int file) : file(file) {}
  Descriptor(const Descriptor &) = delete;
  ~Descriptor() {
    if (file >= 0)
      close(file);
  }
  /// Hands the descriptor to the caller.
  int release() {
    int released = file;
    file = -1;
    return released;
  }
  int file;
};

} // namespace fsdpc
