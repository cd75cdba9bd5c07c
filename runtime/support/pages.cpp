// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/support/pages.h"

#include <algorithm>
#include <cstdint>
#include <sys/mman.h>

namespace fsdpc {

static constexpr size_t hugePage = size_t(2) << 20;

// The rows of a weight are far apart, and with small pages each row would miss
// the TLB.
void *mapPages(size_t bytes) {
  // Blocks of 4 MiB and more are worth aligning: one huge page more is mapped,
  // and what lies before and behind the aligned part is given back.
  size_t size = (std::max<size_t>(bytes, 1) + 4095) / 4096 * 4096;
  size_t spare = size >= 2 * hugePage ? hugePage : 0;
  void *memory = mmap(nullptr, size + spare, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return nullptr;
  if (!spare)
    return memory;
  char *mapped = static_cast<char *>(memory);
  size_t head = -reinterpret_cast<uintptr_t>(mapped) % hugePage;
  if (head)
    munmap(mapped, head);
  munmap(mapped + head + size, spare - head);
  // Without permission for huge pages this fails, and small pages are used.
  madvise(mapped + head, size, MADV_HUGEPAGE);
  return mapped + head;
}

// The kernel rounds the length up to whole pages, as mapPages did.
void unmapPages(void *memory, size_t bytes) {
  munmap(memory, std::max<size_t>(bytes, 1));
}

} // namespace fsdpc
