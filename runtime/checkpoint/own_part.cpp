// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds a rank's own values in its memory or its file, whatever their type.
#include "runtime/checkpoint/own_part.h"
#include "runtime/core/shard_file.h"

#include <vector>

namespace fsdpc::runtime {

static OwnPart f32Part(const float *values) {
  return {reinterpret_cast<const char *>(values), WireType::f32};
}

static OwnPart partOf(const GradientShard &shard, int64_t first) {
  return {shard.at(first), shard.type};
}

// Replicated states hold the part at its place. The averages are the last of a
// layout's states; moments come before them.
OwnPart ownPart(const fsdpc_rank &rank, size_t index, Saved what) {
  const Layout &layout = rank.manifest.layouts[index];
  const LayoutBuffers &buffers = rank.layouts[index];
  int64_t own = buffers.ownOf(rank.job.rank);
  int64_t first = own - buffers.shardOf(rank.job.rank);
  if (what == Saved::gradients && rank.isInFile(layout.gradientOffloaded))
    return {nullptr, WireType::f32, first};
  if (what == Saved::gradients)
    return partOf(gradientShardOf(rank, int32_t(index)), first);
  if (what == Saved::averages && layout.average &&
      rank.isInFile(layout.statesOffloaded))
    return {nullptr, WireType::f32, own - buffers.partBegin};
  if (what == Saved::averages && layout.average)
    return f32Part(buffers.states + (layout.states - 1) * buffers.part + own -
                   buffers.partBegin);
  if (rank.isInFile(layout.parametersOffloaded))
    return {nullptr, offloadedTypeOf(rank, int32_t(index)), first};
  if (buffers.masterShard)
    return f32Part(buffers.masterShard + first);
  WireType type = computeTypeOf(rank, int32_t(index));
  return {buffers.computeShard + size_t(first) * elementBytes(type), type};
}

// Reads elements of this rank's part from the file, in the type of the part.
static Status readOffloaded(const fsdpc_rank &rank, size_t index, Saved what,
                            int64_t first, int64_t count, void *to) {
  const Layout &layout = rank.manifest.layouts[index];
  if (what == Saved::gradients)
    return rank.shardFile->readGradient(index, first, count,
                                        static_cast<float *>(to));
  if (what == Saved::averages && layout.average)
    return rank.shardFile->readStates(index, layout.states - 1, first, count,
                                      static_cast<float *>(to));
  return rank.shardFile->readParameters(index, first, count, to);
}

Result<const void *> readPiece(const fsdpc_rank &rank, size_t index, Saved what,
                               const OwnPart &own, int64_t begin, int64_t count,
                               void *place) {
  size_t width = elementBytes(own.type);
  const char *from = own.values ? own.values + size_t(begin) * width : nullptr;
  bool widens = own.type == WireType::bf16 || own.type == WireType::f16;
  if (from && !widens && rank.device->isHostMemory())
    return from;
  std::vector<char> narrow;
  void *to = place;
  if (widens) {
    narrow.resize(size_t(count) * width);
    to = narrow.data();
  }
  if (from)
    rank.device->download(to, from, size_t(count) * width);
  else
    FSDPC_TRY(readOffloaded(rank, index, what, own.first + begin, count, to));
  if (widens)
    castToWire(to, own.type, WireType::f32, count, place);
  return place;
}

} // namespace fsdpc::runtime
