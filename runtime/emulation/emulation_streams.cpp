// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Streams, events and graphs of the emulation, with the rules of CUDA's stream
// capture in thread-local mode. A call that breaks a rule invalidates the
// capture, and the error shows at its end, as on a GPU.
#include "runtime/emulation/emulation.h"
#include "runtime/emulation/objects.h"
#include "runtime/emulation/status.h"

#include <algorithm>
#include <utility>

namespace fsdpc::runtime::emulation {

using Lock = std::lock_guard<std::mutex>;

CudaStatus Emulation::spoil(Capture &capture, CudaStatus status,
                            const std::string &detail) {
  capture.invalid = true;
  return status::refuse(status, detail);
}

CudaStatus Emulation::refuseInCapture(const char *call) {
  Lock lock(mutex);
  // Unsafe calls concern the thread that captures, whatever stream they name
  // (mode thread-local).
  for (const std::shared_ptr<Capture> &capture : captures)
    if (capture->thread == std::this_thread::get_id())
      return spoil(*capture, status::captureUnsupported, call);
  return cudaOk;
}

// A capture that a broken rule has invalidated takes no more work; the caller
// learns it at once and again at the end.
CudaStatus Emulation::submitLocked(LiveStream &live, Work work) {
  if (!live.capture) {
    live.stream.enqueue(std::move(work));
    return cudaOk;
  }
  if (live.capture->invalid)
    return status::captureInvalidated;
  live.capture->add(live.lane, std::move(work));
  return cudaOk;
}

CudaStatus Emulation::submit(CudaStream stream, bool bound, Work work) {
  Lock lock(mutex);
  std::shared_ptr<LiveStream> live = streams.find(stream);
  if (!live)
    return status::refuse(status::invalidHandle, "a stream");
  Device &device = live->stream.device;
  // Copies and fills may use a stream of another device, kernels may not.
  if (bound && &device != &currentDevice())
    return status::refuse(status::invalidHandle,
                          "the stream belongs to another device");
  if (CudaStatus status = device.state())
    return status;
  return submitLocked(*live, std::move(work));
}

// Priorities have no effect here.
CudaStatus Emulation::createStream(CudaStream &stream, bool) {
  Device &device = currentDevice();
  if (CudaStatus status = device.state())
    return status;
  // Before the lock: it starts a thread.
  auto live = std::make_shared<LiveStream>(device, settings.seed);
  Lock lock(mutex);
  stream = streams.add(std::move(live));
  return cudaOk;
}

CudaStatus Emulation::destroyStream(CudaStream stream) {
  // Destroyed after the lock is released, since it first runs its work.
  std::shared_ptr<LiveStream> live;
  Lock lock(mutex);
  live = streams.find(stream);
  if (!live)
    return status::refuse(status::invalidHandle, "a stream");
  if (live->capture)
    return spoil(*live->capture, status::captureUnsupported, "destroyStream");
  streams.remove(stream);
  return cudaOk;
}

CudaStatus Emulation::synchronizeStream(CudaStream stream) {
  if (CudaStatus status = refuseInCapture("synchronizeStream"))
    return status;
  std::shared_ptr<LiveStream> live;
  {
    Lock lock(mutex);
    live = streams.find(stream);
    if (!live)
      return status::refuse(status::invalidHandle, "a stream");
    if (live->capture)
      return spoil(*live->capture, status::captureUnsupported,
                   "synchronizeStream");
  }
  // Without the lock: the work may itself wait for calls of other threads.
  live->stream.synchronize();
  return live->stream.device.state();
}

CudaStatus Emulation::createEvent(CudaEvent &event) {
  Lock lock(mutex);
  event = events.add(std::make_shared<LiveEvent>());
  return cudaOk;
}

// Work that waits for the event holds its marker, so the event itself may go.
CudaStatus Emulation::destroyEvent(CudaEvent event) {
  Lock lock(mutex);
  return events.remove(event)
             ? cudaOk
             : status::refuse(status::invalidHandle, "an event");
}

// Marks and waits run even if the device has failed, so that no stream waits
// forever for a mark that was skipped.
CudaStatus Emulation::recordEvent(CudaEvent event, CudaStream stream) {
  Lock lock(mutex);
  std::shared_ptr<LiveEvent> point = events.find(event);
  std::shared_ptr<LiveStream> live = streams.find(stream);
  if (!point || !live)
    return status::refuse(status::invalidHandle, "an event or a stream");
  if (CudaStatus status = live->stream.device.state())
    return status;
  if (!live->capture) {
    // A new marker per record: streams that wait for an earlier record keep
    // theirs.
    auto marker = std::make_shared<Marker>();
    live->stream.enqueueAlways([marker](Chance &) { marker->reach(); });
    *point = {marker, nullptr, {}};
    return cudaOk;
  }
  if (live->capture->invalid)
    return status::captureInvalidated;
  // In a capture an event is a point in the partial order. Nothing runs yet, so
  // there is no marker.
  *point = {nullptr, live->capture, live->capture->clockOf(live->lane)};
  return cudaOk;
}

CudaStatus Emulation::waitEvent(CudaStream stream, CudaEvent event) {
  Lock lock(mutex);
  std::shared_ptr<LiveEvent> point = events.find(event);
  std::shared_ptr<LiveStream> live = streams.find(stream);
  if (!point || !live)
    return status::refuse(status::invalidHandle, "an event or a stream");
  if (CudaStatus status = live->stream.device.state())
    return status;
  // A replay could not repeat a wait for work that ran once.
  if (point->marker && live->capture)
    return spoil(
        *live->capture, status::captureIsolation,
        "a capturing stream waits for an event recorded outside the capture");
  if (point->marker)
    live->stream.enqueueAlways(
        [marker = point->marker](Chance &) { marker->await(); });
  if (!point->capture)
    return cudaOk; // or the event was never recorded
  // Such an event cannot be waited for outside its graph.
  if (std::find(captures.begin(), captures.end(), point->capture) ==
      captures.end())
    return status::refuse(status::capturedEvent,
                          "the capture of the event has ended");
  if (point->capture->invalid)
    return status::captureInvalidated;
  if (live->capture && live->capture != point->capture) {
    // The wait would merge two captures, which invalidates both.
    live->capture->invalid = true;
    return spoil(*point->capture, status::captureMerge, "");
  }
  if (!live->capture) {
    // A stream joins a capture by waiting for one of its events.
    live->capture = point->capture;
    live->lane = live->capture->addLane(point->clock);
  } else {
    live->capture->wait(live->lane, point->clock);
  }
  return cudaOk;
}

CudaStatus Emulation::queryEvent(CudaEvent event, bool &done) {
  done = false;
  if (CudaStatus status = refuseInCapture("queryEvent"))
    return status;
  Lock lock(mutex);
  std::shared_ptr<LiveEvent> point = events.find(event);
  if (!point)
    return status::refuse(status::invalidHandle, "an event");
  if (point->capture)
    return spoil(*point->capture, status::capturedEvent, "queryEvent");
  if (CudaStatus status = currentDevice().state())
    return status;
  done = !point->marker || point->marker->isReached();
  return cudaOk;
}

CudaStatus Emulation::beginCapture(CudaStream stream) {
  Lock lock(mutex);
  std::shared_ptr<LiveStream> live = streams.find(stream);
  if (!live)
    return status::refuse(status::invalidHandle, "a stream");
  if (CudaStatus status = live->stream.device.state())
    return status;
  if (live->capture)
    return spoil(*live->capture, status::illegalState,
                 "the stream is already capturing");
  // The stream's lane is number 0, by which endCapture knows it again.
  live->capture = std::make_shared<Capture>(live->stream.device);
  live->lane = live->capture->addLane({});
  captures.push_back(live->capture);
  return cudaOk;
}

void Emulation::leaveCapture(const Capture &capture) {
  streams.each([&](LiveStream &live) {
    if (live.capture.get() == &capture)
      live.capture = nullptr;
  });
  auto same = [&](const auto &other) { return other.get() == &capture; };
  captures.erase(std::find_if(captures.begin(), captures.end(), same));
}

// The capture is over also if it failed, so that the streams can be used again.
// It goes on only if the wrong stream or thread tries to end it.
CudaStatus Emulation::endCapture(CudaStream stream, CudaGraph &graph) {
  graph = nullptr;
  Lock lock(mutex);
  std::shared_ptr<LiveStream> live = streams.find(stream);
  if (!live)
    return status::refuse(status::invalidHandle, "a stream");
  std::shared_ptr<Capture> capture = live->capture;
  if (!capture)
    return status::refuse(status::illegalState, "the stream is not capturing");
  // Lane 0 is the stream on which the capture began.
  if (live->lane != 0)
    return spoil(*capture, status::captureUnmatched, "");
  if (capture->thread != std::this_thread::get_id())
    return spoil(*capture, status::captureWrongThread, "");
  // From here on the streams run their work again.
  leaveCapture(*capture);
  if (capture->invalid)
    return status::captureInvalidated;
  if (!capture->isJoined())
    return status::refuse(status::captureUnjoined, "");
  // A graph takes memory of the device when it is made.
  if (faults.strikes(Fault::lateMemory, settings.rank))
    return status::refuse(status::memoryAllocation, "for a graph");
  graph = graphs.add(capture->instantiate(settings.seed));
  return cudaOk;
}

// The whole graph is one piece of work of the stream, so later work of the
// stream follows all of its lanes.
CudaStatus Emulation::launchGraph(CudaGraph graph, CudaStream stream) {
  Lock lock(mutex);
  std::shared_ptr<Graph> captured = graphs.find(graph);
  std::shared_ptr<LiveStream> live = streams.find(stream);
  if (!captured || !live)
    return status::refuse(status::invalidHandle, "a graph or a stream");
  if (&captured->device != &live->stream.device)
    return status::refuse(status::invalidValue,
                          "the stream belongs to another device");
  if (live->capture)
    return spoil(*live->capture, status::captureUnsupported, "launchGraph");
  if (CudaStatus status = live->stream.device.state())
    return status;
  // The work holds the graph, so its handle may be destroyed meanwhile.
  return submitLocked(*live,
                      [captured](Chance &chance) { captured->run(chance); });
}

CudaStatus Emulation::destroyGraph(CudaGraph graph) {
  Lock lock(mutex);
  return graphs.remove(graph)
             ? cudaOk
             : status::refuse(status::invalidHandle, "a graph");
}

} // namespace fsdpc::runtime::emulation
