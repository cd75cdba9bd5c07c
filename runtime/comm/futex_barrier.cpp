// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The three words are sequentially consistent. So either the last rank to
// arrive sees a sleeper and wakes it, or the sleeper's futex call sees the new
// generation and returns at once. The timeout of one second is only a
// safeguard.
#include "runtime/comm/futex_barrier.h"
#include "runtime/comm/spin.h"

#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace fsdpc::runtime {

static_assert(sizeof(std::atomic<uint32_t>) == 4 &&
              std::atomic<uint32_t>::is_always_lock_free);

void FutexBarrier::wait(int participants) {
  uint32_t before = generation.load();
  auto *word = reinterpret_cast<uint32_t *>(&generation);
  // The last rank resets the count before it publishes the new generation, so
  // the barrier can be used again at once.
  if (arrived.fetch_add(1) + 1 == uint32_t(participants)) {
    arrived = 0;
    ++generation;
    if (sleepers)
      syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    return;
  }
  auto released = [&] { return generation.load() != before; };
  if (spinFor20Microseconds(released))
    return;
  ++sleepers;
  while (!released()) {
    timespec second = {1, 0};
    syscall(SYS_futex, word, FUTEX_WAIT, before, &second, nullptr, 0);
  }
  --sleepers;
}

} // namespace fsdpc::runtime
