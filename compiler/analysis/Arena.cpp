// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Packs all slots of the module into one arena. @update runs after @microbatch,
// so its slots follow in time and reuse the memory. @evaluate runs between
// steps and reuses all of it, so it never changes how a step is packed.
#include "compiler/analysis/Slots.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/options/Options.h"
#include "compiler/schedule/pack_hard.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::analysis;

// Returns no slots if the module lacks the function.
static FailureOr<SmallVector<Slot>> slotsOf(ModuleOp module, StringRef name) {
  auto function = module.lookupSymbol<func::FuncOp>(name);
  if (!function)
    return SmallVector<Slot>();
  SlotOptions options;
  options.gatherPadding = fsdp::CompileOptions::of(module).gatherPadding();
  // The planner uses every tie that is allowed. Readers of its plan ask
  // isPlannedTie instead, since an edited dump may give a result memory of its
  // own.
  options.useTie = [](OpResult, Value) { return true; };
  return findSlots(function, 0, options);
}

FailureOr<ArenaSlots> fsdpc::analysis::findArenaSlots(ModuleOp module) {
  auto microbatch = slotsOf(module, fsdp::FSDPDialect::kMicrobatch);
  auto update = slotsOf(module, fsdp::FSDPDialect::kUpdate);
  auto evaluate = slotsOf(module, fsdp::kEvaluate);
  if (failed(microbatch) || failed(update) || failed(evaluate))
    return failure();
  // Only the backward computes gradients.
  SmallVector<Slot> ofLayouts = takeOfLayouts(*microbatch);
  return ArenaSlots{std::move(*microbatch), std::move(*update),
                    std::move(*evaluate), std::move(ofLayouts)};
}

FailureOr<ArenaPlan> fsdpc::analysis::packArena(ModuleOp module,
                                                std::optional<int64_t> cap) {
  FailureOr<ArenaSlots> arena = findArenaSlots(module);
  if (failed(arena))
    return failure();
  ArenaPlan plan;
  plan.slots = std::move(arena->microbatch);
  plan.ofLayouts = std::move(arena->ofLayouts);
  // @update begins behind the last op of @microbatch.
  int end = 0;
  for (const Slot &slot : plan.slots)
    end = std::max(end, slot.end + 1);
  for (Slot &slot : arena->update) {
    slot.begin += end;
    slot.end += end;
    plan.slots.push_back(std::move(slot));
  }
  schedule::PackerOptions packer;
  packer.exact = true;
  packer.work = 400'000'000; // a few searches among 2,000 buffers
  packer.cap = cap;
  plan.packing = schedule::pack(intervalsOf(plan.slots), packer);
  // The schedule was packed so, too, if nothing else kept the cap.
  if (cap && plan.packing.peak > *cap)
    plan.packing = schedule::packHard(intervalsOf(plan.slots));
  // An evaluation takes less than a step, so any packing within a step's peak
  // is as good as the best.
  plan.evaluateSlots = std::move(arena->evaluate);
  schedule::PackerOptions quick;
  quick.gap = 1000; // the cap alone decides
  quick.cap = plan.packing.peak;
  plan.evaluatePacking = schedule::pack(intervalsOf(plan.evaluateSlots), quick);
  for (const schedule::Packing *packing :
       {&plan.packing, &plan.evaluatePacking})
    if (!packing->error.empty())
      return module.emitError("cannot pack the arena: ") << packing->error;
  return plan;
}
