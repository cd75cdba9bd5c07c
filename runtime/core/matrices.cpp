// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The owners of matrices, the messages to and from them, and the numbers of
// their steps. Each rank computes all of it for itself, from the manifest and
// its own cut of the layouts.
#include "runtime/core/matrices.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace fsdpc::runtime {
namespace {

// Operations of a step, up to a factor.
double costOf(const Member &member) {
  double rows = double(member.shape[0]), columns = double(member.shape[1]);
  return rows * columns * std::min(rows, columns);
}

// Elements of a layout.
struct Range {
  int64_t begin, end;
};

Range within(const Member &member, int64_t first, int64_t count) {
  return {std::max(first, member.offset),
          std::min(first + count, member.offset + member.elements)};
}

// The part of a member that a rank sends to its owner. Replicas of a shard send
// a part of it each.
Range sentBy(int rank, const Member &member, const LayoutCut &cut) {
  return within(member, cut.ownOf(rank), cut.own);
}
// The part of it that a rank updates.
Range updatedBy(int rank, const Member &member, const Layout &layout,
                const LayoutCut &cut) {
  return layout.stateWhole ? within(member, 0, cut.whole)
                           : within(member, cut.shardOf(rank), cut.shard);
}

} // namespace

// Stable, so that equal members go to the same ranks everywhere; every rank
// computes this for itself.
std::vector<int> matrixOwners(const Layout &layout,
                              const LayoutBuffers &buffers, int ranks) {
  if (layout.owned)
    return std::vector<int>(layout.members.size(), buffers.owner);
  std::vector<size_t> order(layout.members.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return costOf(layout.members[a]) > costOf(layout.members[b]);
  });
  std::vector<double> load(size_t(ranks), 0.0);
  std::vector<int> owners(order.size());
  for (size_t member : order) {
    auto least = std::min_element(load.begin(), load.end());
    *least += costOf(layout.members[member]);
    owners[member] = int(least - load.begin());
  }
  return owners;
}

int64_t elementsBefore(const Layout &layout, size_t member) {
  int64_t count = 0;
  for (size_t i = 0; i < member; ++i)
    count += layout.members[i].elements;
  return count;
}

MatrixMessages matrixMessages(const Layout &layout, const LayoutCut &cut,
                              size_t index, int owner, int rank, int ranks,
                              bool toOwner, float *elements) {
  const Member &member = layout.members[index];
  MatrixMessages messages;
  for (int other = 0; other < ranks; ++other) {
    if (other == owner || (rank != owner && rank != other))
      continue;
    Range range = toOwner ? sentBy(other, member, cut)
                          : updatedBy(other, member, layout, cut);
    if (range.begin >= range.end)
      continue;
    float *values = elements + (range.begin - member.offset);
    size_t bytes = size_t(range.end - range.begin) * sizeof(float);
    int peer = rank == owner ? other : owner;
    // The owner receives on the way to it and sends on the way back; every
    // other rank the reverse.
    if ((rank == owner) != toOwner)
      messages.sends.push_back({peer, values, bytes});
    else
      messages.receives.push_back({peer, values, bytes});
  }
  return messages;
}

double matrixFactor(const Member &member, bool matchRms) {
  auto rows = double(member.shape[0]), columns = double(member.shape[1]);
  return matchRms ? 0.2 * std::sqrt(std::max(rows, columns))
                  : std::sqrt(std::max(1.0, rows / columns));
}

MomentumStep momentumStep(double momentum, double clipValue, bool nesterov,
                          bool maximize) {
  MomentumStep step;
  step.limit =
      clipValue > 0 ? float(clipValue) : std::numeric_limits<float>::infinity();
  step.sign = maximize ? -1.f : 1.f;
  step.momentum = momentum;
  step.nesterov = nesterov;
  return step;
}

} // namespace fsdpc::runtime
