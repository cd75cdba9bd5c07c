// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Cuts layouts into shards and writes a file per rank, piece by piece. The
// folder is that of --checkpoint, with its lock and its order of renames, so
// the result can be resumed from where it lies.
#include "tools/ckpt/checkpoint_writer.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/checkpoint/checkpoint_file.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/numeric/dtype.h"
#include "runtime/support/round_up.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace fsdpc::ckpt {

using namespace runtime;

namespace {

// The alignment of shards in a program's layouts (Manifest::shardAlignment).
// Any other number would do, since elements are found by their parameter.
constexpr int64_t shardAlignment = 32;
constexpr int64_t pieceElements = int64_t(checkpointPiece / sizeof(float));

// Calls write(piece) for the elements [first, last) of a layout, piece by
// piece. read(member, begin, count, to) has the values; gaps between parameters
// are zero.
template <typename T, typename Read, typename Write>
Status forPieces(const StoredLayout &layout, int64_t first, int64_t last,
                 const Read &read, const Write &write) {
  std::vector<T> piece;
  for (int64_t begin = first; begin < last; begin += pieceElements) {
    int64_t end = std::min(begin + pieceElements, last);
    piece.assign(size_t(end - begin), 0);
    for (const Member &member : layout.members) {
      int64_t from = std::max(begin, member.offset),
              to = std::min(end, member.offset + member.elements);
      if (from < to)
        FSDPC_TRY(read(member, from - member.offset, to - from,
                       &piece[size_t(from - begin)]));
    }
    FSDPC_TRY(write(piece));
  }
  return {};
}

// Writes elements [first, last) of a layout as a tensor of f32 or bf16.
template <typename Read>
Status writeRange(const StoredLayout &layout, int64_t first, int64_t last,
                  const std::string &dtype, const Read &read,
                  CheckpointFile &file) {
  FSDPC_TRY(forPieces<float>(
      layout, first, last, read, [&](const std::vector<float> &piece) {
        if (dtype == "f32")
          return file.write(piece.data(), piece.size() * sizeof(float));
        // The values were bf16 where they come from, so none changes.
        std::vector<uint16_t> halves(piece.size());
        std::transform(piece.begin(), piece.end(), halves.begin(), toBf16);
        return file.write(halves.data(), halves.size() * sizeof(uint16_t));
      }));
  file.endTensor();
  return {};
}

// Writes a rank's part of a layout of bytes.
Status writeBytes(const StoredLayout &layout, int64_t first,
                  const CheckpointValues &values, CheckpointFile &file) {
  FSDPC_TRY(forPieces<char>(layout, first, first + layout.heldShard(),
                            values.bytes, [&](const std::vector<char> &piece) {
                              return file.write(piece.data(), piece.size());
                            }));
  file.endTensor();
  return {};
}

// Writes a rank's part of a layout: master, states and what reductions have not
// sent.
Status writeLayout(const StoredLayout &layout, int64_t rank,
                   const CheckpointValues &values, CheckpointFile &file) {
  int64_t first = rank * layout.heldShard();
  if (layout.ofBytes())
    return writeBytes(layout, first, values, file);
  for (int32_t part = 0; part <= layout.states; ++part)
    FSDPC_TRY(writeRange(
        layout, first, first + layout.heldShard(),
        part == 0 ? layout.dtype : "f32",
        [&](const Member &member, int64_t begin, int64_t count, float *to) {
          return values.parameter(member, part, begin, count, to);
        },
        file));
  if (layout.residual > 0)
    FSDPC_TRY(writeRange(
        layout, 0, layout.residual, "f32",
        [&](const Member &member, int64_t begin, int64_t count, float *to) {
          return values.residual(member, rank, begin, count, to);
        },
        file));
  if (!layout.compression)
    return {};
  std::vector<float> state;
  for (size_t i = 0; rank == 0 && i < layout.members.size(); ++i) {
    state.resize(size_t(layout.compressionElements(i + 1) -
                        layout.compressionElements(i)));
    FSDPC_TRY(values.compressionState(layout.members[i], layout.compression,
                                      int64_t(state.size()), state.data()));
    FSDPC_TRY(file.write(state.data(), state.size() * sizeof(float)));
  }
  file.endTensor();
  return {};
}

// Writes the file of one rank in the order of tensorsOf(): the layouts, and for
// rank 0 the buffers, which are replicated. `sums` receives the checksums.
Status writeRank(const CheckpointManifest &stored, int64_t rank,
                 const CheckpointValues &values, const std::string &folder,
                 StoredFile &sums) {
  CheckpointFile file;
  FSDPC_TRY(file.open(folder, rank, tensorsOf(stored, int(rank)), sums));
  for (const StoredLayout &layout : stored.layouts)
    FSDPC_TRY(writeLayout(layout, rank, values, file));
  for (size_t i = 0; rank == 0 && i < stored.buffers.size(); ++i) {
    const Buffer &buffer = stored.buffers[i];
    std::vector<char> value(
        size_t(bufferElements(buffer) * dtypeBytes(buffer.dtype)));
    FSDPC_TRY(values.buffer(buffer, value.data()));
    FSDPC_TRY(file.write(value.data(), value.size()));
    file.endTensor();
  }
  return file.commit();
}

Status writeFiles(CheckpointManifest &stored, const CheckpointValues &values,
                  const std::string &folder) {
  stored.files.clear();
  // Shards are adjacent pieces of the flat buffer, so one file after the other
  // is written and only one piece is ever in memory.
  for (int64_t rank = 0; rank < stored.ranks; ++rank) {
    stored.files.emplace_back();
    FSDPC_TRY(writeRank(stored, rank, values, folder, stored.files.back()));
  }
  return writeManifest(folder, stored);
}

} // namespace

void cutFor(CheckpointManifest &stored, int64_t ranks) {
  stored.ranks = ranks;
  for (StoredLayout &layout : stored.layouts) {
    layout.group = 0; // shard r lies in file r, whatever wrote the source
    layout.owner = noOwner;
    int64_t elements = 1;
    for (const Member &member : layout.members)
      elements = std::max(elements, member.offset + member.elements);
    int64_t each = (elements + ranks - 1) / ranks;
    layout.shard = roundUp(each, shardAlignment);
  }
}

Status writeCheckpoint(CheckpointManifest stored,
                       const CheckpointValues &values,
                       const std::string &path) {
  CheckpointFolder folder;
  folder.name(path);
  FSDPC_TRY(folder.open());
  auto steps = folder.steps();
  FSDPC_TRY(steps);
  int64_t step = stored.state.step;
  if (std::find(steps->begin(), steps->end(), step) != steps->end())
    return inputError("'" + folder.folderOf(step) +
                      "' exists already; name another folder with -o");
  FSDPC_TRY(folder.begin(step));
  Status written = writeFiles(stored, values, folder.temporaryOf(step));
  // A failure removes the temporary folder; a folder of checkpoints never shows
  // half of one.
  if (written)
    written = folder.publish(step);
  if (!written)
    folder.drop(step);
  return written;
}

} // namespace fsdpc::ckpt
