// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The happens-before relation over the streams of an rt function, by vector
// clocks. `elide-events` uses it to find waits that add nothing, and
// `verify-rt` to prove that there are no races.
#pragma once

#include "compiler/dialects/rt/Streams.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <array>

namespace fsdpc::passes {

/// Follows one function from its first op on. Ops are passed to `advance` in
/// program order, which is the order in which the host enqueues them.
///
/// A queue runs its commands in order. A stream is one queue, except on GPUs,
/// where copies to and from the host (rt::CopiesApart) have a second one,
/// beside the stream's other commands. Events of the stream are recorded on
/// both of its queues, and both wait.
class StreamClocks {
public:
  static constexpr int kQueues = 2 * rt::kStreams;
  /// clock[q] is the number of ops of queue q that precede.
  using Clock = std::array<int64_t, kQueues>;

  explicit StreamClocks(mlir::func::FuncOp function);

  /// Advances by the next op of the function. Returns false if the op waits for
  /// an event that was not recorded. Ops that run on no stream change nothing.
  bool advance(mlir::Operation *op);
  /// Returns true if everything that the wait would order is ordered already.
  /// False for an event that was not recorded.
  bool isRedundant(rt::EventWaitOp op) const;

  /// Returns the queue that runs the op, or nullopt if it runs on no stream.
  std::optional<int> queueOf(mlir::Operation *op) const;
  /// Returns what precedes the last op of `queue`, including that op.
  const Clock &clock(int queue) const { return clocks[queue]; }
  /// As a diagnostic names it: "stream 'gather'", "copies of stream 'gather'".
  static std::string describe(int queue);

private:
  /// The queues of a stream: its own, and that of its copies if they have one.
  llvm::SmallVector<int, 2> queuesOf(rt::Stream stream) const;

  bool copiesApart;
  /// `clocks` is what each queue has seen so far; `recorded` is what a stream
  /// had seen when it recorded an event, by the event's number.
  std::array<Clock, kQueues> clocks{};
  llvm::DenseMap<int, Clock> recorded;
};

} // namespace fsdpc::passes
