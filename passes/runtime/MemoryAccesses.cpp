// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns effects into bytes. A pointer operand says which bytes of which space
// an op reaches, a symbol says whose memory: shards and copies of a layout's
// parameters are one memory, so that a gather in place is ordered as well.
#include "passes/runtime/MemoryAccesses.h"

#include "compiler/dialects/fsdp/SymbolEffects.h"
#include "compiler/dialects/rt/LaunchEffects.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/FormatVariadic.h"

#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// The end of a memory behind a symbol, of which no part is told apart.
constexpr int64_t kAllBytes = std::numeric_limits<int64_t>::max();

// Returns the op's effects. Those of a launch depend on its kernel, for which
// the op itself walks all symbols.
FailureOr<SmallVector<MemoryEffects::EffectInstance>>
effectsOf(Operation *op, const SymbolTable &symbols) {
  auto launch = dyn_cast<rt::LaunchOp>(op);
  if (!launch)
    return fsdp::effectsOf(op);
  auto kernel = symbols.lookup<func::FuncOp>(launch.getKernelAttr().getAttr());
  SmallVector<MemoryEffects::EffectInstance> effects;
  rt::addLaunchEffects(launch, kernel.getNumArguments(), effects);
  return effects;
}

// Returns the memory that a pointer reaches. The copy of a layout's parameters
// that every rank keeps overlaps the rank's shard, so both count as one memory.
MemoryAccess accessThrough(rt::PointerOp pointer, bool write) {
  int64_t begin = pointer.getOffset();
  int64_t end = begin + pointer.getBytes();
  switch (pointer.getSpace()) {
  case rt::Space::arena:
    return {rt::ArenaMemory::get(), {}, begin, end, write};
  case rt::Space::gathered:
    return {rt::ArenaMemory::get(),
            {},
            int64_t(*pointer.getAt()) + begin,
            int64_t(*pointer.getAt()) + end,
            write};
  case rt::Space::whole:
    return {fsdp::ParameterMemory::get(), pointer.getSymbolAttr(), 0, kAllBytes,
            write};
  case rt::Space::gradient:
    return {fsdp::GradientMemory::get(), pointer.getSymbolAttr(), begin, end,
            write};
  case rt::Space::buffer:
    return {fsdp::BufferMemory::get(), pointer.getSymbolAttr(), begin, end,
            write};
  case rt::Space::input:
  case rt::Space::constant:
  case rt::Space::random:
    return {rt::ReadOnlyMemory::get(), pointer.getSymbolAttr(), begin, end,
            write};
  }
  llvm_unreachable("all spaces are listed");
}

// Returns how many bytes the op accesses behind each of its addresses. An op
// without the interface accesses none if it has no effects and no address;
// otherwise it is an error, since nothing would tell how far it goes.
FailureOr<SmallVector<rt::AccessRange>>
rangesOf(Operation *op, ArrayRef<MemoryEffects::EffectInstance> effects,
         const SymbolTable &symbols) {
  SmallVector<rt::AccessRange> ranges;
  if (auto accessing = dyn_cast<rt::AccessRangesOpInterface>(op)) {
    if (failed(accessing.getAccessRanges(symbols, ranges)))
      return failure();
    return ranges;
  }
  if (effects.empty() &&
      llvm::none_of(op->getOperandTypes(), llvm::IsaPred<rt::PointerType>))
    return ranges;
  return op->emitOpError("does not say which bytes it accesses; implement "
                         "rt.AccessRangesOpInterface");
}

