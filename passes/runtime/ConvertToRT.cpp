// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// convert-to-rt: turns planned ops into calls of the runtime, one function at a
// time, in program order. Tensors become pointers by their planned offsets.
// Every transition between streams gets an event, whether needed or not;
// elide-events removes those that order nothing.
#include "compiler/analysis/Slots.h"
#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/options/Options.h"
#include "passes/runtime/FunctionConverter.h"
#include "passes/runtime/Passes.h"
#include "passes/runtime/UpdatedParameters.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_CONVERTTORT
#include "passes/runtime/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::analysis;

namespace {

FailureOr<SmallVector<Slot>> plannedSlots(func::FuncOp function,
                                          int64_t gatherPadding) {
  SlotOptions options;
  options.gatherPadding = gatherPadding;
  options.useTie = isPlannedTie;
  return findSlots(function, 0, options);
}

// Returns where the slots of a planned function end, for --poison.
FunctionConverter::DeadMemory findDeadMemory(func::FuncOp function,
                                             ArrayRef<Slot> slots) {
  // Positions of slots count the ops of the block from 0.
  SmallVector<Operation *> ops;
  for (Operation &op : function.getBody().front())
    ops.push_back(&op);
  // Only the bytes of values are poisoned, not the room behind a gather for its
  // padding.
  FunctionConverter::DeadMemory result;
  for (const Slot &slot : slots) {
    const SlotValue &first = slot.values.front();
    int64_t offset = *plannedOffset(first.op, first.result) - first.offset;
    result[ops[slot.end]].emplace_back(offset, slot.bytes - slot.slack);
  }
  return result;
}

struct ConvertToRT : fsdpc::passes::impl::ConvertToRTBase<ConvertToRT> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    fsdp::CompileOptions options = fsdp::CompileOptions::of(getOperation());
    for (StringRef name :
         {fsdp::FSDPDialect::kMicrobatch, fsdp::FSDPDialect::kUpdate})
      if (!symbols.lookup<func::FuncOp>(name)) {
        getOperation().emitError("function '@")
            << name << "' is missing; run the earlier phases first";
        return signalPassFailure();
      }
    // A CUDA section is a graph of its own, so what @update gathers at its end
    // is gathered by the next forward instead.
    SmallVector<FlatSymbolRefAttr> updated;
    if (options.isCuda())
      updated = layoutsGatheredByUpdate(getOperation());
    // Each function numbers its events from 0.
    for (func::FuncOp function : fsdp::entriesOf(getOperation())) {
      auto slots = plannedSlots(function, options.gatherPadding());
      if (failed(slots))
        return signalPassFailure();
      OwnersOfMemory owners;
      for (const Slot &slot : takeOfLayouts(*slots))
        for (const SlotValue &value : slot.values)
          owners[value.op->getResult(value.result)] = slot.layout;
      FunctionConverter::DeadMemory dead;
      if (options.poison)
        dead = findDeadMemory(function, *slots);
      FunctionConverter converter(function, symbols, owners, options.isCuda());
      if (failed(converter.run(dead)))
        return signalPassFailure();
    }
    if (updated.empty())
      return;
    auto forwards = fsdp::getForwards(getOperation());
    if (failed(forwards))
      return signalPassFailure();
    for (func::FuncOp forward : *forwards)
      if (failed(gatherUpdated(forward, updated, symbols,
                               options.gatherPadding())))
        return signalPassFailure();
  }
};

} // namespace
