// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The collectives of the host device: they call the job's communicators on the
// threads of their streams. Layouts of one call are processed one after the
// other.
#include "runtime/host/host_device.h"

#include "runtime/comm/compressed_reduction.h"
#include "runtime/comm/reduce_scatter.h"
#include "runtime/core/rank.h"
#include "runtime/host/host_offload.h"
#include "runtime/numeric/blocks.h"
#include "runtime/numeric/dtype.h"
#include "runtime/numeric/statistics_update.h"

#include <cstring>

namespace fsdpc::runtime {

namespace {

// Each stream has its own channel, so collectives of both overlap.
Communicator &channelOf(fsdpc_rank &rank, Channel channel) {
  return *rank.job.channel[channel];
}

// The ranks over which a layout is cut, on the gather channel.
Communicator &gathererOf(fsdpc_rank &rank, int32_t layout) {
  return rank.manifest.layouts[size_t(layout)].inGroups
             ? rank.groups[gatherChannel]->inner()
             : channelOf(rank, gatherChannel);
}

// Gathers a layout's parameters in the compute type. Without a compute copy the
// master is cast straight into this rank's place of the destination, which then
// gathers in place.
void gatherValues(fsdpc_rank &rank, int32_t index, void *destination) {
  WireType type = computeTypeOf(rank, index);
  const LayoutBuffers &layout = rank.layouts[size_t(index)];
  size_t bytes = size_t(layout.shard) * elementBytes(type);
  if (layout.gathered)
    return gathererOf(rank, index).allGatherInPlace(bytes);
  char *own = layout.computeShard;
  if (!own) {
    own = static_cast<char *>(destination) +
          size_t(layout.shardOf(rank.job.rank)) * elementBytes(type);
    if (rank.manifest.layouts[size_t(index)].parametersOffloaded)
      readParameters(rank, index, own);
    else
      castToWire(layout.masterShard, WireType::f32, type, layout.shard, own);
  }
  gathererOf(rank, index).allGather(own, destination, bytes);
}

// The same in blocks, which are converted to the compute type when all are
// there. So every rank computes with the same rounded values, also of its own
// shard.
void gatherBlocks(fsdpc_rank &rank, int32_t index, void *destination) {
  WireType type = computeTypeOf(rank, index);
  const LayoutBuffers &layout = rank.layouts[size_t(index)];
  Blocks blocks{rank.gatheredBlocks, gatheredAs(rank, index)};
  Blocks own = blocks.from(layout.shardOf(rank.job.rank) / blockElements);
  int64_t count = layout.shard / blockElements;
  if (rank.manifest.layouts[size_t(index)].parametersOffloaded)
    readParameters(rank, index, own, count);
  else if (layout.masterShard)
    toBlocks(layout.masterShard, WireType::f32, layout.shard, own, count);
  else
    toBlocks(layout.computeShard, type, layout.shard, own, count);
  gathererOf(rank, index)
      .allGather(own.bytes, blocks.bytes,
                 size_t(count * blockBytes(blocks.type)));
  fromBlocks(blocks, layout.whole, type, destination);
}

void gather(fsdpc_rank &rank, int32_t index, void *destination) {
  if (gatheredAs(rank, index) == BlockType::None)
    gatherValues(rank, index, destination);
  else
    gatherBlocks(rank, index, destination);
}

// A layout's parameters in the compute type, as their owner shares them.
OwnedValues ownedValues(const fsdpc_rank &rank, int32_t index, void *whole) {
  int64_t elements = rank.manifest.layouts[size_t(index)].elements;
  return {whole, size_t(elements) * elementBytes(computeTypeOf(rank, index)),
          rank.layouts[size_t(index)].owner};
}

// Calls body(i) for each layout that is cut over ranks, and lists those that
// one rank owns as entry(i) describes them to a communicator.
template <typename Entry, typename Body>
void splitOwned(const fsdpc_rank &rank, int count, const int32_t *layouts,
                std::vector<std::invoke_result_t<Entry, int>> &owned,
                const Entry &entry, const Body &body) {
  owned.clear();
  for (int i = 0; i < count; ++i)
    if (rank.manifest.layouts[size_t(layouts[i])].owned)
      owned.push_back(entry(i));
    else
      body(i);
}

// Sums what all ranks send of their gradients. Every rank can compute the whole
// sum, and where the state is replicated it takes all of it.
void reduceCompressedShard(fsdpc_rank &rank, int32_t index,
                           const void *gradient, WireType type, bool add) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  const LayoutBuffers &buffers = rank.layouts[size_t(index)];
  bool whole = layout.stateWhole;
  reduceCompressed(channelOf(rank, reduceChannel),
                   {layout.compression, gradient, type, layout.elements,
                    layout.members, buffers.residual, buffers.compression,
                    rank.compressed,
                    whole ? buffers.gradientWhole : buffers.gradientShard,
                    whole ? 0 : buffers.shardOf(rank.job.rank),
                    whole ? buffers.whole : buffers.shard, add});
}

} // namespace

