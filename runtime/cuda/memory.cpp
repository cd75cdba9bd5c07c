// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One allocation each of device memory and pinned memory. Free memory is asked
// for first, so that the message can say how much is missing. It must leave
// room for what the driver and NCCL allocate later, or a program that starts
// could run out of memory in its second step.
#include "runtime/cuda/memory.h"
#include "runtime/abi/cuda_scratch.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/support/concat.h"

#include <cstring>

namespace fsdpc::runtime {

// Aligns as runtime/abi/cuda_scratch.h counts, so a plan that fits on paper
// fits here.
void *CudaMemory::Arena::take(int64_t bytes) {
  int64_t begin = alignedPlace(used, bytes);
  if (begin + bytes > size)
    return nullptr;
  used = begin + bytes;
  return static_cast<char *>(memory) + begin;
}

// Blocks need no release of their own. The device has waited for all streams
// before it destroys this.
CudaMemory::~CudaMemory() {
  if (device.memory && reason.empty())
    context.api.freeShared(device.memory);
  else if (device.memory)
    context.api.freeDevice(device.memory);
  if (pinned.memory)
    context.api.freePinned(pinned.memory);
}

CudaStatus CudaMemory::allocate(int64_t bytes, bool shared) {
  if (shared) {
    CudaStatus status =
        context.api.allocateShared(device.memory, size_t(bytes));
    reason = status ? "it cannot allocate the memory: " +
                          context.api.errorText(status)
                    : "";
    if (!status)
      return cudaOk;
  }
  return context.api.allocateDevice(device.memory, size_t(bytes));
}

// The check of free memory is not a guarantee, since other processes share the
// GPU, so the allocation may still fail.
Status CudaMemory::reserve(int64_t deviceBytes, int64_t pinnedBytes,
                           int64_t offloadedBytes, bool shared) {
  if (shared)
    deviceBytes = (deviceBytes + int64_t(sharedPageBytes) - 1) /
                  int64_t(sharedPageBytes) * int64_t(sharedPageBytes);
  CudaDeviceInfo info;
  CudaStatus status = context.api.deviceInfo(info);
  // Ranks that share a process have no communicators. Groups that gather have
  // one besides those of all ranks, and groups that reduce two more.
  size_t communicators = context.alone || context.job.sharesProcess
                             ? 0
                             : 2 + usesGroups(context.manifest) +
                                   2 * reducesInGroups(context.manifest);
  size_t later = info.laterBytes + communicators * info.communicatorBytes;
  auto tooLittle = [&](const std::string &why) {
    return runError(concat(
        "the program requires ", deviceBytes,
        " bytes of GPU memory and a reserve of ", later, " for graphs, kernels",
        communicators ? " and NCCL" : "", ", but ", info.freeBytes, " of ",
        info.totalBytes, " are free on '", info.name, "'", why,
        "; use more ranks, or compile with a lower --memory-limit"));
  };
  if (status == cudaOk && info.freeBytes < size_t(deviceBytes) + later)
    return tooLittle("");
  if (status == cudaOk)
    status = allocate(deviceBytes, shared);
  if (status != cudaOk)
    return tooLittle(": " + context.api.errorText(status));
  // The bounce buffer of upload() and download() lies in the same allocation.
  pinnedBytes += bounceBytes;
  status = context.api.allocatePinned(pinned.memory, size_t(pinnedBytes));
  if (status != cudaOk)
    return runError(concat(
        "cannot pin ", pinnedBytes, " bytes of host memory",
        offloadedBytes
            ? concat(", ", offloadedBytes, " of them for what is offloaded")
            : "",
        ": ", context.api.errorText(status),
        offloadedBytes ? "; use more ranks, or offload less" : ""));
  device.size = deviceBytes;
  pinned.size = pinnedBytes;
  bounce = takePinned(bounceBytes);
  return {};
}

void *CudaMemory::takeDevice(int64_t bytes) {
  constexpr uint64_t prime = 1099511628211u; // of FNV-1a
  placesHash = (placesHash ^ uint64_t(bytes)) * prime;
  return device.take(bytes);
}
void *CudaMemory::takePinned(int64_t bytes) { return pinned.take(bytes); }

// In pieces through pinned memory, so that no host buffer of the full size has
// to be pinned.
void CudaMemory::upload(void *to, const void *from, size_t bytes) {
  CudaStream stream = context.streams[copyStream];
  for (size_t done = 0; done < bytes; done += bounceBytes) {
    size_t piece = std::min<size_t>(bounceBytes, bytes - done);
    // The bounce buffer is reused, so each piece waits for its copy.
    std::memcpy(bounce, static_cast<const char *>(from) + done, piece);
    context.copy(static_cast<char *>(to) + done, bounce, piece, copyStream);
    context.check(context.api.synchronizeStream(stream));
  }
}

void CudaMemory::download(void *to, const void *from, size_t bytes) {
  CudaStream stream = context.streams[copyStream];
  for (size_t done = 0; done < bytes; done += bounceBytes) {
    size_t piece = std::min<size_t>(bounceBytes, bytes - done);
    context.copy(bounce, static_cast<const char *>(from) + done, piece,
                 copyStream);
    context.check(context.api.synchronizeStream(stream));
    std::memcpy(static_cast<char *>(to) + done, bounce, piece);
  }
}

void CudaMemory::zero(void *memory, size_t bytes) {
  if (bytes == 0)
    return;
  context.check(
      context.api.fill(memory, 0, bytes, context.streams[copyStream]));
  context.check(context.api.synchronizeStream(context.streams[copyStream]));
}

} // namespace fsdpc::runtime
