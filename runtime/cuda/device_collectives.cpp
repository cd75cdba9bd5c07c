// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The calls of the CUDA device that communicate. A gradient that must be cast
// or padded before it travels is copied to scratch memory first. All layouts
// share this memory: they are processed in order on one stream.
//
// A single rank communicates with nobody and has no channels.
#include "runtime/abi/memory_plan.h"
#include "runtime/core/matrices.h"
#include "runtime/cuda/device.h"
#include "runtime/numeric/reduce.h"

namespace fsdpc::runtime {

Status CudaDevice::makeCollectives(const fsdpc_rank &rank) {
  if (isAlone())
    return {};
  CollectiveResources resources;
  resources.compute = context.streams[FSDPC_STREAM_COMPUTE];
  resources.gather = context.streams[FSDPC_STREAM_GATHER];
  resources.reduce = context.streams[FSDPC_STREAM_REDUCE];
  // Everything that is ever sent lies in the one allocation, so it is
  // registered once.
  resources.memory = memory.base();
  resources.bytes = memory.bytes();
  resources.notShared = memory.notShared();
  resources.places = memory.places();
  resources.scratch = collectiveScratch;
  resources.scratchBytes = size_t(scratchSizes().collectives);
  resources.sentBytes = wireCapacity;
  if (usesGroups(rank.manifest))
    resources.groups = {rank.groupRanks, reducesInGroups(rank.manifest)};
  auto made = fsdpc::runtime::makeCollectives(context.api, context.job, options,
                                              resources, chosen);
  FSDPC_TRY(made);
  channels = std::move(*made);
  if (options.graphs && !channel(reduceChannel).canCapture()) {
    options.graphs = false;
    chosen.push_back("no graphs: the ranks are threads of one process");
  }
  return {};
}

SentBytes CudaDevice::sentSoFar() const {
  SentBytes sum{};
  for (const std::unique_ptr<Collectives> &channel : channels) {
    SentBytes own = channel ? channel->sent() : SentBytes{};
    for (size_t level = 0; level < sum.size(); ++level)
      sum[level] += own[level];
  }
  return sum;
}

void CudaDevice::announce(const CallScope &scope, Channel on) {
  if (isAlone())
    return;
  channel(on).announce(scope.call.op.c_str(), scope.call.unit.c_str());
  context.commands.announced(on);
}

void CudaDevice::gatherBytes(const fsdpc_rank &rank, int32_t index,
                             const void *shard, void *whole, size_t bytes) {
  if (isAlone()) {
    if (shard != whole)
      context.copy(whole, shard, bytes, FSDPC_STREAM_GATHER);
  } else if (rank.manifest.layouts[size_t(index)].inGroups) {
    channel(gatherChannel).gatherInGroup(shard, whole, bytes);
  } else {
    channel(gatherChannel).allGather(shard, whole, bytes);
  }
}

// Offloaded parameters come to the device piece by piece.
void CudaDevice::gatherBlocks(const fsdpc_rank &rank, int32_t index,
                              void *whole) {
  const LayoutBuffers &layout = rank.layouts[size_t(index)];
  BlockType type = gatheredAs(rank, index);
  BlockForm form = {type, blockBytes(type)};
  WireType ownType =
      layout.masterShard ? WireType::f32 : computeTypeOf(rank, index);
  const char *from = layout.masterShard
                         ? reinterpret_cast<const char *>(layout.masterShard)
                         : layout.computeShard;
  auto width = elementBytes(ownType);
  char *own = rank.gatheredBlocks +
              layout.shardOf(rank.job.rank) / blockElements * form.bytes;
  bool isPinned = rank.manifest.layouts[size_t(index)].parametersOffloaded;
  int64_t most = isPinned ? offloadPieceElements : layout.shard;
  for (int64_t at = 0; at < layout.shard; at += most) {
    ToBlocks to;
    to.elements = std::min(most, layout.shard - at);
    to.count = to.elements / blockElements;
    to.from = from + at * width, to.type = ownType;
    to.to = own + at / blockElements * form.bytes, to.form = form;
    if (isPinned) {
      context.copy(rank.gatherPiece, to.from, size_t(to.elements * width),
                   FSDPC_STREAM_GATHER);
      to.from = rank.gatherPiece;
    }
    context.launch(to, to.elements / 4, FSDPC_STREAM_GATHER);
  }
  gatherBytes(rank, index, own, rank.gatheredBlocks,
              size_t(layout.shard / blockElements * form.bytes));
  FromBlocks back;
  back.from = rank.gatheredBlocks, back.form = form;
  back.to = whole, back.type = computeTypeOf(rank, index);
  back.elements = layout.whole;
  context.launch(back, layout.whole / 4, FSDPC_STREAM_GATHER);
}

// Without a compute copy in device memory the master is cast straight into this
// rank's place of the destination, which then gathers in place.
void CudaDevice::gatherParameters(const fsdpc_rank &rank, int32_t index,
                                  void *whole) {
  if (gatheredAs(rank, index) != BlockType::None)
    return gatherBlocks(rank, index, whole);
  WireType type = computeTypeOf(rank, index);
  const LayoutBuffers &layout = rank.layouts[size_t(index)];
  char *own = layout.computeShard;
  if (!own || isReadFromPinned(rank, index)) {
    own = static_cast<char *>(whole) +
          size_t(layout.shardOf(rank.job.rank)) * elementBytes(type);
    if (isReadFromPinned(rank, index))
      readParameters(rank, index, own);
    else
      castMaster(layout.masterShard, own, type, layout.shard);
  }
  gatherBytes(rank, index, own, whole,
              size_t(layout.shard) * elementBytes(type));
}

bool CudaDevice::isShared(const fsdpc_rank &rank, int32_t index) const {
  return !isAlone() && rank.manifest.layouts[size_t(index)].owned;
}

void CudaDevice::shareOwned(const fsdpc_rank &rank, int32_t index,
                            void *whole) {
  const LayoutBuffers &layout = rank.layouts[size_t(index)];
  shared.push_back({whole,
                    size_t(rank.manifest.layouts[size_t(index)].elements) *
                        elementBytes(computeTypeOf(rank, index)),
                    layout.owner});
}

void CudaDevice::flushShared() {
  if (!shared.empty())
    channel(gatherChannel).shareOwned(shared);
  shared.clear();
}

Status CudaDevice::uploadRanges() {
  for (const Layout &layout : context.manifest.layouts) {
    std::vector<MemberRange> own;
    if (readsMemberRanges(context.manifest, layout))
      for (const Member &member : layout.members)
        own.push_back({member.offset, member.offset + member.elements});
    ranges.push_back(nullptr);
    FSDPC_TRY(memory.uploadTable(own, ranges.back()));
  }
  return {};
}

// The first call makes the channels, since NCCL needs the memory to be
// allocated first in order to register it. A run that goes back to a checkpoint
// calls it again.
Status CudaDevice::gatherWholes(fsdpc_rank &rank) {
  if (!update->isPrepared()) {
    FSDPC_TRY(makeCollectives(rank));
    FSDPC_TRY(uploadRanges());
    FSDPC_TRY(uploadFirstStates());
    if (pinned)
      pinned->prepare(rank);
    FSDPC_TRY(update->prepare(rank));
  }
  for (size_t i = 0; i < rank.layouts.size(); ++i) {
    const LayoutBuffers &buffers = rank.layouts[i];
    auto index = int32_t(i);
    if (isShared(rank, index)) {
      shareOwned(rank, index, buffers.computeWhole);
      continue;
    }
    if (buffers.masterWhole)
      gatherWide(rank, index, buffers.masterShard, buffers.masterWhole);
    // In f32 the compute copy may be the master itself.
    bool separate =
        static_cast<void *>(buffers.masterWhole) != buffers.computeWhole;
    if (buffers.computeWhole && separate)
      gatherParameters(rank, index, buffers.computeWhole);
  }
  flushShared();
  // The loop may read or overwrite the wholes on any stream afterwards.
  synchronize();
  if (!isAlone())
    context.commands.start(channels);
  sent.start(sentSoFar());
  return {};
}

bool CudaDevice::isReadFromPinned(const fsdpc_rank &rank, int32_t index) const {
  return rank.manifest.layouts[size_t(index)].parametersOffloaded &&
         !rank.layouts[size_t(index)].computeWhole;
}

void CudaDevice::castMaster(const float *master, void *to, WireType type,
                            int64_t elements) {
  Cast cast;
  cast.from = master, cast.to = to;
  cast.toType = type;
  cast.elements = cast.padded = elements;
  context.launch(cast, elements / 4, FSDPC_STREAM_GATHER);
}

// In pieces, unless they have the compute type and go straight to their place.
void CudaDevice::readParameters(const fsdpc_rank &rank, int32_t index,
                                char *to) {
  const LayoutBuffers &layout = rank.layouts[size_t(index)];
  WireType type = computeTypeOf(rank, index);
  int64_t width = elementBytes(type);
  if (layout.computeShard)
    return context.copy(to, layout.computeShard, size_t(layout.shard * width),
                        FSDPC_STREAM_GATHER);
  auto *piece = reinterpret_cast<float *>(rank.gatherPiece);
  for (int64_t at = 0; at < layout.shard; at += offloadPieceElements) {
    int64_t count = std::min(offloadPieceElements, layout.shard - at);
    context.copy(piece, layout.masterShard + at, size_t(count) * sizeof(float),
                 FSDPC_STREAM_GATHER);
    castMaster(piece, to + at * width, type, count);
  }
}

// An owner's copy lies in the destination already.
void CudaDevice::allGather(fsdpc_rank &rank, int count, const int32_t *layouts,
                           void *const *destinations) {
  CallScope scope(context, FSDPC_STREAM_GATHER);
  announce(scope, gatherChannel);
  for (int i = 0; i < count; ++i)
    if (isGathered(rank, layouts[i], destinations[i]))
      continue;
    else if (isShared(rank, layouts[i]))
      shareOwned(rank, layouts[i], destinations[i]);
    else
      gatherParameters(rank, layouts[i], destinations[i]);
  flushShared();
}

void CudaDevice::keepSecondary(fsdpc_rank &rank, int count,
                               const int32_t *layouts, void *const *sources) {
  CallScope scope(context, FSDPC_STREAM_GATHER);
  for (int i = 0; i < count; ++i) {
    size_t bytes = secondaryBytes(rank, layouts[i]);
    size_t place = size_t(rank.job.rank % rank.groupRanks);
    context.copy(rank.layouts[size_t(layouts[i])].secondary,
                 static_cast<const char *>(sources[i]) + place * bytes, bytes,
                 FSDPC_STREAM_GATHER);
  }
}

void CudaDevice::gatherSecondary(fsdpc_rank &rank, int count,
                                 const int32_t *layouts,
                                 void *const *destinations) {
  CallScope scope(context, FSDPC_STREAM_GATHER);
  announce(scope, gatherChannel);
  for (int i = 0; i < count; ++i) {
    const void *shard = rank.layouts[size_t(layouts[i])].secondary;
    size_t bytes = secondaryBytes(rank, layouts[i]);
    if (isAlone())
      context.copy(destinations[i], shard, bytes, FSDPC_STREAM_GATHER);
    else
      channel(gatherChannel).gatherInGroup(shard, destinations[i], bytes);
  }
}

// An offloaded shard comes to the device to be added to, and goes back. A
// gradient that is unsummed lies where it is read already.
void CudaDevice::reduceCut(fsdpc_rank &rank, int32_t index,
                           const void *gradient, WireType type, bool add) {
  const LayoutBuffers &layout = rank.layouts[size_t(index)];
  if (layout.unsummed)
    return;
  if (!rank.manifest.layouts[size_t(index)].gradientOffloaded)
    return reduceTo(rank, index, gradient, type, layout.gradientShard, add);
  auto bytes = size_t(layout.shard) * sizeof(float);
  if (add)
    context.copy(rank.reducePiece, layout.gradientShard, bytes,
                 FSDPC_STREAM_REDUCE);
  reduceTo(rank, index, gradient, type, rank.reducePiece, add);
  context.copy(layout.gradientShard, rank.reducePiece, bytes,
               FSDPC_STREAM_REDUCE);
}

// `gradient` holds the layout's elements and, if it is accumulated, the padding
// too.
void CudaDevice::reduceTo(fsdpc_rank &rank, int32_t index, const void *gradient,
                          WireType type, float *shard, bool add) {
  const LayoutBuffers &layout = rank.layouts[size_t(index)];
  int64_t elements = rank.manifest.layouts[size_t(index)].elements;
  // The sum over one rank still rounds to the wire type, as every addend of
  // several ranks does.
  WireType wireOf = wireType(rank.manifest.reduceDtype);
  if (isAlone()) {
    SumRanks sum;
    sum.parts[0] = gradient;
    sum.type = type, sum.wire = wireOf;
    sum.elements = elements, sum.shardElements = layout.shard;
    sum.shard = shard, sum.add = add;
    context.launch(sum, layout.shard / 4, FSDPC_STREAM_REDUCE);
    return;
  }
  // The type in which the gradient travels depends on how the channel sums.
  // Only if it differs, or if padding is missing, is the gradient copied.
  DeviceReduction reduction;
  reduction.type = channel(reduceChannel).travels(type, wireOf);
  reduction.whole = gradient;
  reduction.shardElements = layout.shard;
  reduction.shard = shard;
  reduction.add = add;
  reduction.inGroups = rank.manifest.layouts[size_t(index)].inGroups;
  // An accumulated gradient is as long as all shards, and its padding is zero.
  bool padded = gradient == layout.gradientWhole || elements == layout.whole;
  if (type != reduction.type || !padded)
    reduction.whole =
        castToWire(gradient, type, reduction.type, elements, layout.whole, 0);
  channel(reduceChannel).reduceScatter(reduction);
}

// The sum of a single rank's blocks rounds as that of several does.
void CudaDevice::reduceBlocks(fsdpc_rank &rank, int32_t index,
                              const void *gradient, WireType type,
                              BlockType blocks, bool add) {
  const LayoutBuffers &layout = rank.layouts[size_t(index)];
  ToBlocks to;
  to.from = gradient, to.type = type;
  to.to = wire, to.form = {blocks, blockBytes(blocks)};
  to.count = layout.whole / blockElements;
  to.ranges = ranges[size_t(index)];
  to.rangeCount = int64_t(rank.manifest.layouts[size_t(index)].members.size());
  context.launch(to, layout.whole / 4, FSDPC_STREAM_REDUCE);
  if (isAlone()) {
    SumRanks sum;
    sum.parts[0] = wire;
    sum.blocks = to.form;
    sum.elements = sum.shardElements = layout.shard;
    sum.shard = layout.gradientShard, sum.add = add;
    context.launch(sum, layout.shard / 4, FSDPC_STREAM_REDUCE);
    return;
  }
  DeviceReduction reduction;
  reduction.whole = wire, reduction.blocks = blocks;
  reduction.shardElements = layout.shard;
  reduction.shard = layout.gradientShard;
  reduction.add = add;
  channel(reduceChannel).reduceScatter(reduction);
}

void *CudaDevice::castToWire(const void *gradient, WireType from, WireType to,
                             int64_t elements, int64_t padded, size_t offset) {
  Cast cast;
  cast.from = gradient, cast.to = static_cast<char *>(wire) + offset;
  cast.fromType = from, cast.toType = to;
  cast.elements = elements, cast.padded = padded;
  context.launch(cast, padded / 4, FSDPC_STREAM_REDUCE);
  return cast.to;
}

// As many at a time as the memory for gradients that travel holds.
void CudaDevice::reduceOwned(fsdpc_rank &rank, int32_t index,
                             const void *gradient, WireType type, bool add) {
  const LayoutBuffers &layout = rank.layouts[size_t(index)];
  int64_t elements = rank.manifest.layouts[size_t(index)].elements;
  WireType travels =
      channel(reduceChannel).travels(type, wireType(rank.manifest.reduceDtype));
  size_t bytes = ownedBytes(elements, elementBytes(travels));
  if (ownedSent + bytes > wireCapacity)
    flushOwned(add);
  if (type != travels)
    gradient =
        castToWire(gradient, type, travels, elements, elements, ownedSent);
  ownedSent += bytes;
  owned.push_back(
      {gradient, travels, elements, layout.owner, layout.gradientShard});
}

void CudaDevice::flushOwned(bool add) {
  if (!owned.empty())
    channel(reduceChannel).reduceToOwners(owned, add);
  owned.clear();
  ownedSent = 0;
}

// Reduces one layout's gradient over the ranks. Gradients of owners wait for
// flushOwned, so that several are reduced at once.
void CudaDevice::reduce(fsdpc_rank &rank, int32_t index, const void *gradient,
                        WireType type, bool add) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  BlockType blocks = blockTypeOf(rank.manifest.reduceDtype);
  if (isShared(rank, index))
    reduceOwned(rank, index, gradient, type, add);
  else if (layout.compression)
    reduceCompressed(rank, index, gradient, type, add);
  else if (blocks != BlockType::None)
    reduceBlocks(rank, index, gradient, type, blocks, add);
  else
    reduceCut(rank, index, gradient, type, add);
}

