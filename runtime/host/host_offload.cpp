// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads and writes the file of what is offloaded. The calls of different
// streams touch different elements of it, or are ordered by the program's
// events as those on memory are (verify-rt).
#include "runtime/host/host_offload.h"

#include "runtime/core/failure.h"

namespace fsdpc::runtime {

void requireFile(const fsdpc_rank &rank, const Status &outcome) {
  if (outcome)
    return;
  awaitTurn(rank.job, /*later=*/false);
  fail(outcome.error());
}

// Calls body(values, begin, count) for the pieces of this rank's parameters, in
// the type of the file.
template <class Body>
static void forEachPiece(fsdpc_rank &rank, int32_t layout, const Body &body) {
  int64_t shard = rank.layouts[size_t(layout)].shard;
  for (int64_t begin = 0; begin < shard; begin += offloadPieceElements) {
    int64_t count = std::min(offloadPieceElements, shard - begin);
    requireFile(rank, rank.shardFile->readParameters(size_t(layout), begin,
                                                     count, rank.gatherPiece));
    body(rank.gatherPiece, begin, count);
  }
}

// Values of the compute type need no piece.
void readParameters(fsdpc_rank &rank, int32_t layout, void *to) {
  WireType type = computeTypeOf(rank, layout);
  WireType stored = offloadedTypeOf(rank, layout);
  if (stored == type)
    return requireFile(
        rank, rank.shardFile->readParameters(
                  size_t(layout), 0, rank.layouts[size_t(layout)].shard, to));
  forEachPiece(
      rank, layout, [&](const char *values, int64_t begin, int64_t count) {
        castToWire(values, stored, type, count,
                   static_cast<char *>(to) + begin * elementBytes(type));
      });
}

// Shards and pieces are whole blocks.
void readParameters(fsdpc_rank &rank, int32_t layout, Blocks blocks,
                    int64_t count) {
  WireType stored = offloadedTypeOf(rank, layout);
  forEachPiece(
      rank, layout, [&](const char *values, int64_t begin, int64_t elements) {
        int64_t first = begin / blockElements;
        int64_t own = std::min(count - first, elements / blockElements);
        toBlocks(values, stored, elements, blocks.from(first), own);
      });
}

void readGradient(const fsdpc_rank &rank, int32_t layout, int64_t begin,
                  int64_t count, float *to) {
  requireFile(rank,
              rank.shardFile->readGradient(size_t(layout), begin, count, to));
}

void writeGradient(const fsdpc_rank &rank, int32_t layout, int64_t begin,
                   int64_t count, const float *from) {
  requireFile(
      rank, rank.shardFile->writeGradient(size_t(layout), begin, count, from));
}

} // namespace fsdpc::runtime
