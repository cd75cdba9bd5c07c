// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// elide-events: removes waits that order nothing, and the events that nobody
// waits for then, and numbers the rest densely. A wait for an event that
// nothing records before it is refused: any number would make it another event.
#include "passes/runtime/Passes.h"
#include "passes/runtime/StreamClocks.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_ELIDEEVENTS
#include "passes/runtime/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

constexpr int kUnrecorded = -1; // the number of an event

struct ElideEvents : fsdpc::passes::impl::ElideEventsBase<ElideEvents> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function->hasAttr("nn.kernel") && failed(elide(function)))
        return signalPassFailure();
  }

  // Visits the ops in program order, and erases a wait before its stream's
  // clock would take it into account. Two scans are needed, since whether a
  // record is useful is known only when all later waits have been seen.
  LogicalResult elide(func::FuncOp function) {
    StreamClocks clocks(function);
    // An event that no wait needs is missing; one that is needed has no number
    // until its record is seen.
    DenseMap<int, int> number; // from an event's old number to its new one
    for (Operation &op :
         llvm::make_early_inc_range(function.getBody().front())) {
      auto wait = dyn_cast<rt::EventWaitOp>(op);
      if (wait && clocks.isRedundant(wait)) {
        ++removed;
        op.erase();
        continue;
      }
      clocks.advance(&op);
      // The waits that stay decide which events exist. Their numbers follow
      // below, in the order of the records.
      if (wait)
        number.try_emplace(wait.getEvent(), kUnrecorded);
    }
    // In order of the records, so that numbers do not depend on what was
    // removed.
    int next = 0;
    for (Operation &op :
         llvm::make_early_inc_range(function.getBody().front())) {
      if (auto record = dyn_cast<rt::EventRecordOp>(op)) {
        auto known = number.find(record.getEvent());
        if (known == number.end()) {
          op.erase();
          continue;
        }
        known->second = next;
        record.setEvent(next++);
      } else if (auto wait = dyn_cast<rt::EventWaitOp>(op)) {
        int event = number.lookup(wait.getEvent());
        if (event == kUnrecorded)
          return wait.emitOpError("waits for event ")
                 << wait.getEvent() << ", which nothing records before it";
        wait.setEvent(event);
      }
    }
    return success();
  }
};

} // namespace
