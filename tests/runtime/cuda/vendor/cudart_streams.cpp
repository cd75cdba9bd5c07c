// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A stand-in of cudart: streams, events, kernels and graphs. Work is counted
// and never runs. A capture knows which work of which stream is ordered before
// which, by vector clocks, so that it can tell a stream that did not join.
//
// Rules: CUDA Runtime API 13, "Stream Management", "Event Management",
// "Execution Control", "Library Management" and "Graph Management"; CUDA
// Programming Guide, "Creating a Graph Using Stream Capture".
#include "runtime/emulation/handles.h"
#include "tests/runtime/cuda/vendor/cudart_state.h"

#include <cstdint>
#include <cuda_runtime_api.h>
#include <map>
#include <mutex>
#include <set>

namespace fsdpc::vendor {

size_t allocations();

namespace {

using runtime::emulation::Handles;

struct Stream;
// The last call of each stream that is known to come before.
using Clock = std::map<const Stream *, int>;

// The work that is captured, and the graph that it becomes.
struct Graph {
  const Stream *origin = nullptr;
  int device = 0;
  std::set<const void *> owners;
};
struct Stream {
  int device = 0;
  std::shared_ptr<Graph> capture;
  Clock clock;
};
struct Event {
  int device = 0;
  bool recorded = false, asked = false;
  std::shared_ptr<Graph> capture; // in which it was recorded
  Clock clock;
};
struct Executable {
  std::shared_ptr<Graph> graph;
};
struct Library {};

std::mutex mutex;
Handles<Stream> streams;
Handles<Event> events;
Handles<Graph> graphs;
Handles<Executable> executables;
Handles<Library> libraries;
std::set<const void *> kernels;
char loadedKernel; // its address is the handle of every kernel of a library

void mergeInto(Clock &clock, const Clock &other) {
  for (auto &[stream, call] : other)
    clock[stream] = std::max(clock[stream], call);
}

void advance(Stream &stream, const void *owner) {
  if (!stream.capture)
    return;
  ++stream.clock[&stream];
  if (owner)
    stream.capture->owners.insert(owner);
}

std::string counted(size_t count, const char *what) {
  return count ? std::to_string(count) + " " + what + "; " : "";
}

} // namespace

int deviceOf(cudaStream_t handle) {
  std::lock_guard<std::mutex> lock(mutex);
  auto stream = streams.find(handle);
  return stream ? stream->device : -1;
}

void enqueue(cudaStream_t handle, const void *owner) {
  std::lock_guard<std::mutex> lock(mutex);
  if (auto stream = streams.find(handle))
    advance(*stream, owner);
}

bool isHeld(const void *owner) {
  std::lock_guard<std::mutex> lock(mutex);
  bool held = false;
  auto look = [&](const std::shared_ptr<Graph> &graph) {
    held |= graph && graph->owners.count(owner);
  };
  executables.each([&](Executable &executable) { look(executable.graph); });
  streams.each([&](Stream &stream) { look(stream.capture); });
  return held;
}

void addKernel(const void *function) {
  std::lock_guard<std::mutex> lock(mutex);
  kernels.insert(function);
}

std::string aliveInCudart() {
  std::lock_guard<std::mutex> lock(mutex);
  return counted(allocations(), "allocations") +
         counted(streams.size(), "streams") + counted(events.size(), "events") +
         counted(graphs.size(), "graphs") +
         counted(executables.size(), "executable graphs");
}

} // namespace fsdpc::vendor

using namespace fsdpc::vendor;

extern "C" {

// ---- streams ----

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  if (fails(__func__))
    return cudaErrorUnknown;
  *least = 0;
  *greatest = -5; // a lower number is a higher priority
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *handle, unsigned flags,
                                         int priority) {
  if (fails(__func__))
    return cudaErrorUnknown;
  if (!require(flags == cudaStreamNonBlocking && priority <= 0 &&
                   priority >= -5,
               __func__, "no order with the default stream, priority in range"))
    return cudaErrorInvalidValue;
  auto stream = std::make_shared<Stream>();
  stream->device = currentDevice();
  std::lock_guard<std::mutex> lock(mutex);
  *handle = static_cast<cudaStream_t>(streams.add(stream));
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  bool failing = fails(__func__);
  std::lock_guard<std::mutex> lock(mutex);
  auto stream = streams.remove(handle);
  if (!require(stream && !stream->capture, __func__,
               "a live stream that is not captured"))
    return cudaErrorInvalidResourceHandle;
  return failing ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  if (fails(__func__))
    return cudaErrorUnknown;
  std::lock_guard<std::mutex> lock(mutex);
  auto stream = streams.find(handle);
  if (!require(stream && !stream->capture, __func__,
               "a live stream that is not captured"))
    return cudaErrorStreamCaptureUnsupported;
  return cudaSuccess;
}

