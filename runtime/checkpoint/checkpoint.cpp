// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes parameters, averages or gradients as safetensors. The shards of a
// layout travel to rank 0 in pieces of at most 4 MiB over all ranks together,
// and rank 0 writes the members' parts of each piece to their places in the
// file. So no rank holds a whole layout, and only rank 0 needs access to the
// path.
//
// The file appears under its name only when it is complete: a run that is
// killed leaves the previous checkpoint intact, and no other file where the
// file system has files without names: the end of any rank ends rank 0 too.
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/member_order.h"
#include "runtime/checkpoint/own_part.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/reduce_scatter.h"
#include "runtime/core/failure.h"
#include "runtime/data/safetensors.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::runtime {
namespace {

// 4 MiB of f32 in the staging buffer, for all ranks together.
constexpr int64_t pieceElements = 1 << 20;

// The offset of each tensor's data in the file, in bytes.
struct Offsets {
  std::vector<std::vector<uint64_t>> members;       // per layout
  std::vector<std::pair<size_t, uint64_t>> buffers; // with their index
};

bool isSaved(const Layout &layout, Saved what, const SavedForm &form) {
  return layout.trainable || (what != Saved::gradients && form.base.empty());
}

// Builds the header and fills in `offsets`.
std::string describe(const Manifest &manifest, Saved what,
                     const SavedForm &form, Offsets &offsets) {
  SafeTensorsHeader header;
  header.setBase(form.base);
  header.setRenaming(form.names);
  for (const Layout &layout : manifest.layouts)
    offsets.members.emplace_back(layout.members.size());
  for (auto [index, place] : membersInOrder(manifest.layouts)) {
    const Layout &layout = manifest.layouts[index];
    const Member &member = layout.members[place];
    // An aliased name is a second entry in the header with the same offsets, so
    // the data is written once.
    if (isSaved(layout, what, form))
      offsets.members[index][place] =
          header.add(member.name, layout.ofBytes ? member.dtype : "f32",
                     member.shape, member.aliases);
  }
  if (what != Saved::gradients)
    for (size_t i = 0; i < manifest.buffers.size(); ++i)
      if (const Buffer &buffer = manifest.buffers[i]; !buffer.optimizerState)
        offsets.buffers.emplace_back(i,
                                     header.add(buffer.name, buffer.dtype,
                                                buffer.shape, buffer.aliases));
  std::string text = header.text();
  // Offsets count from the data's start until the length of the header is
  // known.
  for (auto &layout : offsets.members)
    for (uint64_t &offset : layout)
      offset += text.size();
  for (auto &[index, offset] : offsets.buffers)
    offset += text.size();
  return text;
}

// Brings a piece from its owner to rank 0. The other ranks have no part in it.
void takeFromOwner(fsdpc_rank &rank, int owner, const void *piece, void *to,
                   size_t bytes) {
  Communicator &ranks = *rank.job.channel[controlChannel];
  if (owner != 0 && rank.job.rank == owner)
    send(ranks, piece, bytes, 0);
  else if (owner != 0 && rank.job.rank == 0)
    receive(ranks, to, bytes, owner);
  else if (rank.job.rank == owner && piece != to)
    std::memcpy(to, piece, bytes);
}

// Gathers one layout piece by piece and writes it on rank 0, in f32 or as the
// bytes that it holds. Gradients are divided by V and by the loss's scale, so
// that the file holds means. Fails
// only if this rank cannot read what it has offloaded; the others then wait for
// it.
Status saveLayout(fsdpc_rank &rank, size_t index, Saved what,
                  const std::vector<uint64_t> &offsets, NewFile &file,
                  std::vector<float> &staging) {
  const Layout &layout = rank.manifest.layouts[index];
  const LayoutBuffers &buffers = rank.layouts[index];
  OwnPart own = ownPart(rank, index, what);
  int sources = layout.owned ? 1 : rank.job.size;
  bool hasPart = !layout.owned || rank.job.rank == buffers.owner;
  int64_t length = layout.owned ? buffers.whole : buffers.own;
  size_t width = layout.ofBytes ? 1 : sizeof(float);
  auto *staged = reinterpret_cast<char *>(staging.data());
  // Elements per rank and piece. The same for all ranks, as all-gather demands.
  // Shards of a layout are of one size, so all ranks also take the same number
  // of pieces. That of an owned layout comes from its owner.
  int64_t most = std::max<int64_t>(1, pieceElements / rank.job.size);
  for (int64_t begin = 0; begin < length; begin += most) {
    int64_t count = std::min(most, length - begin);
    size_t bytes = size_t(count) * width;
    // all-gather takes a piece that lies at its own place in the result without
    // a copy.
    char *place = staged + (layout.owned ? 0 : size_t(rank.job.rank) * bytes);
    const void *piece = nullptr;
    if (hasPart) {
      auto read = readPiece(rank, index, what, own, begin, count, place);
      FSDPC_TRY(read);
      piece = *read;
    }
    if (layout.owned)
      takeFromOwner(rank, buffers.owner, piece, staging.data(), bytes);
    else
      rank.job.channel[controlChannel]->allGather(piece, staging.data(), bytes);
    // The others have sent their part; what they received is overwritten next.
    if (rank.job.rank != 0)
      continue;
    // The accumulated gradient is a sum over V microbatches, times the scale.
    if (what == Saved::gradients)
      for (int64_t i = 0; i < count * sources; ++i)
        staging[size_t(i)] =
            float(double(staging[size_t(i)]) * rank.numbers.gradientFactor);
    for (int from = 0; from < sources; ++from) {
      int64_t first = buffers.ownOf(from) + begin;
      Status written = forEachMember(
          layout, first, first + count,
          [&](size_t member, int64_t a, int64_t b) {
            uint64_t at = uint64_t(a - layout.members[member].offset);
            return file.write(offsets[member] + at * width,
                              staged + size_t(from * count + a - first) * width,
                              uint64_t(b - a) * width);
          });
      if (!written)
        break; // the file keeps the failure; the others still send
    }
  }
  return {};
}

} // namespace

