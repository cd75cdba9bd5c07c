// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counts the calls of operator new in the program that this is linked into, on
// all threads, and prints the count when the program ends if TOY_ALLOCATIONS is
// set. Two runs that differ in their number of steps alone must print the same
// count. What C libraries take by malloc (MPI's own memory) is not counted.
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>

// Sanitizers replace these operators themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS 1
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#undef COUNTS
#endif
#endif
#endif

#ifdef COUNTS
namespace {

std::atomic<long> allocations{0};

void *allocate(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  bytes = (bytes + alignment - 1) / alignment * alignment;
  void *memory = std::aligned_alloc(alignment, bytes ? bytes : alignment);
  if (!memory)
    throw std::bad_alloc();
  return memory;
}

struct Report {
  ~Report() {
    if (std::getenv("TOY_ALLOCATIONS"))
      std::fprintf(stderr, "allocations: %ld\n", allocations.load());
  }
} report;

} // namespace

// The other forms call these.
void *operator new(std::size_t bytes) {
  return allocate(bytes, alignof(std::max_align_t));
}
void *operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, std::size_t(alignment));
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void *memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void *memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
#endif