// ---- events ----

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *handle, unsigned flags) {
  if (fails(__func__))
    return cudaErrorUnknown;
  if (!require(flags == cudaEventDisableTiming, __func__,
               "no timing, which would slow down the record"))
    return cudaErrorInvalidValue;
  auto event = std::make_shared<Event>();
  event->device = currentDevice();
  std::lock_guard<std::mutex> lock(mutex);
  *handle = static_cast<cudaEvent_t>(events.add(event));
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  bool failing = fails(__func__);
  std::lock_guard<std::mutex> lock(mutex);
  if (!require(bool(events.remove(handle)), __func__, "a live event"))
    return cudaErrorInvalidResourceHandle;
  return failing ? cudaErrorUnknown : cudaSuccess;
}

// "Event and stream must be on the same CUDA context".
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t on) {
  if (fails(__func__))
    return cudaErrorUnknown;
  std::lock_guard<std::mutex> lock(mutex);
  auto event = events.find(handle);
  auto stream = streams.find(on);
  if (!require(event && stream && event->device == stream->device, __func__,
               "a live event and a live stream of one device"))
    return cudaErrorInvalidResourceHandle;
  advance(*stream, nullptr);
  event->recorded = true;
  event->asked = false;
  event->capture = stream->capture;
  event->clock = stream->clock;
  return cudaSuccess;
}

// A stream that waits for an event of a capture joins the capture; a captured
// stream must not wait for work outside it.
cudaError_t cudaStreamWaitEvent(cudaStream_t on, cudaEvent_t handle,
                                unsigned flags) {
  if (fails(__func__))
    return cudaErrorUnknown;
  std::lock_guard<std::mutex> lock(mutex);
  auto event = events.find(handle);
  auto stream = streams.find(on);
  if (!require(event && stream && flags == 0, __func__,
               "a live event, a live stream, no flags"))
    return cudaErrorInvalidResourceHandle;
  if (!require(!stream->capture || stream->capture == event->capture, __func__,
               "a captured stream waits for nothing outside the capture"))
    return cudaErrorStreamCaptureIsolation;
  if (event->capture) {
    stream->capture = event->capture;
    advance(*stream, nullptr);
    mergeInto(stream->clock, event->clock);
  }
  return cudaSuccess;
}

// The first query after a record says "not ready".
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  if (fails(__func__))
    return cudaErrorUnknown;
  std::lock_guard<std::mutex> lock(mutex);
  auto event = events.find(handle);
  if (!require(event && !event->capture, __func__,
               "a live event that was not recorded in a capture"))
    return cudaErrorCapturedEvent;
  bool ready = !event->recorded || event->asked;
  event->asked = true;
  return ready ? cudaSuccess : cudaErrorNotReady;
}

// ---- kernels ----

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                cudaJitOption *, void **, unsigned options,
                                cudaLibraryOption *, void **,
                                unsigned libraryOptions) {
  if (fails(__func__))
    return cudaErrorInvalidKernelImage;
  if (!require(code && options == 0 && libraryOptions == 0, __func__,
               "code, and no options"))
    return cudaErrorInvalidValue;
  std::lock_guard<std::mutex> lock(mutex);
  *library =
      static_cast<cudaLibrary_t>(libraries.add(std::make_shared<Library>()));
  return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library,
                                 const char *name) {
  if (fails(__func__))
    return cudaErrorSymbolNotFound;
  std::lock_guard<std::mutex> lock(mutex);
  if (!require(name && libraries.find(library), __func__,
               "a name and a loaded library"))
    return cudaErrorInvalidResourceHandle;
  kernels.insert(&loadedKernel);
  *kernel = reinterpret_cast<cudaKernel_t>(&loadedKernel);
  return cudaSuccess;
}

