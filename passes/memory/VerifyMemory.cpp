// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// verify-memory: checks the plan of the arena, whoever wrote it: every value
// has an offset, slots are aligned and inside the arena, values of one slot are
// where it wants them, and slots that are live together do not overlap.
#include "compiler/analysis/RankMemory.h"
#include "compiler/analysis/Slots.h"
#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Offloads.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/options/Options.h"
#include "passes/memory/Passes.h"

#include <map>

namespace fsdpc::passes {
#define GEN_PASS_DEF_VERIFYMEMORY
#include "passes/memory/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::analysis;

namespace {

// The first value decides where the slot begins; all others must agree with it.
LogicalResult verifySlot(const Slot &slot, int64_t arenaBytes) {
  const SlotValue &first = slot.values.front();
  std::optional<int64_t> offset = plannedOffset(first.op, first.result);
  if (!offset || *offset < 0)
    return first.op->emitOpError("violates rule 'planned': result ")
           << first.result << " has no offset in '"
           << fsdp::FSDPDialect::kOffsetsAttr << "'";
  int64_t base = *offset - first.offset;
  if (base < 0 || base % kSlotAlignment != 0)
    return first.op->emitOpError("violates rule 'aligned': offset ")
           << base << " is not a multiple of " << kSlotAlignment;
  if (slot.layout && base != 0)
    return first.op->emitOpError("violates rule 'layout': it begins at ")
           << base << " of the gradient of layout '" << slot.layout.getValue()
           << "' instead of 0";
  if (!slot.layout && base > arenaBytes - slot.bytes) // the sum may overflow
    return first.op->emitOpError("violates rule 'arena': its ")
           << slot.bytes << " bytes from " << base
           << " on extend past the arena of " << arenaBytes << " bytes";
  for (const SlotValue &value : slot.values) {
    std::optional<int64_t> own = plannedOffset(value.op, value.result);
    if (own == base + value.offset)
      continue;
    auto diagnostic = value.op->emitOpError("violates rule 'placed': result ")
                      << value.result << " must lie at " << base + value.offset;
    diagnostic.attachNote(first.op->getLoc()) << "required by this op";
    return diagnostic;
  }
  return success();
}

struct VerifyMemory : fsdpc::passes::impl::VerifyMemoryBase<VerifyMemory> {
  void runOnOperation() override {
    if (failed(verify()))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }

  // Slots are found from the IR again, and the ties that the offsets show are
  // taken as decided. In both entry functions alike.
  LogicalResult verify() {
    ModuleOp module = getOperation();
    auto arena = module->getAttrOfType<DictionaryAttr>("fsdp.arena");
    auto bytes = arena ? arena.getAs<IntegerAttr>("bytes") : IntegerAttr();
    if (!bytes)
      return module.emitError("missing attribute 'fsdp.arena' with entry "
                              "'bytes'; run plan-memory first");
    SlotOptions options;
    options.gatherPadding = fsdp::CompileOptions::of(module).gatherPadding();
    options.useTie = isPlannedTie;
    for (func::FuncOp function : fsdp::entriesOf(module)) {
      FailureOr<SmallVector<Slot>> slots = findSlots(function, 0, options);
      if (failed(slots))
        return failure();
      for (const Slot &slot : *slots)
        if (failed(verifySlot(slot, bytes.getInt())))
          return failure();
      takeOfLayouts(*slots);
      if (failed(verifyApart(*slots)) || failed(verifyPlaces(function, arena)))
        return failure();
    }
    return verifyCap(module, bytes.getInt());
  }

  // Every value that a microbatch offloads is still needed when the next one
  // is written, so no two of them share a byte of the file.
  static LogicalResult verifyPlaces(func::FuncOp function,
                                    DictionaryAttr arena) {
    auto size = arena.getAs<IntegerAttr>("offloaded");
    std::map<int64_t, std::pair<int64_t, fsdp::OffloadStartOp>> taken;
    for (auto start : function.getOps<fsdp::OffloadStartOp>()) {
      if (!start.getPlaces())
        return start.emitOpError(
            "violates rule 'planned': it has no 'places' in the file");
      for (auto [value, place] :
           llvm::zip_equal(start.getValues(), *start.getPlaces())) {
        int64_t bytes = nn::tensorBytes(value.getType());
        if (place < 0 || !size || place > size.getInt() - bytes)
          return start.emitOpError("violates rule 'file': its ")
                 << bytes << " bytes from " << place
                 << " on extend past the file";
        if (bytes == 0) // would hide what begins there
          continue;
        auto next = taken.lower_bound(place + bytes);
        if (next != taken.begin() &&
            place < std::prev(next)->first + std::prev(next)->second.first) {
          auto diagnostic = start.emitOpError("violates rule 'file': bytes [")
                            << place << ", " << place + bytes
                            << ") are taken already";
          diagnostic.attachNote(std::prev(next)->second.second.getLoc())
              << "by this op";
          return diagnostic;
        }
        taken[place] = {bytes, start};
      }
    }
    return success();
  }

  // The cap counts all memory of a rank, as the schedule's model does. What
  // takes the most is named, so that one knows what to shrink.
  static LogicalResult verifyCap(ModuleOp module, int64_t arenaBytes) {
    int64_t limit = fsdp::CompileOptions::of(module).memoryLimit.bytes;
    if (limit == 0)
      return success();
    RankMemory memory(module);
    int64_t peak = memory.total() + arenaBytes;
    if (peak <= limit)
      return success();
    FailureOr<ArenaSlots> arena = findArenaSlots(module);
    if (failed(arena))
      return failure();
    reportOverLimit(
        module, memory,
        schedule::largestContributors(intervalsOf(arena->microbatch)), peak,
        limit);
    return failure();
  }

  // Runs the packer's own check, which is fast, and only on an error the
  // pairwise search that names both ops.
  static LogicalResult verifyApart(ArrayRef<Slot> slots) {
    std::vector<int64_t> offsets;
    for (const Slot &slot : slots) {
      const SlotValue &first = slot.values.front();
      offsets.push_back(*plannedOffset(first.op, first.result) - first.offset);
    }
    if (schedule::verify(intervalsOf(slots), offsets).empty())
      return success();
    // Searched again, in order to report it in terms of ops. Quadratic, but
    // only once an overlap is known to exist.
    for (size_t later = 0; later < slots.size(); ++later)
      for (size_t earlier = 0; earlier < slots.size(); ++earlier) {
        const Slot &a = slots[earlier], &b = slots[later];
        bool together = a.begin <= b.end && b.begin <= a.end;
        bool overlap = offsets[earlier] < offsets[later] + b.bytes &&
                       offsets[later] < offsets[earlier] + a.bytes;
        // Each pair is met in both orders. Only the order in which the slots
        // begin is reported, so the diagnostic is at the later op.
        bool first = std::pair(a.begin, earlier) < std::pair(b.begin, later);
        if (!first || !together || !overlap)
          continue;
        auto diagnostic =
            b.values.front().op->emitOpError("violates rule 'overlap': bytes [")
            << offsets[later] << ", " << offsets[later] + b.bytes
            << ") are still in use";
        diagnostic.attachNote(a.values.front().op->getLoc())
            << "this op uses bytes [" << offsets[earlier] << ", "
            << offsets[earlier] + a.bytes << ")";
        return diagnostic;
      }
    llvm_unreachable("schedule::verify checks what is checked here");
  }
};

} // namespace
