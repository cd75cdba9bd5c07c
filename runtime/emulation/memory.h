// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory of the emulated devices, and pinned memory. Each allocation is a
// mapping of its own between guard pages, so a kernel that leaves it crashes at
// once. Memory that nobody wrote holds one bits, a NaN in every float type.
// Freed memory stays inaccessible. On processors with protection keys, only the
// threads of streams may access device memory, as with a real device.
#pragma once

#include "runtime/cuda/api.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <shared_mutex>
#include <vector>

namespace fsdpc::runtime::emulation {

constexpr int pinnedMemory = -1; ///< owner, in place of a device

/// While an object lives, the calling thread may access device memory. They
/// nest: the destructor restores what the thread had.
class DeviceAccess {
public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess &) = delete;
  DeviceAccess &operator=(const DeviceAccess &) = delete;
  /// Returns true if threads without a DeviceAccess are kept out.
  static bool isGuarded();

private:
  int before = 0; ///< the thread's rights before
};

/// The place of a range of bytes.
struct Place {
  enum Kind {
    host,    ///< memory that the emulation did not allocate
    device,  ///< within one allocation
    pinned,  ///< within one allocation
    outside, ///< in guard pages or freed memory, or past an allocation's end
  };
  Kind kind = host;
  int owner = 0; ///< the device's number
};

/// All allocations of the process. Safe for concurrent use.
class Memory {
public:
  /// The device's and the pinned bytes that may be allocated.
  Memory(int devices, size_t capacity, size_t pinnedCapacity)
      : capacity(capacity), pinnedCapacity(pinnedCapacity), used(devices) {}
  ~Memory();
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;

  /// Allocates memory that belongs to `owner`, a device or pinnedMemory.
  /// Addresses are multiples of 256; of 4096 from 1 MiB on.
  CudaStatus allocate(void *&memory, size_t bytes, int owner);
  /// Makes memory inaccessible for good and keeps its addresses reserved.
  /// Refuses an address that is not the start of an allocation of this kind.
  CudaStatus release(void *memory, bool pinned);
  /// Returns where the whole range lies; a range that begins in an allocation
  /// and leaves it is `outside`.
  Place find(const void *memory, size_t bytes) const;
  /// Returns the bytes allocated on a device, or pinned.
  size_t usedBytes(int owner) const;

private:
  struct Mapping {
    char *reserved;       ///< with guard pages
    size_t reservedBytes; ///< with guard pages
    char *begin;          ///< what the caller got
    size_t bytes;
    int owner;
    bool freed;
  };

  /// Aborts if somebody wrote to the bytes around an allocation that share its
  /// pages.
  static void checkMargins(const Mapping &mapping);

  /// Bytes per device, and of pinned memory.
  size_t capacity, pinnedCapacity;
  mutable std::shared_mutex mutex;
  /// Bytes by device.
  std::vector<size_t> used;
  size_t pinned = 0;
  std::map<const char *, Mapping> mappings; ///< by `reserved`
};

} // namespace fsdpc::runtime::emulation
