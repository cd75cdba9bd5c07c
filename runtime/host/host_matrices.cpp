// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Updates of whole matrices on the host: those of this rank's part at their
// place among those of all ranks, their way to the matrices' owners and back,
// and the matrices that this rank owns (matrix_steps.h).
#include "runtime/host/host_matrices.h"

#include "runtime/core/matrices.h"
#include "runtime/host/host_device.h"
#include "runtime/host/host_offload.h"
#include "runtime/host/matrix_steps.h"

#include <algorithm>

namespace fsdpc::runtime {
namespace {

constexpr int64_t grain = 1 << 14; // elements per piece of a thread

// Orthogonalises one member. A tall matrix is computed transposed. `room` is
// four times as long as the matrix.
void orthogonalizeMember(const Member &member, const float *updates,
                         float *result, float *room, const MatrixSteps &by,
                         bool matchRms, const EachPiece &each) {
  int64_t rows = member.shape[0], columns = member.shape[1],
          count = member.elements;
  int64_t low = std::min(rows, columns), high = std::max(rows, columns);
  bool tall = rows > columns;
  // Its own inverse up to the shape: the same index writes the transposed copy
  // and reads the result back.
  auto at = [&](int64_t element) {
    return tall ? element % columns * rows + element / columns : element;
  };
  for (int64_t i = 0; i < count; ++i)
    room[at(i)] = updates[i];
  const float *found =
      orthogonalized(room, room + count, room + 2 * count, low, high, by, each);
  double factor = matrixFactor(member, matchRms);
  for (int64_t i = 0; i < count; ++i)
    result[i] = float(factor * double(found[at(i)]));
}

} // namespace

void *updatesOf(const LayoutBuffers &buffers, const Layout &layout,
                size_t member, const void *updates) {
  // The address may lie outside of the block, so it is computed as a number.
  int64_t elements = elementsBefore(layout, member) -
                     layout.members[member].offset + buffers.partBegin;
  return reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(updates) +
                                  uintptr_t(elements) * sizeof(float));
}

void HostDevice::momentumUpdates(fsdpc_rank &rank, int32_t index,
                                 const void *scale, double momentum,
                                 double clipValue, int32_t nesterov,
                                 int32_t maximize, void *updates) {
  run(FSDPC_STREAM_COMPUTE, [=, this, &rank] {
    const Layout &layout = rank.manifest.layouts[size_t(index)];
    int64_t part = rank.layouts[size_t(index)].partBegin;
    float factor = *static_cast<const float *>(scale);
    MomentumStep step =
        momentumStep(momentum, clipValue, nesterov != 0, maximize != 0);
    auto update = [&](const OptimizerOperands &operands, int64_t first,
                      int64_t last) {
      forEachMember(
          layout, first, last, [&](size_t member, int64_t from, int64_t to) {
            const float *gradients = elementOf(operands.list[1], from - part),
                        *states = elementOf(operands.list[operands.statesAt()],
                                            from - part);
            float *own = static_cast<float *>(updates) +
                         elementsBefore(layout, member) +
                         (from - layout.members[member].offset);
            parallelFor(to - from, grain, [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i)
                own[i] = step.update(gradients[i] * factor, states[i]);
            });
          });
    };
    sumPieces(rank, index, layout.gradientOffloaded || layout.statesOffloaded,
              memberSumOperands(rank, index, scale), update);
  });
}

// The members follow each other in the same order on every rank, so that no two
// messages of a pair can be mistaken.
void HostDevice::moveMatrices(fsdpc_rank &rank, int32_t index, void *elements,
                              int32_t toOwners) {
  run(FSDPC_STREAM_REDUCE, [=, &rank] {
    const Layout &layout = rank.manifest.layouts[size_t(index)];
    const LayoutBuffers &buffers = rank.layouts[size_t(index)];
    if (layout.owned)
      return; // the owner has it whole
    std::vector<int> owners = matrixOwners(layout, buffers, rank.job.size);
    auto *first = static_cast<float *>(elements);
    for (size_t m = 0; m < layout.members.size(); ++m) {
      MatrixMessages messages =
          matrixMessages(layout, buffers, m, owners[m], rank.job.rank,
                         rank.job.size, toOwners != 0, first);
      // transfer posts all messages of a member before it waits for any, so no
      // pair of ranks can block each other.
      rank.job.channel[reduceChannel]->transfer(messages.sends,
                                                messages.receives);
      first += layout.members[m].elements;
    }
  });
}

void HostDevice::orthogonalize(fsdpc_rank &rank, int32_t index,
                               const void *updates, double a, double b,
                               double c, double eps, int32_t steps,
                               int32_t bf16, int32_t matchRms, void *result) {
  MatrixSteps by{a, b, c, eps, steps, bf16 != 0};
  run(FSDPC_STREAM_COMPUTE, [=, this, &rank] {
    const Layout &layout = rank.manifest.layouts[size_t(index)];
    std::vector<int> owners =
        matrixOwners(layout, rank.layouts[size_t(index)], rank.job.size);
    EachPiece each = [this](int64_t count, const auto &body) {
      parallelFor(count, 1, body);
    };
    auto *from = static_cast<const float *>(updates);
    // The room lies behind the results: the program has planned it with them.
    auto *to = static_cast<float *>(result),
         *room = to + elementsBefore(layout, layout.members.size());
    for (size_t m = 0; m < layout.members.size(); ++m) {
      const Member &member = layout.members[m];
      if (owners[m] == rank.job.rank)
        orthogonalizeMember(member, from, to, room, by, matchRms != 0, each);
      from += member.elements;
      to += member.elements;
    }
  });
}

} // namespace fsdpc::runtime