// Sums a layout's gradients over all ranks into this rank's shard. One that is
// unsummed lies there already.
void HostDevice::reduceShard(fsdpc_rank &rank, int32_t index,
                             const void *gradient, WireType type, bool add) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  if (layout.unsummed)
    return;
  if (layout.compression)
    return reduceCompressedShard(rank, index, gradient, type, add);
  const LayoutBuffers &buffers = rank.layouts[size_t(index)];
  ReduceScatter part = {gradient,
                        type,
                        wireType(rank.manifest.reduceDtype),
                        layout.elements,
                        buffers.shard,
                        buffers.gradientShard,
                        add};
  BlockType blocks = blockTypeOf(rank.manifest.reduceDtype);
  auto reduce = [&](const ReduceScatter &range) {
    if (layout.inGroups)
      rank.groups[reduceChannel]->reduceScatter(range);
    else
      channelOf(rank, reduceChannel).reduceScatter(range);
  };
  if (blocks != BlockType::None)
    blockReducer.reduceScatter(channelOf(rank, reduceChannel), part,
                               layout.members, blocks, rank.reducedBlocks);
  else if (layout.gradientOffloaded)
    reducePieces(rank, index, part, reduce);
  else
    reduce(part);
}

// Sums gradients over all ranks: those of owned layouts together, on their
// owners. gradientOf(i) is that of layout i. Padding stays zero, which it is
// from the start.
template <typename GradientOf>
void HostDevice::reduce(fsdpc_rank &rank, int count, const int32_t *layouts,
                        const GradientOf &gradientOf, bool add) {
  splitOwned(
      rank, count, layouts, ownedGradients,
      [&](int i) {
        auto [gradient, type] = gradientOf(i);
        const LayoutBuffers &buffers = rank.layouts[size_t(layouts[i])];
        return OwnedGradient{gradient, type,
                             rank.manifest.layouts[size_t(layouts[i])].elements,
                             buffers.owner, buffers.gradientShard};
      },
      [&](int i) {
        auto [gradient, type] = gradientOf(i);
        reduceShard(rank, layouts[i], gradient, type, add);
      });
  if (!ownedGradients.empty())
    channelOf(rank, reduceChannel)
        .reduceToOwners(ownedGradients, wireType(rank.manifest.reduceDtype),
                        add);
}

