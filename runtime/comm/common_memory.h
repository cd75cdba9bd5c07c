// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One block of memory that all ranks of a job reach, at the same address.
#pragma once

#include "runtime/comm/communicator.h"

#include <memory>

namespace fsdpc::runtime {

class CommonMemory {
public:
  /// Collective, on the control channel: makes `bytes` zeroed bytes. They live
  /// as long as the last rank that holds the result. Returns null on every rank
  /// if the ranks are not threads of one process, or if memory has run out.
  static std::shared_ptr<CommonMemory> make(Job &job, size_t bytes);
  ~CommonMemory();
  CommonMemory(const CommonMemory &) = delete;

  /// The first byte, aligned to a page, and to a huge page if there are many.
  char *begin() const { return memory; }

private:
  CommonMemory(char *memory, size_t bytes) : memory(memory), bytes(bytes) {}

  char *const memory;
  const size_t bytes;
};

} // namespace fsdpc::runtime
