// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rank 0 makes the block and hands its owner to the other threads.
#include "runtime/comm/common_memory.h"
#include "runtime/comm/collectives.h"
#include "runtime/support/pages.h"

namespace fsdpc::runtime {

std::shared_ptr<CommonMemory> CommonMemory::make(Job &job, size_t bytes) {
  if (job.size > 1 && !job.sharesProcess)
    return nullptr;
  std::shared_ptr<CommonMemory> made;
  if (job.rank == 0)
    if (void *memory = mapPages(bytes))
      made.reset(new CommonMemory(static_cast<char *>(memory), bytes));
  Communicator &ranks = *job.channel[controlChannel];
  const std::shared_ptr<CommonMemory> *first = &made;
  broadcast(ranks, &first, sizeof first, 0);
  std::shared_ptr<CommonMemory> own = *first;
  ranks.barrier(); // from here on the first rank's pointer may go
  return own;
}

CommonMemory::~CommonMemory() { unmapPages(memory, bytes); }

} // namespace fsdpc::runtime
