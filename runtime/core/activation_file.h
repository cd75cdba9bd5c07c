// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The file in which a rank's activations lie between the forward and the
// backward of a microbatch (--offload=activations). The compiler gives each
// value its place; the program's events order what writes and reads it.
//
// The file is read and written by position and not mapped: pages of a mapping
// count as the process's own, so the resident set would grow past the plan.
#pragma once

#include "runtime/support/reserved_file.h"

#include <memory>

namespace fsdpc::runtime {

class ActivationFile {
public:
  /// Makes a file of `bytes` bytes in `folder`, and reserves its room on the
  /// disk.
  static Result<std::unique_ptr<ActivationFile>> make(const std::string &folder,
                                                      int64_t bytes);
  /// Both are safe on any thread, for bytes that no other thread writes.
  Status write(int64_t place, const void *from, int64_t bytes);
  Status read(int64_t place, void *to, int64_t bytes) const;

private:
  ReservedFile reserved;
};

} // namespace fsdpc::runtime