// "The device of the stream must be the current device" (Programming Guide,
// "Stream and Event Behavior"); limits from "Features and Technical
// Specifications".
cudaError_t cudaLaunchKernel(const void *function, dim3 blocks, dim3 threads,
                             void **arguments, size_t shared, cudaStream_t on) {
  if (fails(__func__))
    return cudaErrorLaunchFailure;
  std::lock_guard<std::mutex> lock(mutex);
  auto stream = streams.find(on);
  if (!require(stream && stream->device == currentDevice(), __func__,
               "a live stream of the thread's device"))
    return cudaErrorInvalidResourceHandle;
  bool fits = blocks.x > 0 && blocks.x <= INT32_MAX && threads.x > 0 &&
              threads.x <= 1024 && blocks.y == 1 && blocks.z == 1 &&
              threads.y == 1 && threads.z == 1 && shared == 0;
  if (!require(kernels.count(function) && arguments && arguments[0] && fits,
               __func__, "a kernel, its arguments, and a grid within limits"))
    return cudaErrorInvalidConfiguration;
  advance(*stream, nullptr);
  return cudaSuccess;
}

// ---- graphs ----

cudaError_t cudaStreamBeginCapture(cudaStream_t handle,
                                   cudaStreamCaptureMode mode) {
  if (fails(__func__))
    return cudaErrorUnknown;
  std::lock_guard<std::mutex> lock(mutex);
  auto stream = streams.find(handle);
  // In the other modes, an allocation of any thread would break the capture.
  if (!require(stream && !stream->capture &&
                   mode == cudaStreamCaptureModeRelaxed,
               __func__, "a live stream that is not captured, relaxed"))
    return cudaErrorIllegalState;
  stream->capture = std::make_shared<Graph>();
  stream->capture->origin = stream.get();
  stream->capture->device = stream->device;
  return cudaSuccess;
}

// The capture ends on the stream where it began, which all others have joined.
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *made) {
  bool failing = fails(__func__);
  *made = nullptr;
  std::lock_guard<std::mutex> lock(mutex);
  auto origin = streams.find(handle);
  if (!require(origin && origin->capture &&
                   origin->capture->origin == origin.get(),
               __func__, "the stream on which the capture began"))
    return cudaErrorStreamCaptureUnmatched;
  auto graph = origin->capture;
  // Streams come in the order of their addresses, so the origin's clock is read
  // for all of them before it is cleared.
  bool joined = true;
  streams.each([&](Stream &stream) {
    if (stream.capture == graph)
      joined &= origin->clock[&stream] >= stream.clock[&stream];
  });
  streams.each([&](Stream &stream) {
    if (stream.capture != graph)
      return;
    stream.capture = nullptr;
    stream.clock.clear();
  });
  if (failing)
    return cudaErrorUnknown;
  // A rank that met an error in the middle ends its capture as it is.
  require(joined || hasFailed(), __func__,
          "every stream of the capture has joined");
  if (!joined)
    return cudaErrorStreamCaptureUnjoined;
  *made = static_cast<cudaGraph_t>(graphs.add(graph));
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t handle,
                                 unsigned long long flags) {
  if (fails(__func__))
    return cudaErrorUnknown;
  std::lock_guard<std::mutex> lock(mutex);
  auto graph = graphs.find(handle);
  if (!require(graph && flags == cudaGraphInstantiateFlagUseNodePriority,
               __func__, "a live graph whose nodes keep priorities"))
    return cudaErrorInvalidValue;
  auto executable = std::make_shared<Executable>();
  executable->graph = graph;
  *made = static_cast<cudaGraphExec_t>(executables.add(executable));
  return cudaSuccess;
}

static cudaError_t checkLaunch(cudaGraphExec_t handle, cudaStream_t on,
                               const char *function) {
  std::lock_guard<std::mutex> lock(mutex);
  auto executable = executables.find(handle);
  auto stream = streams.find(on);
  if (!require(executable && stream && !stream->capture &&
                   stream->device == executable->graph->device,
               function, "a live graph, and a stream of its device"))
    return cudaErrorInvalidValue;
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t handle, cudaStream_t on) {
  return fails(__func__) ? cudaErrorUnknown : checkLaunch(handle, on, __func__);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t on) {
  return fails(__func__) ? cudaErrorUnknown : checkLaunch(handle, on, __func__);
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  bool failing = fails(__func__);
  std::lock_guard<std::mutex> lock(mutex);
  if (!require(bool(graphs.remove(handle)), __func__, "a live graph"))
    return cudaErrorInvalidValue;
  return failing ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  bool failing = fails(__func__);
  std::lock_guard<std::mutex> lock(mutex);
  if (!require(bool(executables.remove(handle)), __func__,
               "a live executable graph"))
    return cudaErrorInvalidValue;
  return failing ? cudaErrorUnknown : cudaSuccess;
}

} // extern "C"
