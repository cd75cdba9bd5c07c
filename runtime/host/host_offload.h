// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the host's streams reach what is offloaded of layouts
// (runtime/core/shard_file.h): gathers read parameters, reductions read and
// write gradients, the norm reads them, and updates take pieces of all. Each
// function ends the job if the file fails.
#pragma once

#include "runtime/comm/reduce_scatter.h"
#include "runtime/core/rank.h"
#include "runtime/numeric/blocks.h"

#include <algorithm>

namespace fsdpc::runtime {

/// Writes this rank's shard of a layout's parameters to `to`, in the compute
/// type. Stream GATHER.
void readParameters(fsdpc_rank &rank, int32_t layout, void *to);
/// The same in `count` blocks, which hold the shard.
void readParameters(fsdpc_rank &rank, int32_t layout, Blocks blocks,
                    int64_t count);

/// Copy elements [begin, begin + count) of the shard of a layout's gradient,
/// which is offloaded. Reading is safe on any thread; writing is of the stream
/// REDUCE.
void readGradient(const fsdpc_rank &rank, int32_t layout, int64_t begin,
                  int64_t count, float *to);
void writeGradient(const fsdpc_rank &rank, int32_t layout, int64_t begin,
                   int64_t count, const float *from);

/// Ends the job at a failure of the file. Ranks may share the disk, and then
/// fail together; one of them says so.
void requireFile(const fsdpc_rank &rank, const Status &outcome);

/// Calls reduce(piece) for ranges of the shard that `part` describes, which is
/// offloaded: `part.shard` is not used, and that of a piece is memory that
/// holds the sums of before if it adds to them. Stream REDUCE.
template <class Reduce>
void reducePieces(fsdpc_rank &rank, int32_t layout, const ReduceScatter &part,
                  const Reduce &reduce) {
  ReduceScatter piece = part;
  piece.stride = part.shardElements;
  piece.shard = rank.reducePiece;
  for (int64_t begin = 0; begin < part.shardElements;
       begin += offloadPieceElements) {
    piece.gradient = gradientAt(part, begin);
    piece.elements = part.elements - begin;
    piece.shardElements =
        std::min(offloadPieceElements, part.shardElements - begin);
    if (part.add)
      readGradient(rank, layout, begin, piece.shardElements, piece.shard);
    reduce(piece);
    writeGradient(rank, layout, begin, piece.shardElements, piece.shard);
  }
}

/// Calls sum(operands, from, to) for ranges [from, to) of the elements of a
/// layout for which this rank answers in sums. `operands` are those of
/// memberSumOperands. If `isRead` says that the caller reads what is offloaded
/// of them, a range lies in one piece, and they lead to it. Stream COMPUTE.
template <class Sum>
void sumPieces(const fsdpc_rank &rank, int32_t layout, bool isRead,
               OptimizerOperands operands, const Sum &sum) {
  const LayoutBuffers &buffers = rank.layouts[size_t(layout)];
  int64_t first = buffers.ownOf(rank.job.rank), last = first + buffers.own;
  if (!isRead)
    return sum(operands, first, last);
  // A rank that owns no layout has no file.
  for (int64_t i = 0;
       first < last && i < rank.shardFile->pieces(size_t(layout)); ++i) {
    auto [begin, end] = rank.shardFile->rangeOf(size_t(layout), i);
    int64_t from = std::max(first, buffers.partBegin + begin),
            to = std::min(last, buffers.partBegin + end);
    if (from >= to)
      continue;
    auto piece = rank.shardFile->acquire(size_t(layout), i);
    requireFile(rank, piece ? Status() : Status(piece.error()));
    placePiece(operands, rank, layout, *piece);
    sum(operands, from, to);
  }
}

/// Calls update(piece) for the pieces of the part that this rank updates, and
/// then writes back the parameters that the next gathers read. A rank that owns
/// no layout has no file. Stream COMPUTE.
template <class Update>
void updatePieces(fsdpc_rank &rank, int32_t layout, const Update &update) {
  if (rank.layouts[size_t(layout)].part == 0)
    return;
  ShardFile &file = *rank.shardFile;
  for (int64_t i = 0; i < file.pieces(size_t(layout)); ++i) {
    auto piece = file.acquire(size_t(layout), i);
    requireFile(rank, piece ? Status() : Status(piece.error()));
    update(*piece);
    file.release();
  }
  if (rank.manifest.layouts[size_t(layout)].parametersOffloaded)
    requireFile(rank, file.flush());
}

} // namespace fsdpc::runtime