// An owner's copy lies in the destination already. Shards that all ranks read
// where they lie are updated only after the exchange of the step's losses, when
// all have read them. So the ranks must meet only between the updates and the
// first gather behind them.
void HostDevice::allGather(fsdpc_rank &rank, int count, const int32_t *layouts,
                           void *const *destinations) {
  bool meets = meetsForGather &&
               std::any_of(layouts, layouts + count, [&](int32_t index) {
                 return rank.layouts[size_t(index)].gathered;
               });
  meetsForGather &= !meets;
  layouts = keep(FSDPC_STREAM_GATHER, layouts, count);
  void *const *to = keep(FSDPC_STREAM_GATHER, destinations, count);
  run(FSDPC_STREAM_GATHER, [=, this, &rank] {
    if (meets)
      channelOf(rank, gatherChannel).barrier();
    auto shareOf = [&](int i) { return ownedValues(rank, layouts[i], to[i]); };
    splitOwned(rank, count, layouts, shared, shareOf,
               [&](int i) { gather(rank, layouts[i], to[i]); });
    if (!shared.empty())
      channelOf(rank, gatherChannel).shareOwned(shared);
  });
}

// The part lies within what all ranks have sent, so it is only copied.
void HostDevice::keepSecondary(fsdpc_rank &rank, int count,
                               const int32_t *layouts, void *const *sources) {
  layouts = keep(FSDPC_STREAM_GATHER, layouts, count);
  void *const *from = keep(FSDPC_STREAM_GATHER, sources, count);
  run(FSDPC_STREAM_GATHER, [=, &rank] {
    for (int i = 0; i < count; ++i) {
      size_t bytes = secondaryBytes(rank, layouts[i]);
      // Groups are runs of ranks, so this is the rank's number in its group.
      size_t place = size_t(rank.job.rank % rank.groupRanks);
      std::memcpy(rank.layouts[size_t(layouts[i])].secondary,
                  static_cast<const char *>(from[i]) + place * bytes, bytes);
    }
  });
}

void HostDevice::gatherSecondary(fsdpc_rank &rank, int count,
                                 const int32_t *layouts,
                                 void *const *destinations) {
  layouts = keep(FSDPC_STREAM_GATHER, layouts, count);
  void *const *to = keep(FSDPC_STREAM_GATHER, destinations, count);
  run(FSDPC_STREAM_GATHER, [=, &rank] {
    for (int i = 0; i < count; ++i)
      rank.groups[gatherChannel]->inner().allGather(
          rank.layouts[size_t(layouts[i])].secondary, to[i],
          secondaryBytes(rank, layouts[i]));
  });
}

// The first microbatch of a step overwrites the gradient shards and later ones
// add. `add` is taken now: `microbatch` belongs to the loop.
void HostDevice::reduceScatter(fsdpc_rank &rank, int count,
                               const int32_t *layouts, void *const *gradients) {
  bool add = rank.microbatch > 0;
  layouts = keep(FSDPC_STREAM_REDUCE, layouts, count);
  void *const *from = keep(FSDPC_STREAM_REDUCE, gradients, count);
  run(FSDPC_STREAM_REDUCE, [=, this, &rank] {
    reduce(
        rank, count, layouts,
        [&](int i) { return Addend{from[i], computeTypeOf(rank, layouts[i])}; },
        add);
  });
}

// Adds a gradient to the replicated accumulator in f32, without communication.
// The gradient has no padding; that of the accumulated one stays zero.
void HostDevice::accumulate(fsdpc_rank &rank, int32_t index,
                            const void *gradient) {
  float *to = rank.layouts[size_t(index)].gradientWhole;
  int64_t elements = rank.manifest.layouts[size_t(index)].elements;
  bool add = rank.microbatch > 0;
  WireType type = computeTypeOf(rank, index);
  run(FSDPC_STREAM_COMPUTE, [=, this] {
    parallelFor(elements, 1 << 16, [=](int64_t begin, int64_t end) {
      auto *values = static_cast<const char *>(gradient);
      Addend own = {values + begin * elementBytes(type), type};
      sumRanks(&own, 1, WireType::f32, end - begin, to + begin, add);
    });
  });
}

