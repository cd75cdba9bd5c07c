// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the bytes of the arena that one stream takes over from another. There
// the two streams must be ordered although no value passes between them, which
// a reader of a dump could not see otherwise.
#include "passes/memory/Reuse.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/FormatVariadic.h"

#include <map>
#include <numeric>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::analysis;

namespace {

// The last holder of each byte: disjoint ranges of the arena, by their begin.
class Holders {
public:
  // Gives [begin, end) to `slot`, and returns the slots that had parts of it.
  llvm::SetVector<size_t> take(int64_t begin, int64_t end, size_t slot) {
    // Cutting at both ends first leaves only ranges that lie inside or outside.
    cut(begin);
    cut(end);
    llvm::SetVector<size_t> before;
    auto first = ranges.lower_bound(begin), last = ranges.lower_bound(end);
    for (auto range = first; range != last; ++range)
      before.insert(range->second.slot);
    ranges.erase(first, last);
    if (begin < end)
      ranges[begin] = {end, slot};
    return before;
  }

private:
  struct Range {
    int64_t end;
    size_t slot;
  };

  // Splits the range that contains `offset`, so that ranges begin or end there.
  void cut(int64_t offset) {
    auto next = ranges.lower_bound(offset);
    if (next == ranges.begin())
      return;
    Range &range = std::prev(next)->second;
    if (range.end <= offset)
      return;
    ranges[offset] = range;
    range.end = offset;
  }

  std::map<int64_t, Range> ranges;
};

// Returns the stream that touches a slot first. Gathers and fetches write their
// slots on their own stream; everything else is written by compute.
StringRef firstStream(const Slot &slot) {
  bool arrives =
      slot.kind == SlotKind::Gathered || slot.kind == SlotKind::Fetched;
  return arrives ? "gather" : "compute";
}

// Returns the stream that touches a slot last. Compute reads what is gathered.
StringRef lastStream(const Slot &slot) {
  bool reduced = llvm::any_of(slot.values, [](const SlotValue &value) {
    return llvm::any_of(value.op->getUsers(), [](Operation *user) {
      return fsdp::isTransfer(user, fsdp::TransferKind::Reduce) ||
             fsdp::isTransfer(user, fsdp::TransferKind::Offload);
    });
  });
  return reduced ? "reduce" : "compute";
}

std::string describe(const Slot &slot) {
  const SlotValue &value = slot.values.front();
  std::string text = value.op->getName().stripDialect().str();
  if (fsdp::isTransfer(value.op, fsdp::TransferKind::Gather)) {
    auto gather = cast<fsdp::LayoutUserOpInterface>(value.op);
    text += " @" + gather.getLayoutRefs()[value.result].getValue().str();
  } else if (auto unit = value.op->getAttrOfType<FlatSymbolRefAttr>(
                 fsdp::FSDPDialect::kUnitAttr)) {
    text += " of unit @" + unit.getValue().str();
  }
  return text;
}

} // namespace

std::vector<std::string>
fsdpc::passes::reusedAcrossStreams(ArrayRef<Slot> slots,
                                   const schedule::Packing &packing) {
  // Stable, so that slots which begin at one op keep their order and the lines
  // do not change from run to run.
  SmallVector<size_t> byBegin(slots.size());
  std::iota(byBegin.begin(), byBegin.end(), size_t(0));
  llvm::stable_sort(byBegin, [&](size_t a, size_t b) {
    return slots[a].begin < slots[b].begin;
  });
  Holders holders;
  std::vector<std::string> lines;
  for (size_t taker : byBegin) {
    const Slot &slot = slots[taker];
    int64_t begin = packing.offsets[taker], end = begin + slot.bytes;
    // One line per stream, however many slots it had there.
    llvm::SetVector<StringRef> streams;
    for (size_t before : holders.take(begin, end, taker))
      streams.insert(lastStream(slots[before]));
    // Within one stream the order of commands is enough.
    for (StringRef stream : streams)
      if (stream != firstStream(slot))
        lines.push_back(llvm::formatv("[{0}, {1}) {2} to {3}: {4}", begin, end,
                                      stream, firstStream(slot),
                                      describe(slot)));
  }
  return lines;
}
