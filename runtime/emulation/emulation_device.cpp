// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Devices, memory, copies and profiler ranges of the emulation. Every call
// first reports an earlier failure of the device, and is refused during a
// capture if CUDA would refuse it.
#include "runtime/emulation/emulation.h"
#include "runtime/emulation/objects.h"
#include "runtime/emulation/status.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fsdpc::runtime {

CudaApi &cudaApi() { return emulation::theEmulation(); }

namespace emulation {

// CUDA's current device is of the thread too.
static thread_local int selected = 0; // device of the calling thread
static thread_local int ranges = 0;   // open ranges of the calling thread

Emulation &theEmulation() {
  // Never destroyed: streams may still run when the process ends.
  static auto *emulation = new Emulation(readSettings());
  return *emulation;
}

Emulation::Emulation(const Settings &settings)
    : settings(settings), faults(settings.fault),
      memory(settings.devices, settings.memory, settings.pinned) {
  for (int device = 0; device < settings.devices; ++device)
    devices.push_back(std::make_unique<Device>(device));
}

// Counts handles, not objects: what enqueued work still holds does not count.
LiveObjects Emulation::alive() {
  LiveObjects alive;
  for (auto &device : devices)
    alive.deviceBytes += memory.usedBytes(device->number);
  alive.pinnedBytes = memory.usedBytes(pinnedMemory);
  std::lock_guard<std::mutex> lock(mutex);
  alive.streams = streams.size();
  alive.events = events.size();
  alive.graphs = graphs.size();
  alive.plans = gemms.size() + convolutions.size() + attentions.size();
  alive.communicators = communicators.size();
  return alive;
}

std::string Emulation::errorText(CudaStatus status) {
  return status::textOf(status);
}

// Answered without a device, so an earlier failure of one does not show here.
CudaStatus Emulation::deviceCount(int &count) {
  count = 0;
  if (faults.is(Fault::driver))
    return status::insufficientDriver;
  // One device is too few for several processes (chooseDevice).
  count = faults.is(Fault::fewDevices) ? std::min(settings.devices, 1)
                                       : settings.devices;
  return cudaOk;
}

CudaStatus Emulation::selectDevice(int device) {
  // A fault may hide devices, so the count decides and not the settings.
  int count;
  if (CudaStatus status = deviceCount(count))
    return status;
  if (device < 0 || device >= count)
    return status::refuse(status::invalidDevice,
                          concat("device ", device, " of ", count));
  selected = device;
  return cudaOk;
}

// A thread that has selected nothing is on device 0, as in CUDA.
Device &Emulation::currentDevice() { return *devices[selected]; }

// All devices are of one kind, as their name says.
CudaStatus Emulation::deviceInfo(CudaDeviceInfo &info) {
  info.name = "emulated device";
  // The numbers of the H100, for which the programs of the tests are compiled.
  info.major = 9;
  info.minor = 0;
  info.multiprocessors = 4;
  info.id = concat(info.name, " ", selected);
  info.totalBytes = settings.memory;
  info.freeBytes = settings.memory - memory.usedBytes(selected);
  // Nothing is taken here, but a reserve is kept as on a GPU.
  info.laterBytes = info.communicatorBytes = 1 << 20;
  return currentDevice().state();
}

CudaStatus Emulation::allocate(void *&address, size_t bytes, int owner,
                               const char *call) {
  address = nullptr;
  if (CudaStatus status = currentDevice().state())
    return status;
  if (CudaStatus status = refuseInCapture(call))
    return status;
  if (faults.is(Fault::memory))
    return status::refuse(status::memoryAllocation, concat(bytes, " bytes"));
  return memory.allocate(address, bytes, owner);
}

CudaStatus Emulation::allocateDevice(void *&address, size_t bytes) {
  return allocate(address, bytes, selected, "allocateDevice");
}

CudaStatus Emulation::allocatePinned(void *&address, size_t bytes) {
  return allocate(address, bytes, pinnedMemory, "allocatePinned");
}

// Frees even if the device has failed, and reports the failure too.
CudaStatus Emulation::freeDevice(void *address) {
  if (CudaStatus status = refuseInCapture("freeDevice"))
    return status;
  CudaStatus status = memory.release(address, /*pinned=*/false);
  return status ? status : currentDevice().state();
}

CudaStatus Emulation::freePinned(void *address) {
  if (CudaStatus status = refuseInCapture("freePinned"))
    return status;
  CudaStatus status = memory.release(address, /*pinned=*/true);
  return status ? status : currentDevice().state();
}

// memmove on the stream's thread, which may access device memory.
CudaStatus Emulation::copy(void *to, const void *from, size_t bytes,
                           CudaStream stream) {
  // Both ends may lie on any device, so this check differs from checkBuffer.
  bool pageable = false;
  for (const void *end : {static_cast<const void *>(to), from}) {
    Place::Kind kind = memory.find(end, bytes).kind;
    if (kind == Place::outside)
      return status::refuse(status::invalidValue,
                            concat("a copy of ", bytes, " bytes ",
                                   end == from ? "from" : "to",
                                   " exceeds an allocation"));
    pageable |= kind == Place::host;
  }
  CudaStatus status = submit(stream, /*bound=*/false,
                             [=](Chance &) { memmove(to, from, bytes); });
  // CUDA may handle pageable memory in the same way, but then the call waits.
  return status || !pageable ? status : synchronizeStream(stream);
}

CudaStatus Emulation::fill(void *to, int byte, size_t bytes,
                           CudaStream stream) {
  if (CudaStatus status = checkBuffer(to, bytes, "a fill"))
    return status;
  return submit(stream, /*bound=*/false,
                [=](Chance &) { memset(to, byte, bytes); });
}

// Pinned memory is accessible from every device.
CudaStatus Emulation::checkBuffer(const void *address, size_t bytes,
                                  const char *what) {
  Place place = memory.find(address, bytes);
  if (place.kind == Place::pinned ||
      (place.kind == Place::device && place.owner == selected))
    return cudaOk;
  const char *where = place.kind == Place::device ? "belongs to another device"
                      : place.kind == Place::host ? "is not device memory"
                                                  : "exceeds its allocation";
  return status::refuse(status::invalidValue, concat(std::string(what), " of ",
                                                     bytes, " bytes ", where));
}

void Emulation::beginRange(const char *) { ++ranges; }

void Emulation::endRange() {
  // An unbalanced range is a bug of the caller that no status could report.
  if (--ranges >= 0)
    return;
  fprintf(stderr, "error: emulated: endRange without beginRange\n");
  abort();
}

} // namespace emulation
} // namespace fsdpc::runtime
