// This rank's part of Muon's updates on a GPU, before matrices are
// orthogonalised, and their way to the optimizer's kernel afterwards
// (kernels/matrices.h).
#include "runtime/core/matrices.h"
#include "runtime/cuda/update.h"
#include "shared/member_sums.h"

#include <array>

namespace fsdpc::runtime {

// The updates of all members follow each other without the gaps of the layout.
Status CudaUpdate::addMatrices(const fsdpc_rank &rank, size_t index,
                               Optimizer &optimizer) {
  const Layout &layout = rank.manifest.layouts[index];
  const LayoutBuffers &buffers = rank.layouts[index];
  if (!isOrthogonal(layout.optimizer))
    return {};
  std::vector<int64_t> places;
  int64_t before = 0;
  for (const Member &member : layout.members) {
    places.push_back(before - (member.offset - buffers.partBegin));
    before += member.elements;
    digitCount = std::max(
        digitCount, ((member.elements - 1) / matrixChunk + 1) * normDigits);
  }
  FSDPC_TRY(setSegments(layout, ownSegments(rank, index), INT64_MAX, false,
                        optimizer.sums));
  return upload(places, optimizer.places);
}

void CudaUpdate::momentumUpdates(const fsdpc_rank &rank, int32_t index,
                                 const void *scale, const MomentumStep &step,
                                 void *updates) {
  const Optimizer &optimizer = optimizers[size_t(index)];
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  size_t slot = 0;
  for (const Round &round : optimizer.sums.rounds) {
    OptimizerOperands operands = memberSumOperands(rank, index, scale);
    void **gradient = &operands.list[1],
         **state = &operands.list[operands.statesAt()];
    std::array<PieceOperand, 2> offloaded;
    size_t count = 0;
    if (layout.gradientOffloaded)
      offloaded[count++] = {gradient, sizeof(float)};
    if (layout.statesOffloaded)
      offloaded[count++] = {state, sizeof(float)};
    if (count > 0)
      offload->bring({offloaded.data(), count}, round.firstElement,
                     round.elements, slot = 1 - slot);
    MomentumUpdates m;
    m.segments = optimizer.sums.table + round.firstSegment;
    m.count = round.segments;
    m.places = optimizer.places;
    m.gradients = static_cast<const float *>(*gradient);
    m.states = static_cast<const float *>(*state);
    m.scale = static_cast<const float *>(scale);
    m.step = step;
    m.updates = static_cast<float *>(updates);
    context.launchBlocks(m, m.count, FSDPC_STREAM_COMPUTE);
    if (count > 0)
      offload->takeBack();
  }
}

void CudaUpdate::placeUpdates(const Optimizer &optimizer, const Round &round,
                              const void *updates) {
  PlaceUpdates place;
  place.segments = optimizer.updates.table + round.firstSegment;
  place.count = round.segments;
  place.first = round.firstElement;
  place.places = optimizer.places;
  place.updates = static_cast<const float *>(updates);
  place.values = elementNumbers;
  context.launchBlocks(place, place.count, FSDPC_STREAM_COMPUTE);
}

} // namespace fsdpc::runtime