// Once per step, for layouts that accumulated replicated gradients. The result
// overwrites the shard, which may be a part of the operand.
void HostDevice::reduceGradients(fsdpc_rank &rank, int count,
                                 const int32_t *layouts) {
  layouts = keep(FSDPC_STREAM_REDUCE, layouts, count);
  run(FSDPC_STREAM_REDUCE, [=, this, &rank] {
    reduce(
        rank, count, layouts,
        [&](int i) {
          return Addend{rank.layouts[size_t(layouts[i])].gradientWhole,
                        WireType::f32};
        },
        false);
  });
}

// Afterwards every rank has all reduced shards, as an optimizer with replicated
// state needs.
void HostDevice::gatherGradients(fsdpc_rank &rank, int count,
                                 const int32_t *layouts) {
  layouts = keep(FSDPC_STREAM_GATHER, layouts, count);
  run(FSDPC_STREAM_GATHER, [=, &rank] {
    for (int i = 0; i < count; ++i) {
      int32_t index = layouts[i];
      const LayoutBuffers &layout = rank.layouts[size_t(index)];
      gathererOf(rank, index)
          .allGather(layout.gradientShard, layout.gradientWhole,
                     size_t(layout.shard) * sizeof(float));
    }
  });
}

// The same for one layout, whose whole gradient has no memory of its own.
void HostDevice::wholeGradient(fsdpc_rank &rank, int32_t index,
                               void *gradient) {
  run(FSDPC_STREAM_GATHER, [=, &rank] {
    const LayoutBuffers &layout = rank.layouts[size_t(index)];
    gathererOf(rank, index)
        .allGather(layout.gradientShard, gradient,
                   size_t(layout.shard) * sizeof(float));
  });
}

// Batch statistics of different ranks are different batches, so by default each
// moves the average in turn. All ranks gather and do the same, so that the
// replicated buffer stays equal, but in the mode that communicates nothing.
void HostDevice::updateStatistics(fsdpc_rank &rank, int32_t index,
                                  const void *statistic, double momentum,
                                  int32_t mode) {
  UpdateStatistics update =
      statisticsUpdate(mode, statistic, rank.statistics, rank.job.size);
  update.buffer = static_cast<float *>(rank.buffers[size_t(index)]);
  update.elements = bufferElements(rank.manifest.buffers[size_t(index)]);
  update.momentum = momentum;
  run(FSDPC_STREAM_REDUCE, [=, &rank] {
    if (mode != FSDPC_BUFFERS_LOCAL)
      channelOf(rank, reduceChannel)
          .allGather(statistic, rank.statistics,
                     size_t(update.elements) * sizeof(float));
    for (int64_t i = 0; i < update.elements; ++i)
      updateElement(update, i);
  });
}

// The values are f64 on every backend.
void HostDevice::allReduce(fsdpc_rank &rank, int count, void *values) {
  run(FSDPC_STREAM_REDUCE, [=, &rank] {
    channelOf(rank, reduceChannel)
        .allReduce(static_cast<double *>(values), count);
  });
}

// Runs on the calling thread: no stream has work yet.
Status HostDevice::gatherWholes(fsdpc_rank &rank) {
  shared.clear();
  for (size_t i = 0; i < rank.layouts.size(); ++i) {
    if (rank.manifest.layouts[i].owned) {
      shared.push_back(
          ownedValues(rank, int32_t(i), rank.layouts[i].computeWhole));
      continue;
    }
    const LayoutBuffers &buffers = rank.layouts[i];
    if (buffers.masterWhole)
      gathererOf(rank, int32_t(i))
          .allGather(buffers.masterShard, buffers.masterWhole,
                     size_t(buffers.shard) * sizeof(float));
    // With f32 compute both names may mean one buffer, which is gathered once.
    bool separate =
        static_cast<void *>(buffers.masterWhole) != buffers.computeWhole;
    if (buffers.computeWhole && separate)
      gather(rank, int32_t(i), buffers.computeWhole);
  }
  if (!shared.empty())
    channelOf(rank, gatherChannel).shareOwned(shared);
  return {};
}

} // namespace fsdpc::runtime
