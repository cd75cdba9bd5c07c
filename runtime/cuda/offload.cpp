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

// Operands in the device's own memory are read and written where they lie.
void CudaOffload::bring(std::span<const PieceOperand> operands, int64_t begin,
                        int64_t count, size_t to) {
  slot = to;
  backs.clear();
  sections.wait(offloadInStream, eventOf(used, slot));
  sections.wait(offloadInStream, eventOf(emptied, slot));
  char *next = slotMemory<char>(slot);
  for (const PieceOperand &operand : operands) {
    char *from = static_cast<char *>(*operand.address) + begin * operand.width;
    *operand.address = from;
    if (!operand.isOffloaded)
      continue;
    auto bytes = size_t(count * operand.width);
    context.copy(next, from, bytes, offloadInStream);
    if (operand.isChanged)
      backs.push_back({from, next, bytes});
    *operand.address = next;
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

// The memory of the layout comes first among the operands.
void CudaOffload::bringUpdate(const fsdpc_rank &rank, int32_t index,
                              OptimizerOperands &operands, int64_t begin,
                              int64_t count, size_t to) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  auto width = int64_t(wireBytes(computeTypeOf(rank, index)));
  ofUpdate.clear();
  auto add = [&](int64_t bytes, bool isOffloaded, bool isChanged) {
    void **address = &operands.list[ofUpdate.size()];
    ofUpdate.push_back({address, bytes, isOffloaded, isChanged});
  };
  add(layout.noMaster ? width : 4, layout.parametersOffloaded, true);
  add(layout.unsummed ? width : 4, layout.gradientOffloaded, false);
  for (int32_t state = 0; state < layout.states; ++state)
    add(4, layout.statesOffloaded, true);
  if (hasComputeCopy(rank, index))
    add(width, false, true);
  bring(ofUpdate, begin, count, to);
}

} // namespace fsdpc::runtime