void CudaDevice::reduceScatter(fsdpc_rank &rank, int count,
                               const int32_t *layouts, void *const *gradients) {
  CallScope scope(context, FSDPC_STREAM_REDUCE);
  announce(scope, reduceChannel);
  // The first microbatch of a step overwrites the shard.
  bool add = rank.microbatch > 0;
  for (int i = 0; i < count; ++i)
    reduce(rank, layouts[i], gradients[i], computeTypeOf(rank, layouts[i]),
           add);
  flushOwned(add);
}

// A sum with a single rank: the same kernel widens and adds.
void CudaDevice::accumulate(fsdpc_rank &rank, int32_t layout,
                            const void *gradient) {
  CallScope scope(context, FSDPC_STREAM_COMPUTE);
  SumRanks sum;
  sum.parts[0] = gradient;
  sum.type = computeTypeOf(rank, layout);
  sum.elements = sum.shardElements =
      rank.manifest.layouts[size_t(layout)].elements;
  sum.shard = rank.layouts[size_t(layout)].gradientWhole;
  sum.add = rank.microbatch > 0;
  context.launch(sum, sum.elements / 4, FSDPC_STREAM_COMPUTE);
}

// Accumulated gradients are f32 and summed locally, so each step reduces them
// once and overwrites the shards.
void CudaDevice::reduceGradients(fsdpc_rank &rank, int count,
                                 const int32_t *layouts) {
  CallScope scope(context, FSDPC_STREAM_REDUCE);
  announce(scope, reduceChannel);
  for (int i = 0; i < count; ++i)
    reduce(rank, layouts[i], rank.layouts[size_t(layouts[i])].gradientWhole,
           WireType::f32, false);
  flushOwned(false);
}

