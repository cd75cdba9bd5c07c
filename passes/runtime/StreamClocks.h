// The happens-before relation over the streams of an rt function, by vector
// clocks. `elide-events` uses it to find waits that add nothing, and
// `verify-rt` to prove that there are no races.
#pragma once

#include "compiler/dialects/rt/Streams.h"

#include <array>

namespace fsdpc::passes {

// Follows one function from its first op on. Ops are passed to `advance` in
// program order, which is the order in which the host enqueues them.
class StreamClocks {
public:
  // clock[s] is the number of ops of stream s that precede.
  using Clock = std::array<int64_t, rt::kStreams>;

  // Advances by the next op of the function. Returns false if the op waits for
  // an event that was not recorded. Ops that run on no stream change nothing.
  bool advance(mlir::Operation *op);
  // Returns true if everything that the wait would order is ordered already.
  // False for an event that was not recorded.
  bool isRedundant(rt::EventWaitOp op) const;
  // Returns what precedes the last op of `stream`, including that op.
  const Clock &clock(rt::Stream stream) const {
    return clocks[static_cast<int>(stream)];
  }

private:
  // `clocks` is what each stream has seen so far; `recorded` is what a stream
  // had seen when it recorded an event, by the event's number.
  std::array<Clock, rt::kStreams> clocks{};
  llvm::DenseMap<int, Clock> recorded;
};

} // namespace fsdpc::passes
