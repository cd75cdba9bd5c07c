// Muon on the host: the updates of this rank's part at their place among those
// of all ranks, their way to the matrices' owners and back, and the matrices
// that this rank owns (matrix_steps.h).
#include "runtime/host/host_muon.h"

#include "runtime/host/host_device.h"
#include "runtime/host/matrix_steps.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace fsdpc::runtime {
namespace {

constexpr int64_t grain = 1 << 14; // elements per piece of a thread

// Tensor.lerp, which starts from the nearer end.
float blend(float from, float to, double weight) {
  return weight < 0.5 ? from + float(weight) * (to - from)
                      : to - (to - from) * float(1 - weight);
}

// The numbers on which a step of the momentum depends besides the element.
struct MomentumStep {
  float scale, limit, sign;
  double momentum;
  bool nesterov;

  float update(float gradient, float buffer) const {
    // In the order of prepare() in the optimizers' programs: clip, then
    // maximize.
    float g = std::min(std::max(gradient * scale, -limit), limit) * sign;
    float average = blend(buffer, g, 1 - momentum);
    return nesterov ? blend(g, average, momentum) : average;
  }
};

// Elements of the members in front of one.
int64_t elementsBefore(const Layout &layout, size_t member) {
  int64_t count = 0;
  for (size_t i = 0; i < member; ++i)
    count += layout.members[i].elements;
  return count;
}

// Operations of a step, up to a factor.
double costOf(const Member &member) {
  double rows = double(member.shape[0]), columns = double(member.shape[1]);
  return rows * columns * std::min(rows, columns);
}

// Elements of a layout.
struct Range {
  int64_t begin, end;
  int64_t count() const { return std::max<int64_t>(end - begin, 0); }
};

// The places of a layout's elements on all ranks.
struct Parts {
  const Layout &layout;
  const LayoutCut &cut;

  // The part of a member that a rank sends to its owner. Replicas of a shard
  // send a part of it each.
  Range sentBy(int rank, const Member &member) const {
    int64_t first = cut.ownOf(rank);
    return within(member, {first, first + cut.own});
  }
  // The part of it that a rank updates.
  Range updatedBy(int rank, const Member &member) const {
    int64_t first = layout.stateWhole ? 0 : cut.shardOf(rank),
            count = layout.stateWhole ? cut.whole : cut.shard;
    return within(member, {first, first + count});
  }

private:
  static Range within(const Member &member, Range range) {
    return {std::max(range.begin, member.offset),
            std::min(range.end, member.offset + member.elements)};
  }
};

// The messages of one member.
struct Messages {
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;

  void send(int peer, const float *from, Range range) {
    if (range.count() > 0)
      sends.push_back(
          {peer, from + range.begin, size_t(range.count()) * sizeof(float)});
  }
  void receive(int peer, float *to, Range range) {
    if (range.count() > 0)
      receives.push_back(
          {peer, to + range.begin, size_t(range.count()) * sizeof(float)});
  }
};

// The messages between a member's owner and the other ranks, to it or back.
// `elements` counts from the layout's first element.
Messages messagesOf(const Parts &parts, const Member &member, int owner,
                    int rank, int ranks, bool toOwner, float *elements) {
  Messages messages;
  for (int other = 0; other < ranks; ++other) {
    if (other == owner || (rank != owner && rank != other))
      continue;
    Range range =
        toOwner ? parts.sentBy(other, member) : parts.updatedBy(other, member);
    // The owner receives on the way to it and sends on the way back; every
    // other rank the reverse.
    bool sends = (rank == owner) != toOwner;
    int peer = rank == owner ? other : owner;
    if (sends)
      messages.send(peer, elements, range);
    else
      messages.receive(peer, elements, range);
  }
  return messages;
}

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
  // torch's adjust_lr_fn: "match_rms_adamw", or "original".
  double factor =
      matchRms ? 0.2 * std::sqrt(double(high))
               : std::sqrt(std::max(1.0, double(rows) / double(columns)));
  for (int64_t i = 0; i < count; ++i)
    result[i] = float(factor * double(found[at(i)]));
}

} // namespace

// Stable, so that equal members go to the same ranks everywhere; every rank
// computes this for itself.
std::vector<int> ownersOf(const Layout &layout, int ranks) {
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
    const LayoutBuffers &buffers = rank.layouts[size_t(index)];
    MomentumStep step{*static_cast<const float *>(scale),
                      clipValue > 0 ? float(clipValue)
                                    : std::numeric_limits<float>::infinity(),
                      maximize ? -1.f : 1.f, momentum, nesterov != 0};
    int64_t shard = buffers.shardOf(rank.job.rank),
            first = buffers.ownOf(rank.job.rank);
    forEachMember(
        layout, first, first + buffers.own,
        [&](size_t member, int64_t from, int64_t to) {
          const float *gradients = buffers.gradientShard + (from - shard),
                      *states = buffers.states + (from - buffers.partBegin);
          float *own = static_cast<float *>(updates) +
                       elementsBefore(layout, member) +
                       (from - layout.members[member].offset);
          parallelFor(to - from, grain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
              own[i] = step.update(gradients[i], states[i]);
          });
        });
  });
}

// The members follow each other in the same order on every rank, so that no two
// messages of a pair can be mistaken.
void HostDevice::moveMatrices(fsdpc_rank &rank, int32_t index, void *elements,
                              int32_t toOwners) {
  run(FSDPC_STREAM_REDUCE, [=, &rank] {
    const Layout &layout = rank.manifest.layouts[size_t(index)];
    Parts parts{layout, rank.layouts[size_t(index)]};
    if (layout.owned)
      return; // the owner has it whole
    std::vector<int> owners = ownersOf(layout, rank.job.size);
    auto *first = static_cast<float *>(elements);
    for (size_t m = 0; m < layout.members.size(); ++m) {
      const Member &member = layout.members[m];
      Messages messages =
          messagesOf(parts, member, owners[m], rank.job.rank, rank.job.size,
                     toOwners != 0, first - member.offset);
      // transfer posts all messages of a member before it waits for any, so no
      // pair of ranks can block each other.
      rank.job.channel[reduceChannel]->transfer(messages.sends,
                                                messages.receives);
      first += member.elements;
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
    std::vector<int> owners = ownersOf(layout, rank.job.size);
    // The owner of a layout has its matrices whole, so no rank is chosen.
    if (layout.owned)
      owners.assign(owners.size(), rank.layouts[size_t(index)].owner);
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