void CudaDevice::gatherGradients(fsdpc_rank &rank, int count,
                                 const int32_t *layouts) {
  CallScope scope(context, FSDPC_STREAM_GATHER);
  announce(scope, gatherChannel);
  for (int i = 0; i < count; ++i) {
    const LayoutBuffers &layout = rank.layouts[size_t(layouts[i])];
    gatherWide(rank, layouts[i], layout.gradientShard, layout.gradientWhole);
  }
}

// The same for one layout, whose whole gradient has no memory of its own.
void CudaDevice::wholeGradient(fsdpc_rank &rank, int32_t index,
                               void *gradient) {
  CallScope scope(context, FSDPC_STREAM_GATHER);
  announce(scope, gatherChannel);
  const LayoutBuffers &layout = rank.layouts[size_t(index)];
  gatherWide(rank, index, layout.gradientShard, gradient);
}

// Gathers instead of reducing, because the running mean is applied once per
// rank, in rank order, and each application rounds.
void CudaDevice::updateStatistics(fsdpc_rank &rank, int32_t index,
                                  const void *statistic, double momentum,
                                  int32_t mode) {
  CallScope scope(context, FSDPC_STREAM_REDUCE);
  UpdateStatistics u =
      statisticsUpdate(mode, statistic, rank.statistics, rank.job.size);
  u.buffer = static_cast<float *>(rank.buffers[size_t(index)]);
  u.elements = bufferElements(rank.manifest.buffers[size_t(index)]);
  u.momentum = momentum;
  if (mode != FSDPC_BUFFERS_LOCAL) {
    announce(scope, reduceChannel);
    size_t bytes = size_t(u.elements) * sizeof(float);
    if (!isAlone())
      channel(reduceChannel).allGather(statistic, rank.statistics, bytes);
    else if (statistic != rank.statistics)
      context.copy(rank.statistics, statistic, bytes, FSDPC_STREAM_REDUCE);
  }
  context.launch(u, u.elements, FSDPC_STREAM_REDUCE);
}

