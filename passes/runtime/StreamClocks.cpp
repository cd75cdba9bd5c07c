// The happens-before relation over the streams of an rt function, by vector
// clocks (Mattern, Virtual Time and Global States of Distributed Systems,
// 1989).
#include "passes/runtime/StreamClocks.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

// Compares the clock that the event carries with that of the waiting stream:
// the wait adds nothing if no component would grow. A wait for an event that
// was never recorded is kept: erasing it would hide the mistake.
bool StreamClocks::isRedundant(rt::EventWaitOp op) const {
  auto event = recorded.find(op.getEvent());
  const Clock &own = clock(op.getStream());
  if (event == recorded.end())
    return false;
  for (int stream = 0; stream < rt::kStreams; ++stream)
    if (event->second[stream] > own[stream])
      return false;
  return true;
}

bool StreamClocks::advance(Operation *op) {
  std::optional<rt::Stream> stream = rt::streamOf(op);
  if (!stream)
    return true;
  // A record copies the clock of its stream, a wait takes the maximum of both
  // clocks, and only a command that does work counts as a step.
  Clock &own = clocks[static_cast<int>(*stream)];
  if (auto record = dyn_cast<rt::EventRecordOp>(op)) {
    recorded[record.getEvent()] = own;
    return true;
  }
  if (auto wait = dyn_cast<rt::EventWaitOp>(op)) {
    auto event = recorded.find(wait.getEvent());
    if (event == recorded.end())
      return false;
    for (int other = 0; other < rt::kStreams; ++other)
      own[other] = std::max(own[other], event->second[other]);
    return true;
  }
  ++own[static_cast<int>(*stream)];
  return true;
}
