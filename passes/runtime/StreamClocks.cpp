// Happens-before over the streams of an rt function, by vector clocks.
#include "passes/runtime/StreamClocks.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace fsdpc;

std::optional<rt::Stream> fsdpc::streamOf(Operation *op) {
  return TypeSwitch<Operation *, std::optional<rt::Stream>>(op)
      .Case<rt::EventRecordOp, rt::EventWaitOp>(
          [](auto op) { return op.getStream(); })
      .Case<rt::AllGatherOp, rt::GatherGradientsOp>(
          [](Operation *) { return rt::Stream::gather; })
      .Case<rt::ReduceScatterOp, rt::ReduceGradientsOp, rt::AllReduceOp,
            rt::UpdateStatisticsOp>(
          [](Operation *) { return rt::Stream::reduce; })
      .Case<rt::PointerOp, func::ReturnOp>(
          [](Operation *) { return std::nullopt; })
      .Default([](Operation *) { return rt::Stream::compute; });
}

bool StreamClocks::isRedundant(rt::EventWaitOp op) const {
  auto event = recorded.find(op.getEvent());
  const Clock &own = clock(op.getStream());
  if (event == recorded.end())
    return false;
  for (int stream = 0; stream < kStreams; ++stream)
    if (event->second[stream] > own[stream])
      return false;
  return true;
}

bool StreamClocks::advance(Operation *op) {
  std::optional<rt::Stream> stream = streamOf(op);
  if (!stream)
    return true;
  Clock &own = clocks[static_cast<int>(*stream)];
  if (auto record = dyn_cast<rt::EventRecordOp>(op)) {
    recorded[record.getEvent()] = own;
    return true;
  }
  if (auto wait = dyn_cast<rt::EventWaitOp>(op)) {
    auto event = recorded.find(wait.getEvent());
    if (event == recorded.end())
      return false;
    for (int other = 0; other < kStreams; ++other)
      own[other] = std::max(own[other], event->second[other]);
    return true;
  }
  ++own[static_cast<int>(*stream)];
  return true;
}
