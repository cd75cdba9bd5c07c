// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The happens-before relation over the streams of an rt function, by vector
// clocks (Mattern, Virtual Time and Global States of Distributed Systems,
// 1989).
#include "passes/runtime/StreamClocks.h"

#include "compiler/options/Options.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

static bool isCopy(Operation *op) { return op->hasTrait<rt::CopiesApart>(); }

// Takes over what another clock has seen.
static void join(StreamClocks::Clock &clock, const StreamClocks::Clock &other) {
  for (int queue = 0; queue < StreamClocks::kQueues; ++queue)
    clock[queue] = std::max(clock[queue], other[queue]);
}

// A function without copies has no second queues, so that no wait is kept for
// them.
StreamClocks::StreamClocks(func::FuncOp function)
    : copiesApart(
          fsdp::CompileOptions::of(function->getParentOfType<ModuleOp>())
              .isCuda() &&
          llvm::any_of(function.getOps(),
                       [](Operation &op) { return isCopy(&op); })) {}

llvm::SmallVector<int, 2> StreamClocks::queuesOf(rt::Stream stream) const {
  int own = static_cast<int>(stream);
  // Compute has no copies.
  if (copiesApart && stream != rt::Stream::compute)
    return {own, own + rt::kStreams};
  return {own};
}

std::optional<int> StreamClocks::queueOf(Operation *op) const {
  std::optional<rt::Stream> stream = rt::streamOf(op);
  if (!stream)
    return std::nullopt;
  llvm::SmallVector<int, 2> own = queuesOf(*stream);
  return isCopy(op) ? own.back() : own.front();
}

std::string StreamClocks::describe(int queue) {
  auto stream = static_cast<rt::Stream>(queue % rt::kStreams);
  StringRef what = queue < rt::kStreams ? "stream '" : "copies of stream '";
  return (what + rt::stringifyStream(stream) + "'").str();
}

// Compares the clock that the event carries with those of the waiting stream:
// the wait adds nothing if no component would grow. A wait for an event that
// was never recorded is kept: erasing it would hide the mistake.
bool StreamClocks::isRedundant(rt::EventWaitOp op) const {
  auto event = recorded.find(op.getEvent());
  if (event == recorded.end())
    return false;
  return llvm::all_of(queuesOf(op.getStream()), [&](int own) {
    Clock both = clock(own);
    join(both, event->second);
    return both == clock(own);
  });
}

bool StreamClocks::advance(Operation *op) {
  std::optional<rt::Stream> stream = rt::streamOf(op);
  if (!stream)
    return true;
  // A record copies the clocks of its stream, a wait takes the maximum of both
  // clocks, and only a command that does work counts as a step.
  if (auto record = dyn_cast<rt::EventRecordOp>(op)) {
    Clock &event = recorded[record.getEvent()] = Clock{};
    for (int queue : queuesOf(*stream))
      join(event, clocks[queue]);
    return true;
  }
  if (auto wait = dyn_cast<rt::EventWaitOp>(op)) {
    auto event = recorded.find(wait.getEvent());
    if (event == recorded.end())
      return false;
    for (int queue : queuesOf(*stream))
      join(clocks[queue], event->second);
    return true;
  }
  int queue = *queueOf(op);
  ++clocks[queue][queue];
  return true;
}
