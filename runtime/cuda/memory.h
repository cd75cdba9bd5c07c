// The memory of a CUDA device: one allocation on the device and one of pinned
// host memory. Both are sized before anything is taken from them, and handed
// out from the front; nothing is returned before the end. So nothing fragments,
// and a step cannot run out of memory.
#pragma once

#include "runtime/cuda/context.h"

namespace fsdpc::runtime {

class CudaMemory {
public:
  explicit CudaMemory(CudaContext &context) : context(context) {}
  ~CudaMemory();
  CudaMemory(const CudaMemory &) = delete;

  // Makes both allocations. If the device has too little free memory for them
  // and for what is allocated later (CudaDeviceInfo), or the host for pinned
  // memory, the error has all numbers. `offloadedBytes` of the pinned memory
  // are of what is offloaded.
  Status reserve(int64_t deviceBytes, int64_t pinnedBytes,
                 int64_t offloadedBytes);
  // Take aligned blocks. They return null if what was reserved is used up.
  void *takeDevice(int64_t bytes);
  void *takePinned(int64_t bytes);
  // Blocking copies through pinned memory, and a blocking fill.
  void upload(void *to, const void *from, size_t bytes);
  void download(void *to, const void *from, size_t bytes);
  void zero(void *memory, size_t bytes);

  // The whole device allocation, which NCCL registers.
  void *base() const { return device.memory; }
  size_t bytes() const { return size_t(device.size); }

private:
  // A bump allocator over one allocation; `used` counts padding too.
  struct Arena {
    void *memory = nullptr;
    int64_t size = 0, used = 0;
    void *take(int64_t bytes);
  };

  CudaContext &context;
  Arena device, pinned;
  // bounceBytes of pinned memory that the blocking copies go through.
  void *bounce = nullptr;
};

} // namespace fsdpc::runtime