Status checkNames(const Manifest &manifest, const Renaming &names,
                  bool trainedOnly) {
  std::vector<std::string> all;
  auto add = [&](const std::string &name,
                 const std::vector<std::string> &aliases) {
    all.push_back(name);
    all.insert(all.end(), aliases.begin(), aliases.end());
  };
  for (const Layout &layout : manifest.layouts)
    for (const Member &member : layout.members)
      if (layout.trainable || !trainedOnly)
        add(member.name, member.aliases);
  for (const Buffer &buffer : manifest.buffers)
    if (!buffer.optimizerState)
      add(buffer.name, buffer.aliases);
  return names.check(all);
}

Status save(fsdpc_rank &rank, Saved what, const std::string &path,
            const SavedForm &form) {
  NewFile file;
  FSDPC_TRY(saveUncommitted(rank, what, path, form, file));
  return rank.job.rank == 0 ? file.commit() : Status();
}

Status saveUncommitted(fsdpc_rank &rank, Saved what, const std::string &path,
                       const SavedForm &form, NewFile &file) {
  const Manifest &manifest = rank.manifest;
  Offsets offsets;
  std::string header = describe(manifest, what, form, offsets);
  bool writes = rank.job.rank == 0;
  // The file keeps a failure until `commit`, since all ranks must take part in
  // every gather.
  if (writes && file.openUnnamed(path))
    (void)bool(file.write(0, header.data(), header.size()));
  // One piece of every rank; also on ranks that only send, because all-gather
  // writes all pieces everywhere.
  std::vector<float> staging(
      size_t(std::max<int64_t>(pieceElements, rank.job.size)));
  for (size_t i = 0; i < manifest.layouts.size(); ++i) {
    if (!isSaved(manifest.layouts[i], what, form))
      continue;
    Status read = saveLayout(rank, i, what, offsets.members[i], file, staging);
    if (!read) {
      file.discard();                       // leaves no temporary file
      awaitTurn(rank.job, /*later=*/false); // ranks may share the disk
      fail(read.error());
    }
  }
  if (!writes)
    return {};
  for (auto [i, offset] : offsets.buffers) {
    const Buffer &buffer = manifest.buffers[i];
    std::vector<char> value(
        size_t(bufferElements(buffer) * dtypeBytes(buffer.dtype)));
    rank.device->download(value.data(), rank.buffers[i], value.size());
    FSDPC_TRY(file.write(offset, value.data(), value.size()));
  }
  return {};
}

} // namespace fsdpc::runtime
