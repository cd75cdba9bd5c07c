// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A section is what one call of an entry function enqueues: a microbatch or an
// update. The streams fork at its beginning and join at its end. A section that
// comes again is captured as a CUDA graph and replayed from then on, which
// saves the host's time per call. This works because everything that changes
// from step to step lies in memory, never in arguments.
#pragma once

#include "runtime/core/device.h"
#include "runtime/cuda/context.h"

#include <functional>
#include <map>
#include <tuple>

namespace fsdpc::runtime {

class Sections {
public:
  /// `events` is the number of events that record() and wait() take, and
  /// `forked` the streams beside COMPUTE. The graphs must be destroyed before
  /// the collectives whose calls they hold.
  Sections(CudaContext &context, int events, std::vector<int> forked);
  ~Sections();
  Sections(const Sections &) = delete;

  /// Calls `enqueue`, or replays the graph of an earlier call with the same
  /// section.
  void run(const Section &section, bool graphs,
           const std::function<void()> &enqueue);
  /// The program's events, and others of work in sections, which follow them.
  /// Sections run one after the other, so a wait for an
  /// event of an earlier section has nothing to wait for.
  void record(int stream, int event);
  void wait(int stream, int event);

private:
  struct ProgramEvent {
    std::unique_ptr<OwnedEvent> event;
    uint64_t section = ~uint64_t(0); ///< in which it was recorded last
    int stream = 0;
  };
  struct Kept {
    bool ran = false; ///< once without a graph
    CudaGraph graph = nullptr;
  };

  void enqueueJoined(const std::function<void()> &enqueue);

  CudaContext &context;
  /// The fork: recorded on the compute stream when a section begins.
  OwnedEvent parted;
  /// The join: recorded on each forked stream when a section ends.
  std::vector<int> forked;
  std::vector<std::unique_ptr<OwnedEvent>> met;
  std::vector<ProgramEvent> events;
  /// The key is Section::entry, slot and first.
  std::map<std::tuple<Section::Entry, int, bool>, Kept> kept;
  uint64_t number = 0; ///< of the current section
};

} // namespace fsdpc::runtime
