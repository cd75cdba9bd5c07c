// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Effects of ops on memory behind symbols (SymbolEffects.h), and those of
// gathers, which ODS cannot state: a gather reads the parameters' shards or
// secondary ones, and may keep the latter.
#include "compiler/dialects/fsdp/SymbolEffects.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"

using namespace mlir;

namespace fsdpc::fsdp {

// Resources are singletons per type; the ID is the type's.
bool isSame(SideEffects::Resource *a, SideEffects::Resource *b) {
  return a->getResourceID() == b->getResourceID();
}

// Returns true for the resources of which each layout has a part of its own.
// Two ops may touch them at once if they name different layouts.
static bool isOfLayouts(SideEffects::Resource *resource) {
  return isSame(resource, ParameterMemory::get()) ||
         isSame(resource, GradientMemory::get()) ||
         isSame(resource, SecondaryMemory::get()) ||
         isSame(resource, OptimizerMemory::get());
}

// MLIR returns nullopt for an op that declares nothing. A proof cannot go on
// from there.
FailureOr<SmallVector<MemoryEffects::EffectInstance>> effectsOf(Operation *op) {
  if (auto effects = getEffectsRecursively(op))
    return std::move(*effects);
  return op->emitOpError(
      "does not declare its memory effects; declare them in ODS");
}

FailureOr<SmallVector<SymbolEffect>>
symbolEffectsOf(Operation *op,
                ArrayRef<MemoryEffects::EffectInstance> effects) {
  SmallVector<FlatSymbolRefAttr> layouts;
  if (auto user = dyn_cast<LayoutUserOpInterface>(op))
    layouts = user.getLayoutRefs();
  bool touchesLayouts = false;
  SmallVector<SymbolEffect> result;
  for (const MemoryEffects::EffectInstance &effect : effects) {
    SideEffects::Resource *resource = effect.getResource();
    bool ofLayouts = isOfLayouts(resource);
    touchesLayouts |= ofLayouts;
    // Effects on values follow the values themselves, which the callers track.
    if (effect.getValue() || isa<MemoryEffects::Allocate>(effect.getEffect()))
      continue;
    // A free counts as a write: no later read may move before it.
    bool write = !isa<MemoryEffects::Read>(effect.getEffect());
    // ODS names the resource. The layouts come from the op's attribute.
    if (effect.getSymbolRef() || !ofLayouts || layouts.empty())
      result.push_back({resource, effect.getSymbolRef(), write});
    else
      for (FlatSymbolRefAttr layout : layouts)
        result.push_back({resource, layout, write});
  }
  // A new op that names layouts and forgets its effects would otherwise pass
  // every proof as harmless.
  if (!layouts.empty() && !touchesLayouts)
    return op->emitOpError("references layout '")
           << layouts.front().getValue()
           << "', but declares no effect on the memory of layouts";
  return result;
}

// A gather allocates its results. It reads the shards of all ranks, or the
// secondary ones of its group.
template <typename OpTy>
static void
gatherEffects(OpTy op,
              SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  effects.emplace_back(MemoryEffects::Allocate::get());
  if (op.getFromSecondary())
    effects.emplace_back(MemoryEffects::Read::get(), SecondaryMemory::get());
  else
    effects.emplace_back(MemoryEffects::Read::get(), ParameterMemory::get());
  if (op.getKeepSecondary())
    effects.emplace_back(MemoryEffects::Write::get(), SecondaryMemory::get());
}

void AllGatherOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  gatherEffects(*this, effects);
}

void AllGatherStartOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  gatherEffects(*this, effects);
}

bool conflict(const SymbolEffect &a, const SymbolEffect &b) {
  if (!a.write && !b.write)
    return false;
  // Ops of other dialects declare effects without a resource.
  SideEffects::Resource *any = SideEffects::DefaultResource::get();
  if (isSame(a.resource, any) || isSame(b.resource, any))
    return true;
  return isSame(a.resource, b.resource) &&
         (!a.symbol || !b.symbol || a.symbol == b.symbol);
}

} // namespace fsdpc::fsdp
