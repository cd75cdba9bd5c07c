// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Messages between ranks that are threads of one process. A sender publishes
// where its bytes lie; the receiver copies them and says so. Nothing is staged,
// and a rank waits only for those that it has messages with.
#pragma once

#include "runtime/comm/communicator.h"

#include <atomic>

namespace fsdpc::runtime {

/// One box per ordered pair of ranks. Shared by the ranks of a communicator,
/// whose threads may use it at the same time.
class Mailboxes {
public:
  explicit Mailboxes(int ranks)
      : ranks(ranks), boxes(size_t(ranks) * size_t(ranks)) {}

  /// Communicator::transfer for rank `self`.
  void transfer(int self, std::span<const Outgoing> sends,
                std::span<const Incoming> receives);

private:
  /// The sender fills it, the receiver empties it; each waits for the other.
  struct Box {
    std::atomic<uint32_t> full{0};
    const void *data = nullptr; ///< while full, as is `bytes`
    size_t bytes = 0;
  };
  Box &boxOf(int from, int to) {
    return boxes[size_t(from) * size_t(ranks) + size_t(to)];
  }

  int ranks;
  std::vector<Box> boxes;
};

} // namespace fsdpc::runtime
