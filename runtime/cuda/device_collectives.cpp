// The calls of the CUDA device that communicate. A gradient that must be cast
// or padded before it travels is copied to scratch memory first. All layouts
// share this memory: they are processed in order on one stream.
//
// A single rank communicates with nobody and has no channels.
#include "runtime/comm/reduce.h"
#include "runtime/cuda/device.h"
#include "shared/memory_plan.h"

namespace fsdpc::runtime {

Status CudaDevice::makeCollectives() {
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
  resources.scratch = collectiveScratch;
  auto made = fsdpc::runtime::makeCollectives(context.api, context.job, options,
                                              resources);
  FSDPC_TRY(made);
  channels = std::move(*made);
  if (options.graphs && !channel(reduceChannel).canCapture()) {
    options.graphs = false;
    chosen.push_back("no graphs: the ranks are threads of one process");
  }
  return {};
}

void CudaDevice::announce(const CallScope &scope, Channel on) {
  if (isAlone())
    return;
  channel(on).announce(scope.call.op.c_str(), scope.call.unit.c_str());
  context.commands.announced(on);
}

void CudaDevice::gather(const void *shard, void *whole, size_t bytes,
                        Channel on, int stream) {
  if (!isAlone())
    channel(on).allGather(shard, whole, bytes);
  else if (shard != whole)
    context.copy(whole, shard, bytes, stream);
}

// Makes the channels here, since NCCL needs the memory to be allocated first in
// order to register it.
Status CudaDevice::gatherWholes(fsdpc_rank &rank) {
  FSDPC_TRY(makeCollectives());
  FSDPC_TRY(update->prepare(rank));
  for (size_t i = 0; i < rank.layouts.size(); ++i) {
    const LayoutBuffers &buffers = rank.layouts[i];
    if (buffers.masterWhole)
      gather(buffers.masterShard, buffers.masterWhole,
             size_t(buffers.shard) * sizeof(float), gatherChannel,
             FSDPC_STREAM_GATHER);
    // In f32 the compute copy may be the master itself.
    bool separate =
        static_cast<void *>(buffers.masterWhole) != buffers.computeWhole;
    if (buffers.computeWhole && separate)
      gather(buffers.computeShard, buffers.computeWhole,
             size_t(buffers.shard) * wireBytes(computeTypeOf(rank, int32_t(i))),
             gatherChannel, FSDPC_STREAM_GATHER);
  }
  // The loop may read or overwrite the wholes on any stream afterwards.
  synchronize();
  if (!isAlone())
    context.commands.start(channels);
  return {};
}

// Without a compute copy the master is cast straight into this rank's place of
// the destination, which then gathers in place.
void CudaDevice::allGather(fsdpc_rank &rank, int count, const int32_t *layouts,
                           void *const *destinations) {
  CallScope scope(context, FSDPC_STREAM_GATHER);
  announce(scope, gatherChannel);
  for (int i = 0; i < count; ++i) {
    WireType type = computeTypeOf(rank, layouts[i]);
    const LayoutBuffers &layout = rank.layouts[size_t(layouts[i])];
    size_t bytes = size_t(layout.shard) * wireBytes(type);
    char *own = layout.computeShard;
    if (!own) {
      own =
          static_cast<char *>(destinations[i]) + size_t(rank.job.rank) * bytes;
      Cast cast;
      cast.from = layout.masterShard, cast.to = own;
      cast.toType = type;
      cast.elements = cast.padded = layout.shard;
      context.launch(cast, layout.shard / 4, FSDPC_STREAM_GATHER);
    }
    gather(own, destinations[i], bytes, gatherChannel, FSDPC_STREAM_GATHER);
  }
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
      channel(gatherChannel)
          .gatherInGroup(shard, destinations[i], bytes, rank.groupRanks);
  }
}

// Reduces one layout's gradient over the ranks. `gradient` holds the layout's
// elements and, if it is accumulated, the padding too.
void CudaDevice::reduce(fsdpc_rank &rank, int32_t index, const void *gradient,
                        WireType type, bool add) {
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
    sum.shard = layout.gradientShard, sum.add = add;
    context.launch(sum, layout.shard / 4, FSDPC_STREAM_REDUCE);
    return;
  }
  // The type in which the gradient travels depends on how the channel sums.
  // Only if it differs, or if padding is missing, is the gradient copied.
  DeviceReduction reduction;
  reduction.type = channel(reduceChannel).travels(type, wireOf);
  reduction.whole = gradient;
  reduction.shardElements = layout.shard;
  reduction.shard = layout.gradientShard;
  reduction.add = add;
  // An accumulated gradient is as long as all shards, and its padding is zero.
  bool padded = gradient == layout.gradientWhole || elements == layout.whole;
  if (type != reduction.type || !padded) {
    Cast cast;
    cast.from = gradient, cast.to = wire;
    cast.fromType = type, cast.toType = reduction.type;
    cast.elements = elements, cast.padded = layout.whole;
    context.launch(cast, layout.whole / 4, FSDPC_STREAM_REDUCE);
    reduction.whole = wire;
  }
  channel(reduceChannel).reduceScatter(reduction);
}

void CudaDevice::reduceScatter(fsdpc_rank &rank, int count,
                               const int32_t *layouts, void *const *gradients) {
  CallScope scope(context, FSDPC_STREAM_REDUCE);
  announce(scope, reduceChannel);
  for (int i = 0; i < count; ++i)
    // The first microbatch of a step overwrites the shard.
    reduce(rank, layouts[i], gradients[i], computeTypeOf(rank, layouts[i]),
           rank.microbatch > 0);
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
}

void CudaDevice::gatherGradients(fsdpc_rank &rank, int count,
                                 const int32_t *layouts) {
  CallScope scope(context, FSDPC_STREAM_GATHER);
  announce(scope, gatherChannel);
  for (int i = 0; i < count; ++i) {
    const LayoutBuffers &layout = rank.layouts[size_t(layouts[i])];
    gather(layout.gradientShard, layout.gradientWhole,
           size_t(layout.shard) * sizeof(float), gatherChannel,
           FSDPC_STREAM_GATHER);
  }
}

// The same for one layout, whose whole gradient has no memory of its own.
void CudaDevice::wholeGradient(fsdpc_rank &rank, int32_t index,
                               void *gradient) {
  CallScope scope(context, FSDPC_STREAM_GATHER);
  announce(scope, gatherChannel);
  const LayoutBuffers &layout = rank.layouts[size_t(index)];
  gather(layout.gradientShard, gradient, size_t(layout.shard) * sizeof(float),
         gatherChannel, FSDPC_STREAM_GATHER);
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
    gather(statistic, rank.statistics, size_t(u.elements) * sizeof(float),
           reduceChannel, FSDPC_STREAM_REDUCE);
  }
  context.launch(u, u.elements, FSDPC_STREAM_REDUCE);
}

// A single rank has nothing to add: the values are its sums already.
void CudaDevice::allReduce(fsdpc_rank &, int count, void *values) {
  CallScope scope(context, FSDPC_STREAM_REDUCE);
  announce(scope, reduceChannel);
  if (!isAlone())
    channel(reduceChannel).allReduce(static_cast<double *>(values), count);
}

} // namespace fsdpc::runtime
