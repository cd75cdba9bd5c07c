// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A stand-in of cudart: devices, memory and versions. Memory of a device is
// reserved but not accessible, so a host that reads or writes it crashes.
// Nothing is copied.
//
// Rules: CUDA Runtime API 13, "Device Management" and "Memory Management".
#include "tests/runtime/cuda/vendor/cudart_state.h"

#include <cstdint>
#include <cstring>
#include <cuda_runtime_api.h>
#include <map>
#include <mutex>
#include <sys/mman.h>

namespace fsdpc::vendor {

namespace {

constexpr int pinned = -1; // in place of a device

struct Block {
  size_t bytes;
  int device;
};

std::mutex mutex;
std::map<uintptr_t, Block> blocks; // by address
thread_local int selected = 0;

cudaError_t allocate(void **memory, size_t bytes, int device) {
  void *made = mmap(nullptr, bytes,
                    device == pinned ? PROT_READ | PROT_WRITE : PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED)
    return cudaErrorMemoryAllocation;
  std::lock_guard<std::mutex> lock(mutex);
  blocks[reinterpret_cast<uintptr_t>(made)] = {bytes, device};
  *memory = made;
  return cudaSuccess;
}

// "ptr must have been returned by a previous call" of the matching function.
cudaError_t release(void *memory, bool isPinned, const char *function) {
  std::lock_guard<std::mutex> lock(mutex);
  auto at = blocks.find(reinterpret_cast<uintptr_t>(memory));
  bool known = at != blocks.end() && (at->second.device == pinned) == isPinned;
  if (!require(known, function, "frees what was allocated, and once"))
    return cudaErrorInvalidValue;
  munmap(memory, at->second.bytes);
  blocks.erase(at);
  return cudaSuccess;
}

} // namespace

int currentDevice() { return selected; }

bool spans(const void *memory, size_t bytes, int device) {
  std::lock_guard<std::mutex> lock(mutex);
  auto address = reinterpret_cast<uintptr_t>(memory);
  auto next = blocks.upper_bound(address);
  if (next == blocks.begin())
    return false;
  auto &[begin, block] = *--next;
  return address - begin <= block.bytes &&
         bytes <= block.bytes - (address - begin) &&
         (block.device == pinned || block.device == device);
}

bool allocateOnDevice(void **memory, size_t bytes) {
  return allocate(memory, bytes, selected) == cudaSuccess;
}

void releaseOnDevice(void *memory) {
  release(memory, /*isPinned=*/false, __func__);
}

size_t allocations() {
  std::lock_guard<std::mutex> lock(mutex);
  return blocks.size();
}

} // namespace fsdpc::vendor

using namespace fsdpc::vendor;

extern "C" {

cudaError_t cudaDriverGetVersion(int *version) {
  *version = fails(__func__) ? 0 : 13000; // 0: no driver is installed
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = 13000;
  return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory"
                                            : "an error of the stand-in";
}

cudaError_t cudaGetDeviceCount(int *count) {
  if (fails(__func__))
    return cudaErrorNoDevice;
  *count = devices;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (fails(__func__))
    return cudaErrorDevicesUnavailable;
  if (!require(device >= 0 && device < devices, __func__, "the device exists"))
    return cudaErrorInvalidDevice;
  selected = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
  if (fails(__func__))
    return cudaErrorUnknown;
  *device = selected;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
  if (fails(__func__))
    return cudaErrorUnknown;
  if (!require(device >= 0 && device < devices, __func__, "the device exists"))
    return cudaErrorInvalidDevice;
  *properties = {};
  strcpy(properties->name, "stand-in");
  properties->uuid.bytes[0] = char('0' + device);
  properties->major = 9;
  properties->multiProcessorCount = 132;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device) {
  if (fails(__func__))
    return cudaErrorUnknown;
  // "len must be large enough to hold 13 characters with the final zero".
  if (!require(bytes >= 13 && device >= 0 && device < devices, __func__,
               "13 characters and a device that exists"))
    return cudaErrorInvalidValue;
  strcpy(text, "0000:3B:00.0");
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
  if (fails(__func__))
    return cudaErrorUnknown;
  *available = size_t(70) << 30;
  *total = size_t(80) << 30;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes) {
  if (fails(__func__))
    return cudaErrorMemoryAllocation;
  if (!require(memory && bytes > 0, __func__, "the size is not 0"))
    return cudaErrorInvalidValue;
  return allocate(memory, bytes, selected);
}

cudaError_t cudaFree(void *memory) {
  bool failing = fails(__func__);
  cudaError_t status = release(memory, /*isPinned=*/false, __func__);
  return failing ? cudaErrorUnknown : status;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags) {
  if (fails(__func__))
    return cudaErrorMemoryAllocation;
  // Without the flag it is pinned for the current device's context only.
  if (!require(memory && bytes > 0 && flags == cudaHostAllocPortable, __func__,
               "the size is not 0, and the memory is portable"))
    return cudaErrorInvalidValue;
  return allocate(memory, bytes, pinned);
}

cudaError_t cudaFreeHost(void *memory) {
  bool failing = fails(__func__);
  cudaError_t status = release(memory, /*isPinned=*/true, __func__);
  return failing ? cudaErrorUnknown : status;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  if (fails(__func__))
    return cudaErrorUnknown;
  int device = deviceOf(stream);
  // Pageable memory would make the call wait ("API synchronization behavior").
  if (!require(kind == cudaMemcpyDefault && device >= 0 &&
                   spans(to, bytes, device) && spans(from, bytes, device),
               __func__,
               "a live stream, and both ends within memory that it can access"))
    return cudaErrorInvalidValue;
  enqueue(stream);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int, size_t bytes, cudaStream_t stream) {
  if (fails(__func__))
    return cudaErrorUnknown;
  int device = deviceOf(stream);
  if (!require(device >= 0 && spans(to, bytes, device), __func__,
               "a live stream, and memory that it can access"))
    return cudaErrorInvalidValue;
  enqueue(stream);
  return cudaSuccess;
}

} // extern "C"
