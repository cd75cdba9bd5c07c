// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// plan-memory: gives every tensor an offset in one arena, and what is offloaded
// a place in the rank's file. Writes the sizes of both, and the arena's
// contents at the peak, for the manifest and the summary.
#include "compiler/analysis/RankMemory.h"
#include "compiler/analysis/Slots.h"
#include "compiler/dialects/fsdp/Offloads.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/options/Options.h"
#include "passes/memory/Passes.h"
#include "passes/memory/Reuse.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_PLANMEMORY
#include "passes/memory/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::analysis;

namespace {

struct PlanMemory : fsdpc::passes::impl::PlanMemoryBase<PlanMemory> {
  void runOnOperation() override {
    std::optional<int64_t> cap;
    fsdp::CompileOptions options = fsdp::CompileOptions::of(getOperation());
    // The arena may take what the cap leaves after shards, states and all that
    // lies outside it. May be negative; the packer then reports what takes the
    // most.
    if (int64_t limit = options.memoryLimit.bytes)
      cap = limit - RankMemory(getOperation()).total();
    FailureOr<ArenaPlan> plan = packArena(getOperation(), cap);
    if (failed(plan))
      return signalPassFailure();
    SmallVector<Slot> slots = plan->slots;
    std::vector<int64_t> offsets = plan->packing.offsets;
    // The offsets in a layout's memory count from its beginning.
    llvm::append_range(slots, plan->ofLayouts);
    offsets.resize(slots.size(), 0);
    writeOffsets(slots, offsets);
    writeOffsets(plan->evaluateSlots, plan->evaluatePacking.offsets);
    writeArena(plan->slots, plan->packing, plan->evaluatePacking.peak,
               writePlaces());
  }

  // Gives what is offloaded its places in the file, one behind the other: all
  // of it is there when the backward begins. Returns the bytes of the file.
  int64_t writePlaces() {
    int64_t bytes = 0;
    getOperation().walk([&](fsdp::OffloadStartOp start) {
      SmallVector<int64_t> places;
      for (Value value : start.getValues()) {
        places.push_back(bytes);
        bytes +=
            llvm::alignTo(nn::tensorBytes(value.getType()), kSlotAlignment);
      }
      start.setPlaces(places);
    });
    return bytes;
  }

  // An op with several results has one list. Results without a slot keep -1. A
  // slot's values lie at their own offsets within it, as members of a pack do.
  void writeOffsets(ArrayRef<Slot> slots, ArrayRef<int64_t> offsets) {
    DenseMap<Operation *, SmallVector<int64_t>> byOp;
    for (auto [slot, offset] : llvm::zip_equal(slots, offsets))
      for (const SlotValue &value : slot.values) {
        SmallVector<int64_t> &list = byOp[value.op];
        list.resize(offsetCount(value.op), -1);
        list[value.result] = offset + value.offset;
      }
    for (auto &[op, list] : byOp)
      op->setAttr(fsdp::FSDPDialect::kOffsetsAttr,
                  DenseI64ArrayAttr::get(&getContext(), list));
  }

  // Writes the size of the arena, and what it holds where most bytes of a step
  // are live. @evaluate may need more only if a step needs next to nothing.
  void writeArena(ArrayRef<Slot> slots, const schedule::Packing &packing,
                  int64_t evaluatePeak, int64_t offloaded) {
    // A position in the program, as those of the slots.
    int peak = schedule::livePeak(intervalsOf(slots)).position;
    int64_t gathered = 0, gradients = 0, activations = 0;
    // Only slots that are live at the peak count, so the shares add up to what
    // is in use there, without the room for padding.
    for (const Slot &slot : slots) {
      if (peak < slot.begin || slot.end < peak)
        continue;
      int64_t &share = slot.kind == SlotKind::Gathered   ? gathered
                       : slot.kind == SlotKind::Gradient ? gradients
                                                         : activations;
      share += slot.bytes - slot.slack;
    }
    // Lists the reused places of @microbatch only.
    std::vector<std::string> reused = reusedAcrossStreams(slots, packing);
    reuses = reused.size();
    SmallVector<StringRef> texts(reused.begin(), reused.end());
    Builder builder(&getContext());
    auto entry = [&](StringRef name, int64_t bytes) {
      return builder.getNamedAttr(name, builder.getI64IntegerAttr(bytes));
    };
    // One arena serves both functions, which never run at the same time.
    SmallVector<NamedAttribute> entries = {
        entry("bytes", std::max(packing.peak, evaluatePeak)),
        entry("lower_bound", packing.lowerBound),
        entry("gathered", gathered),
        entry("gradients", gradients),
        entry("activations", activations),
        builder.getNamedAttr("reused", builder.getStrArrayAttr(texts))};
    if (offloaded > 0)
      entries.push_back(entry("offloaded", offloaded));
    getOperation()->setAttr("fsdp.arena", builder.getDictionaryAttr(entries));
  }
};

} // namespace
