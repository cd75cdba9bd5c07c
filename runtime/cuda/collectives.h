// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The collectives of one rank on its GPU, on one channel. A call enqueues on
// the channel's stream and returns. Ranks in processes of their own use NCCL;
// ranks that are threads of this process copy between their buffers, on one
// GPU. All ranks must make the same calls on a channel in the same order.
//
// A failure ends the job with one line (runtime/comm/failure.h) that names the
// rank, the step, the unit and the collective. So does a collective that the
// watchdog finds stuck.
#pragma once

#include "runtime/abi/blocks.h"
#include "runtime/comm/communicator.h"
#include "runtime/core/device.h"
#include "runtime/cuda/api.h"
#include "runtime/numeric/reduce.h"
#include "runtime/support/status.h"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace fsdpc::runtime {

/// The groups of ranks that some collectives are for, on top of those of all
/// ranks: N/G groups of G consecutive ranks (runtime/comm/groups.h).
struct CollectiveGroups {
  int ranks = 0;        ///< G, which divides N; 0: none are used
  bool reduces = false; ///< gradients, too, and not only gathers
};

/// The operands of a reduce-scatter: one layout's gradient.
struct DeviceReduction {
  /// This rank's addend: all shards, one after the other, with zeroes as
  /// padding, in the type that travels() returns. Work that is enqueued later
  /// on the stream may overwrite it, since all ranks have read it by then.
  const void *whole = nullptr;
  WireType type = WireType::f32;
  int64_t shardElements = 0;
  /// This rank's result. It may lie at its place inside `whole`.
  float *shard = nullptr;
  /// True: the sum continues from `shard`, which then lies outside `whole`.
  /// NCCL sums the ranks first, and the result is then added.
  bool add = false;
  /// The shards are those of a group's members: member m of every group gets
  /// part m of the sum over all ranks.
  bool inGroups = false;
  /// Unless None, `whole` is in such blocks, shards are whole blocks, and all
  /// is summed in f32 and in rank order. Not in groups.
  BlockType blocks = BlockType::None;

  /// Returns the bytes of a shard in `whole`.
  size_t shardBytes() const {
    return blocks != BlockType::None
               ? size_t(blockedBytes(shardElements, blocks))
               : size_t(shardElements) * elementBytes(type);
  }
};

class Collectives {
public:
  virtual ~Collectives() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns true if calls may be captured in a graph. Calls that meet other
  /// ranks on the host may not, since a replay does not run host code.
  virtual bool canCapture() const = 0;
  /// Returns the type in which a gradient must be given to reduceScatter.
  /// Either the sum is of values rounded to `wire`, in f32 and in rank order,
  /// or it is NCCL's, in its type and order.
  virtual WireType travels(WireType gradient, WireType wire) const = 0;

  /// Names the next call for messages, by operation and unit. The strings must
  /// outlive the object. A captured call keeps its name.
  virtual void announce(const char *op, const char *unit) = 0;
  /// Marks that work of `step` is enqueued or replayed from here on.
  virtual void beginSection(int64_t step) = 0;

  /// Return how many collectives calls have enqueued, without those of replays,
  /// and how often one has begun or ended on the stream, in 32 bits: an odd
  /// number while one runs. Any thread may call them.
  virtual uint64_t enqueued() const = 0;
  virtual uint32_t marks() const = 0;

  /// Returns the bytes that calls have sent so far, without those of replays
  /// and of allReduce; 0 where ranks read each other's memory.
  virtual SentBytes sent() const = 0;

  /// Writes rank r's `bytes` bytes at `shard` to whole[r · bytes …] for every
  /// r. `shard` may already lie at its place.
  virtual void allGather(const void *shard, void *whole, size_t bytes) = 0;
  /// The same among the ranks of this rank's group.
  virtual void gatherInGroup(const void *shard, void *whole, size_t bytes) = 0;
  /// Sums all ranks' gradients and leaves rank r with part r of the sum.
  virtual void reduceScatter(const DeviceReduction &reduction) = 0;
  /// Sums all ranks' gradients on their owners, or with `add` adds to what
  /// these have. The gradients have the types that travels() returns, and take
  /// at most ownedBytes (cuda_scratch.h) together. All ranks give the same
  /// list.
  virtual void reduceToOwners(std::span<const OwnedGradient> gradients,
                              bool add) = 0;
  /// Sends the values of each owner to all other ranks. All give the same list.
  virtual void shareOwned(std::span<const OwnedValues> values) = 0;
  /// Sends and receives messages of pairs of ranks, which match in their order.
  /// All ranks call it, also without messages. The bytes to send do not overlap
  /// with those to receive, and stay until later work of the stream.
  virtual void transfer(std::span<const Outgoing> sends,
                        std::span<const Incoming> receives) = 0;
  /// Sums `count` f64 values over the ranks, in rank order and in place.
  virtual void allReduce(double *values, int count) = 0;
};

/// Streams and memory that the device gives its collectives.
struct CollectiveResources {
  /// The rank's streams. Sections begin and end on `compute`.
  CudaStream compute = nullptr, gather = nullptr, reduce = nullptr;
  void *memory =
      nullptr; ///< the device's only allocation, for NCCL to register
  size_t bytes = 0;
  /// Why it is not memory of CudaApi::allocateShared; empty if it is.
  std::string notShared = "it is not allocated by NCCL";
  /// Equal on two ranks whose buffers lie at the same places of the memory.
  uint64_t places = 0;
  /// Memory within it of collectiveScratchBytes (cuda_scratch.h), of which the
  /// values of gradients take `sentBytes`.
  void *scratch = nullptr;
  size_t scratchBytes = 0, sentBytes = 0;
  CollectiveGroups groups;
};

/// Makes the channels gatherChannel and reduceChannel of the job's rank. All
/// ranks call it together. Adds lines for the log to `notes`.
using CollectiveChannels = std::array<std::unique_ptr<Collectives>, 2>;
Result<CollectiveChannels> makeCollectives(CudaApi &api, Job &job,
                                           const DeviceOptions &options,
                                           const CollectiveResources &resources,
                                           std::vector<std::string> &notes);

} // namespace fsdpc::runtime
