// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory of a CUDA device: one allocation on the device and one of pinned
// host memory. Both are sized before anything is taken from them, and handed
// out from the front; nothing is returned before the end. So nothing fragments,
// and a step cannot run out of memory.
#pragma once

#include "runtime/cuda/context.h"
#include "runtime/support/concat.h"

namespace fsdpc::runtime {

class CudaMemory {
public:
  explicit CudaMemory(CudaContext &context) : context(context) {}
  ~CudaMemory();
  CudaMemory(const CudaMemory &) = delete;

  /// Makes both allocations. If the device has too little free memory for them
  /// and for what is allocated later (CudaDeviceInfo), or the host for pinned
  /// memory, the error has all numbers. `offloadedBytes` of the pinned memory
  /// are of what is offloaded. With `shared` NCCL allocates the device memory
  /// if it can.
  Status reserve(int64_t deviceBytes, int64_t pinnedBytes,
                 int64_t offloadedBytes, bool shared);
  /// Take aligned blocks. They return null if what was reserved is used up.
  void *takeDevice(int64_t bytes);
  void *takePinned(int64_t bytes);
  /// Blocking copies through pinned memory, and a blocking fill.
  void upload(void *to, const void *from, size_t bytes);
  void download(void *to, const void *from, size_t bytes);
  void zero(void *memory, size_t bytes);
  /// Sets `table` to device memory with these values, or to null if there are
  /// none.
  template <typename T, typename Pointer>
  Status uploadTable(const std::vector<T> &values, Pointer &table);

  /// The whole device allocation, which NCCL registers.
  void *base() const { return device.memory; }
  size_t bytes() const { return size_t(device.size); }
  /// Why NCCL has not allocated it, or "".
  const std::string &notShared() const { return reason; }
  /// Returns a number that is equal on ranks that have taken blocks of the same
  /// sizes, and which therefore lie at the same places.
  uint64_t places() const { return placesHash; }

private:
  /// A bump allocator over one allocation; `used` counts padding too.
  struct Arena {
    void *memory = nullptr;
    int64_t size = 0, used = 0;
    void *take(int64_t bytes);
  };

  CudaStatus allocate(int64_t bytes, bool shared);

  CudaContext &context;
  Arena device, pinned;
  /// bounceBytes of pinned memory that the blocking copies go through.
  void *bounce = nullptr;
  std::string reason = "--no-symmetric-memory";
  uint64_t placesHash = 0;
};

template <typename T, typename Pointer>
Status CudaMemory::uploadTable(const std::vector<T> &values, Pointer &table) {
  table = nullptr;
  size_t bytes = values.size() * sizeof(T);
  if (bytes == 0)
    return {};
  void *to = takeDevice(int64_t(bytes));
  if (!to)
    return runError(
        concat("out of device memory for a table of ", bytes, " bytes"));
  upload(to, values.data(), bytes);
  table = static_cast<Pointer>(to);
  return {};
}

} // namespace fsdpc::runtime
