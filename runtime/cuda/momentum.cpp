// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// This rank's part of the updates of matrices on a GPU, before these are
// orthogonalised, and their way to the optimizer's kernel afterwards
// (kernels/matrices.h).
#include "runtime/core/matrices.h"
#include "runtime/cuda/update.h"

#include <algorithm>

namespace fsdpc::runtime {

// The updates of all members follow each other without the gaps of the layout.
Status CudaUpdate::addMatrices(const fsdpc_rank &rank, size_t index,
                               Optimizer &optimizer) {
  const Layout &layout = rank.manifest.layouts[index];
  const LayoutBuffers &buffers = rank.layouts[index];
  if (!layout.orthogonal)
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
    // Only the gradient and the first state are read.
    operands.list[0] = nullptr;
    void **states = &operands.list[operands.statesAt()];
    std::fill(states + 1, states + layout.states, nullptr);
    bool brings = layout.gradientOffloaded || layout.statesOffloaded;
    if (brings)
      offload->bring(rank, index, operands, /*areChanged=*/false,
                     round.firstElement, round.elements, slot = 1 - slot);
    MomentumUpdates m;
    m.segments = optimizer.sums.table + round.firstSegment;
    m.count = round.segments;
    m.places = optimizer.places;
    m.gradients = static_cast<const float *>(operands.list[1]);
    m.states = static_cast<const float *>(states[0]);
    m.scale = static_cast<const float *>(scale);
    m.step = step;
    m.updates = static_cast<float *>(updates);
    context.launchBlocks(m, m.count, FSDPC_STREAM_COMPUTE);
    if (brings)
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
