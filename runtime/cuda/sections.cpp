// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sections as streams and as graphs. A section is enqueued without a graph the
// first time, because the first call of a kernel or a library loads code, which
// must not happen during a capture.
#include "runtime/cuda/sections.h"

namespace fsdpc::runtime {

Sections::Sections(CudaContext &context, int count, std::vector<int> streams)
    : context(context), parted(context), forked(std::move(streams)),
      events(size_t(std::max(count, 0))) {
  for (size_t i = 0; i < forked.size(); ++i)
    met.push_back(std::make_unique<OwnedEvent>(context));
  for (ProgramEvent &event : events)
    event.event = std::make_unique<OwnedEvent>(context);
}

Sections::~Sections() {
  for (auto &[key, section] : kept)
    if (section.graph)
      context.api.destroyGraph(section.graph);
}

void Sections::record(int stream, int event) {
  ProgramEvent &recorded = events.at(size_t(event));
  recorded.event->record(stream);
  recorded.section = number;
  recorded.stream = stream;
}

void Sections::wait(int stream, int event) {
  ProgramEvent &recorded = events.at(size_t(event));
  // Work on one stream runs in order anyway.
  // An event of an earlier section must not be waited for: in a capture, CUDA
  // refuses a wait for an event recorded outside it.
  if (recorded.section == number && recorded.stream != stream)
    recorded.event->wait(stream);
}

// Forks the other streams from the compute stream and joins them at the end: a
// capture must begin and end on one stream, and sections must not overlap.
void Sections::enqueueJoined(const std::function<void()> &enqueue) {
  parted.record(FSDPC_STREAM_COMPUTE);
  for (int stream : forked)
    parted.wait(stream);
  enqueue();
  for (size_t i = 0; i < forked.size(); ++i) {
    met[i]->record(forked[i]);
    met[i]->wait(FSDPC_STREAM_COMPUTE);
  }
}

// A section is identified by its entry function, its input slot, and whether
// gradients are overwritten: these are the only differences between calls that
// change arguments.
void Sections::run(const Section &section, bool graphs,
                   const std::function<void()> &enqueue) {
  ++number;
  CudaApi &api = context.api;
  CudaStream compute = context.streams[FSDPC_STREAM_COMPUTE];
  Kept &own = kept[{section.entry(), section.slot, section.first}];
  // The first run loads everything that kernels and libraries need.
  if (!graphs || !own.ran) {
    own.ran = true;
    enqueueJoined(enqueue);
    return;
  }
  // The captured calls do not run, so the graph is launched right after.
  if (!own.graph) {
    context.check(api.beginCapture(compute));
    enqueueJoined(enqueue);
    CudaStatus made = api.endCapture(compute, own.graph);
    context.checkGraph(made);
  }
  context.replay();
  context.check(api.launchGraph(own.graph, compute));
}

} // namespace fsdpc::runtime