// One exchange for all members, whose messages are in the same order on all
// ranks. The owner of a layout has its matrices whole.
void CudaDevice::moveMatrices(fsdpc_rank &rank, int32_t index, void *elements,
                              int32_t toOwners) {
  CallScope scope(context, FSDPC_STREAM_REDUCE);
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  if (isAlone() || layout.owned)
    return;
  announce(scope, reduceChannel);
  const LayoutBuffers &buffers = rank.layouts[size_t(index)];
  std::vector<int> owners = matrixOwners(layout, buffers, rank.job.size);
  MatrixMessages all;
  auto *first = static_cast<float *>(elements);
  for (size_t m = 0; m < layout.members.size(); ++m) {
    MatrixMessages own =
        matrixMessages(layout, buffers, m, owners[m], rank.job.rank,
                       rank.job.size, toOwners != 0, first);
    all.sends.insert(all.sends.end(), own.sends.begin(), own.sends.end());
    all.receives.insert(all.receives.end(), own.receives.begin(),
                        own.receives.end());
    first += layout.members[m].elements;
  }
  channel(reduceChannel).transfer(all.sends, all.receives);
}

// A single rank has nothing to add: the values are its sums already.
void CudaDevice::allReduce(fsdpc_rank &, int count, void *values) {
  CallScope scope(context, FSDPC_STREAM_REDUCE);
  announce(scope, reduceChannel);
  if (!isAlone())
    channel(reduceChannel).allReduce(static_cast<double *>(values), count);
}

} // namespace fsdpc::runtime