// Adds what the op does to the memory behind one operand. An operand that is no
// pointer and has no effect is skipped. A pointer without an effect or range is
// an error: an op that forgets to declare one would otherwise pass as harmless.
LogicalResult addOperand(OpOperand &operand,
                         ArrayRef<MemoryEffects::EffectInstance> effects,
                         ArrayRef<rt::AccessRange> ranges,
                         int64_t gatherPadding,
                         SmallVectorImpl<MemoryAccess> &accesses) {
  Operation *op = operand.getOwner();
  bool read = false, write = false;
  for (const MemoryEffects::EffectInstance &effect : effects)
    if (effect.getEffectValue<OpOperand *>() == &operand)
      (isa<MemoryEffects::Read>(effect.getEffect()) ? read : write) = true;
  if (!read && !write) {
    if (!isa<rt::PointerType>(operand.get().getType()))
      return success();
    return op->emitOpError("does not declare whether it reads or writes the "
                           "memory of operand ")
           << operand.getOperandNumber() << "; declare the effect in ODS";
  }
  // The space and the range are attributes of rt.pointer, so nothing is known
  // of an address that comes from elsewhere.
  auto pointer = operand.get().getDefiningOp<rt::PointerOp>();
  if (!pointer)
    return op->emitOpError("takes as operand ")
           << operand.getOperandNumber()
           << " an address that is not the result of an rt.pointer";
  const rt::AccessRange *range =
      llvm::find_if(ranges, [&](const rt::AccessRange &each) {
        return each.address == &operand;
      });
  if (range == ranges.end())
    return op->emitOpError(
               "does not say how many bytes it accesses of operand ")
           << operand.getOperandNumber() << "; add them in getAccessRanges";
  // The op must not reach further than its pointer declares, since only the
  // declared bytes are checked for races.
  if (range->bytes > static_cast<int64_t>(pointer.getBytes()))
    return op->emitOpError("touches ")
           << range->bytes << " bytes of operand " << operand.getOperandNumber()
           << ", but its pointer reaches " << pointer.getBytes();
  MemoryAccess access = accessThrough(pointer, write);
  if (write && fsdp::isSame(access.memory, rt::ReadOnlyMemory::get()))
    return op->emitOpError("writes to space '")
           << rt::stringifySpace(pointer.getSpace())
           << "', which only the runtime writes";
  bool isGathered = pointer.getSpace() == rt::Space::gathered;
  if (isGathered && write && !op->hasTrait<fsdp::ReachesPadding>())
    return op->emitOpError("writes to the gathered parameters of '")
           << pointer.getSymbolAttr().getValue()
           << "', which may be the shards of all ranks; only a gather may";
  // Shards that lie side by side are what a gather would have written.
  if (isGathered && read)
    accesses.push_back({fsdp::ParameterMemory::get(), pointer.getSymbolAttr(),
                        0, kAllBytes, false});
  // Shards have padding, so a gather may write more than its destination, and
  // secondary shards are cut from that too. Its slot has room
  // for that; any other buffer there would be overwritten.
  if (access.isOfArena() && op->hasTrait<fsdp::ReachesPadding>())
    access.end += gatherPadding;
  accesses.push_back(access);
  return success();
}

} // namespace

bool MemoryAccess::isOfArena() const {
  return fsdp::isSame(memory, rt::ArenaMemory::get());
}

std::string MemoryAccess::describe() const {
  if (isOfArena())
    return llvm::formatv("arena bytes [{0}, {1})", begin, end);
  if (fsdp::isSame(memory, SideEffects::DefaultResource::get()))
    return "unspecified memory";
  std::string text = memory->getName().str();
  if (symbol)
    text += " of '" + symbol.getLeafReference().str() + "'";
  return text;
}

// Symbols and ranges must both meet: two layouts may have equal ranges, and two
// slots of the arena have no symbol.
bool fsdpc::passes::conflict(const MemoryAccess &a, const MemoryAccess &b) {
  return fsdp::conflict({a.memory, a.symbol, a.write},
                        {b.memory, b.symbol, b.write}) &&
         a.begin < b.end && b.begin < a.end;
}

FailureOr<SmallVector<MemoryAccess>>
fsdpc::passes::accessesOf(Operation *op, const SymbolTable &symbols,
                          int64_t gatherPadding) {
  auto effects = effectsOf(op, symbols);
  if (failed(effects))
    return failure();
  auto symbolEffects = fsdp::symbolEffectsOf(op, *effects);
  if (failed(symbolEffects))
    return failure();
  auto ranges = rangesOf(op, *effects, symbols);
  if (failed(ranges))
    return failure();
  SmallVector<MemoryAccess> accesses;
  for (OpOperand &operand : op->getOpOperands())
    if (failed(addOperand(operand, *effects, *ranges, gatherPadding, accesses)))
      return failure();
  // Events are how commands are ordered. They are no memory that could race.
  for (const fsdp::SymbolEffect &effect : *symbolEffects)
    if (!fsdp::isSame(effect.resource, rt::EventState::get()))
      accesses.push_back(
          {effect.resource, effect.symbol, 0, kAllBytes, effect.write});
  return accesses;
}
