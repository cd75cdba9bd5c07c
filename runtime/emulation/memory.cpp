// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Allocations between guard pages. Fresh memory is a private mapping of a file
// of one bits: it reads as NaN and takes neither memory nor time until it is
// written. Freed memory stays mapped without access rights.
#include "runtime/emulation/memory.h"
#include "runtime/emulation/status.h"
#include "runtime/support/concat.h"
#include "runtime/support/round_up.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace fsdpc::runtime::emulation {

namespace {

constexpr size_t page = 4096, alignment = 256;
constexpr size_t large = size_t(1) << 20; // as Device::allocate documents
constexpr int poison = 0xff;
// Length of the file, which is mapped repeatedly.
constexpr size_t poisonBytes = size_t(4) << 20;

// A file that holds only poison. Mapped privately it takes neither memory nor
// time until somebody writes to it.
int poisonFile() {
  static const int file = [] {
    int made = memfd_create("fsdpc-poison", MFD_CLOEXEC);
    std::vector<char> ones(poisonBytes, char(poison));
    if (made >= 0 &&
        write(made, ones.data(), ones.size()) != ssize_t(ones.size())) {
      close(made);
      made = -1;
    }
    return made;
  }();
  return file;
}

// An allocation may be longer than the file, which is then mapped several times
// in a row.
bool mapPoison(char *begin, size_t bytes) {
  for (size_t done = 0; done < bytes; done += poisonBytes)
    if (mmap(begin + done, std::min(poisonBytes, bytes - done),
             PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
             poisonFile(), 0) == MAP_FAILED)
      return false;
  return true;
}

// The protection key of device memory, or -1 if the processor has none. A
// thread has no right to it until it asks.
// Rights to a key belong to the thread and change by one instruction
// (pkeys(7)).
int deviceKey() {
  static const int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  return key;
}

} // namespace

bool DeviceAccess::isGuarded() { return deviceKey() >= 0; }

DeviceAccess::DeviceAccess() {
  if (!isGuarded())
    return;
  before = pkey_get(deviceKey());
  pkey_set(deviceKey(), 0);
}

DeviceAccess::~DeviceAccess() {
  if (isGuarded())
    pkey_set(deviceKey(), unsigned(before));
}

// Unmaps freed memory too, whose addresses stay reserved until now.
Memory::~Memory() {
  for (auto &[begin, mapping] : mappings)
    munmap(mapping.reserved, mapping.reservedBytes);
}

// No bytes give a null pointer, as in CUDA.
CudaStatus Memory::allocate(void *&memory, size_t bytes, int owner) {
  memory = nullptr;
  std::unique_lock lock(mutex);
  if (bytes == 0)
    return cudaOk;
  bool isPinned = owner == pinnedMemory;
  size_t *count = isPinned ? &pinned : &used[owner];
  size_t room = (isPinned ? pinnedCapacity : capacity) - *count;
  if (bytes > room)
    return status::refuse(status::memoryAllocation,
                          concat(bytes, " bytes ",
                                 isPinned
                                     ? "of pinned memory"
                                     : concat("on emulated device ", owner),
                                 ", ", room, " are free"));
  size_t inner = roundUp(bytes, page);
  // Reserves everything without rights, then maps the middle: what stays are
  // the guard pages.
  Mapping mapping{nullptr, inner + 2 * page, nullptr, bytes, owner, false};
  void *reserved = mmap(nullptr, mapping.reservedBytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED)
    return status::refuse(status::memoryAllocation,
                          "the host is out of address space");
  mapping.reserved = static_cast<char *>(reserved);
  char *first = mapping.reserved + page;
  bool mapped = mapPoison(first, inner);
  if (mapped && owner != pinnedMemory && DeviceAccess::isGuarded())
    mapped =
        pkey_mprotect(first, inner, PROT_READ | PROT_WRITE, deviceKey()) == 0;
  if (!mapped) {
    munmap(mapping.reserved, mapping.reservedBytes);
    return status::refuse(status::memoryAllocation,
                          "the host is out of memory");
  }
  // Small allocations end as close to the guard page as alignment allows.
  size_t margin = bytes < large ? inner - roundUp(bytes, alignment) : 0;
  mapping.begin = first + margin;
  *count += bytes;
  mappings.emplace(mapping.reserved, mapping);
  memory = mapping.begin;
  return cudaOk;
}

// Rounding to pages and to the alignment leaves bytes around an allocation that
// no guard page protects. They still hold the poison unless somebody wrote
// there.
void Memory::checkMargins(const Mapping &mapping) {
  DeviceAccess access;
  const char *first = mapping.reserved + page;
  const char *last = mapping.reserved + mapping.reservedBytes - page;
  auto clean = [](const char *begin, const char *end) {
    return std::all_of(begin, end, [](char c) { return c == char(poison); });
  };
  if (clean(first, mapping.begin) && clean(mapping.begin + mapping.bytes, last))
    return;
  fprintf(stderr, "error: emulated: write outside an allocation of %zu bytes\n",
          mapping.bytes);
  abort();
}

// A null pointer is not an error, as in CUDA.
CudaStatus Memory::release(void *memory, bool ofPinned) {
  if (!memory)
    return cudaOk;
  std::unique_lock lock(mutex);
  auto next = mappings.upper_bound(static_cast<char *>(memory));
  if (next == mappings.begin())
    return status::refuse(status::invalidValue,
                          "the freed memory was not allocated by CUDA");
  Mapping &mapping = std::prev(next)->second;
  if (mapping.begin != memory || mapping.freed ||
      (mapping.owner == pinnedMemory) != ofPinned)
    return status::refuse(
        status::invalidValue,
        mapping.freed ? "memory is freed twice"
                      : "the freed address is not the start of an allocation");
  checkMargins(mapping);
  // The addresses stay reserved, so that late accesses hit nothing else.
  char *first = mapping.reserved + page;
  size_t inner = mapping.reservedBytes - 2 * page;
  // A new mapping over the old one also returns the memory to the system.
  mmap(first, inner, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  mapping.freed = true;
  (ofPinned ? pinned : used[mapping.owner]) -= mapping.bytes;
  return cudaOk;
}

Place Memory::find(const void *memory, size_t bytes) const {
  const char *begin = static_cast<const char *>(memory);
  std::shared_lock lock(mutex);
  // The last mapping that begins before the end of the bytes.
  auto next = mappings.lower_bound(begin + std::max<size_t>(bytes, 1));
  if (next == mappings.begin())
    return {};
  const Mapping &mapping = std::prev(next)->second;
  if (mapping.reserved + mapping.reservedBytes <= begin)
    return {};
  if (mapping.freed || begin < mapping.begin ||
      begin + bytes > mapping.begin + mapping.bytes)
    return {Place::outside, 0};
  if (mapping.owner == pinnedMemory)
    return {Place::pinned, 0};
  return {Place::device, mapping.owner};
}

size_t Memory::usedBytes(int owner) const {
  std::shared_lock lock(mutex);
  return owner == pinnedMemory ? pinned : used[owner];
}

} // namespace fsdpc::runtime::emulation
