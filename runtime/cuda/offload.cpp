// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The slots are ordered by events that Sections owns, since a wait in a capture
// must be for a record of the same capture. A section begins when all copies of
// the one before are done, so a slot is free then.
#include "runtime/cuda/offload.h"

namespace fsdpc::runtime {

void CudaOffload::prepare(const fsdpc_rank &rank) {
  OffloadPieces pieces =
      offloadPieces(rank.manifest, rank.job.size, rank.groupRanks,
                    ownersOf(rank.manifest, rank.job.size), rank.job.rank);
  memory = rank.updatePieces;
  slotBytes = pieces.updates / 2;
}

// The address that an operand gets may lie outside of the slot, so it is
// computed as a number.
void CudaOffload::bring(std::span<const PieceOperand> operands, int64_t begin,
                        int64_t count, size_t to) {
  slot = to;
  backs.clear();
  sections.wait(offloadInStream, eventOf(used, slot));
  sections.wait(offloadInStream, eventOf(emptied, slot));
  char *next = slotMemory<char>(slot);
  for (const PieceOperand &operand : operands) {
    int64_t before = begin * operand.width;
    char *from = static_cast<char *>(*operand.address) + before;
    auto bytes = size_t(count * operand.width);
    context.copy(next, from, bytes, offloadInStream);
    if (operand.isChanged)
      backs.push_back({from, next, bytes});
    *operand.address = reinterpret_cast<void *>(
        reinterpret_cast<uintptr_t>(next) - uintptr_t(before));
    next += bytes;
  }
  sections.record(offloadInStream, eventOf(filled, slot));
  sections.wait(FSDPC_STREAM_COMPUTE, eventOf(filled, slot));
}

void CudaOffload::takeBack() {
  sections.record(FSDPC_STREAM_COMPUTE, eventOf(used, slot));
  if (backs.empty())
    return;
  sections.wait(offloadOutStream, eventOf(used, slot));
  for (const Copy &back : backs)
    context.copy(back.pinned, back.device, back.bytes, offloadOutStream);
  sections.record(offloadOutStream, eventOf(emptied, slot));
}

void CudaOffload::settle() {
  for (size_t each : {0, 1})
    sections.wait(FSDPC_STREAM_COMPUTE, eventOf(emptied, each));
}

// An operand that is not offloaded stays where it is, and a null one is not
// read.
void CudaOffload::bring(const fsdpc_rank &rank, int32_t index,
                        OptimizerOperands &operands, bool areChanged,
                        int64_t begin, int64_t count, size_t to) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  ofLayout.clear();
  if (layout.parametersOffloaded && operands.list[0])
    ofLayout.push_back({&operands.list[0],
                        elementBytes(offloadedTypeOf(rank, index)),
                        areChanged});
  if (layout.gradientOffloaded)
    ofLayout.push_back({&operands.list[1], sizeof(float)});
  for (int32_t state = 0; layout.statesOffloaded && state < layout.states;
       ++state)
    if (void *&from = operands.list[operands.statesAt() + size_t(state)])
      ofLayout.push_back({&from, sizeof(float), areChanged});
  bring(ofLayout, begin, count, to);
}

} // namespace fsdpc::runtime
