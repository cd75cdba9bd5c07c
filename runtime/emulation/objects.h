// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The objects behind the handles of streams and events.
#pragma once

#include "runtime/emulation/emulation.h"

#include <optional>

namespace fsdpc::runtime::emulation {

/// `capture` and `lane` are guarded by Emulation::mutex; `stream` is safe by
/// itself.
struct Emulation::LiveStream {
  LiveStream(Device &device, uint64_t seed) : stream(device, seed) {}
  std::shared_ptr<Capture> capture; ///< that it takes part in, or null
  size_t lane = 0;                  ///< within the capture
  Stream stream;
};

/// The last record of an event: a marker, or a point of a capture.
/// At most one of `marker` and `capture` is set; neither if the event was never
/// recorded.
struct Emulation::LiveEvent {
  std::shared_ptr<Marker> marker;
  std::shared_ptr<Capture> capture;
  Clock clock;
};

} // namespace fsdpc::runtime::emulation
