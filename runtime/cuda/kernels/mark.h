// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A mark by which the host sees how far a stream has come, while it runs
// (runtime/cuda/watchdog.h).
#pragma once

#include "runtime/cuda/kernels/grid.h"

namespace fsdpc::runtime {

/// A word in pinned memory that one stream writes: `value` in the low half, and
/// if `counts` the number of writes in the high half. `word` is aligned to 8
/// bytes.
struct Mark {
  uint64_t *word = nullptr;
  uint32_t value = 0;
  bool counts = false;
};

/// Only one stream writes a word, so reading and writing need not be one atomic
/// operation. The fence makes the mark visible to the host while the stream
/// goes on.
FSDPC_SHARED inline void body(const Grid &grid, const Mark &m) {
  // One thread writes.
  if (grid.first() != 0)
    return;
#ifdef __CUDA_ARCH__
  uint64_t before = *static_cast<volatile uint64_t *>(m.word);
#else
  uint64_t before = __atomic_load_n(m.word, __ATOMIC_RELAXED);
#endif
  uint64_t count = m.counts ? (before >> 32) + 1 : 0;
  // One store of eight bytes, so the host never sees a count with the value of
  // another mark.
  uint64_t now = count << 32 | m.value;
#ifdef __CUDA_ARCH__
  *static_cast<volatile uint64_t *>(m.word) = now;
  __threadfence_system();
#else
  __atomic_store_n(m.word, now, __ATOMIC_RELAXED);
#endif
}

} // namespace fsdpc::runtime
