// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory that the ranks of a host share, for processes that no MPI serves. It
// has no name, so nothing is left of a job that dies, and no limit but that of
// memory, which /dev/shm has.
#pragma once

#include "runtime/comm/communicator.h"

#include <memory>
#include <vector>

namespace fsdpc::runtime {

class SharedMemory {
public:
  /// Collective over `ranks`, which should be on one host: makes a zeroed
  /// window of `bytes` for each. Returns null on every rank if one of them
  /// cannot open it: it is on another host, or in a container with processes of
  /// its own, or memory has run out.
  static std::unique_ptr<SharedMemory> make(Communicator &ranks, size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory &) = delete;

  /// The windows of all ranks.
  std::vector<char *> windows() const;

private:
  SharedMemory(int ranks, size_t bytes) : ranks(ranks), bytes(bytes) {}
  bool map(int file);

  const int ranks;
  const size_t bytes; ///< per rank, whole pages
  char *memory = nullptr;
};

} // namespace fsdpc::runtime
