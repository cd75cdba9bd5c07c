// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The arithmetic of a CUDA rank's scratch memory. A single rank needs nothing
// for communication. Where an exact size depends on the rank or on a library's
// choice, it is an upper bound: the program must fit what the compiler printed.
#include "runtime/abi/cuda_scratch.h"
#include "runtime/abi/blocks.h"
#include "runtime/abi/compressions.h"
#include "runtime/abi/element_type.h"
#include "runtime/abi/factors.h"
#include "runtime/abi/member_sums.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/abi/norm_digits.h"
#include "runtime/abi/owners.h"
#include "runtime/support/round_up.h"

#include <algorithm>
#include <array>

namespace fsdpc {

namespace {

// Returns the largest divisor of `count` that is at most `limit`, or 1.
int64_t divisorUpTo(int64_t count, int64_t limit) {
  int64_t divisor = std::clamp<int64_t>(limit, 1, count);
  while (count % divisor != 0)
    --divisor;
  return divisor;
}

// Elements of a layout over all ranks, with padding.
int64_t wholeElements(const Manifest &manifest, const Layout &layout,
                      int64_t ranks) {
  int64_t cutOver = layout.owned ? 1 : ranks;
  return cutOver * shardElements(layout, cutOver, manifest.shardAlignment);
}

// Elements of the largest trainable layout that is cut over ranks.
int64_t largestWhole(const Manifest &manifest, int64_t ranks) {
  int64_t largest = 0;
  for (const Layout &layout : manifest.layouts)
    if (layout.trainable && !layout.owned)
      largest = std::max(largest, wholeElements(manifest, layout, ranks));
  return largest;
}

// Returns the bytes of the gradients that travel at a time: of the largest
// layout, or of several with owners. They are those of the wider one of the
// layout's type and that of the reduction, or those of blocks.
int64_t largestSent(const Manifest &manifest, int64_t ranks) {
  int64_t largest = 0, owned = 0;
  for (const Layout &layout : manifest.layouts) {
    if (!layout.trainable)
      continue;
    int64_t width = std::max(dtypeBytes(manifest.computeDtypeOf(layout)),
                             dtypeBytes(manifest.reduceDtype));
    int64_t whole = wholeElements(manifest, layout, ranks);
    BlockType blocks = blockTypeOf(manifest.reduceDtype);
    int64_t bytes =
        blocks == BlockType::None ? whole * width : blockedBytes(whole, blocks);
    if (layout.owned) {
      bytes = int64_t(ownedBytes(layout.elements, size_t(width)));
      owned += bytes;
    }
    largest = std::max(largest, bytes);
  }
  // Pieces of owned gradients take at least 64 bytes of each rank.
  return std::max(
      {largest, std::min(owned, ownedTogether), owned > 0 ? 64 * ranks : 0});
}

// Bytes of a layout's tables on a rank that updates `part` elements and sums
// the squares of `own`. Segments are cut at both ends of a member and every
// 4096 elements.
int64_t layoutTables(const Layout &layout, int64_t part, int64_t own) {
  int64_t members = int64_t(layout.members.size());
  int64_t cuts = 2 * members + 2;
  int64_t sums = own / optimizerSegment + cuts;
  int64_t pieces =
      layout.gradientOffloaded ? own / offloadPieceElements + 1 : 0;
  int64_t updates = part / optimizerSegment + cuts;
  // In eight-byte words: of an optimizer's segment, of a norm's and its sum,
  // and of a piece of the norm.
  return (updates * 3 + sums * (2 + normDigits + 1) + pieces * 4) * 8 + 8 * 256;
}

// Bytes of what optimizers of whole parameters take on a rank that updates
// `part` elements and sums `own`: the layout's tables, which are segments,
// where each member's begin, and the members' factors or places; and what
// layouts use one after the other, which are sums of segments and of groups,
// the members' sums, numbers of elements, and sums of the chunks of a matrix:
// each as long as the layout needs it that needs most. All have 4096 bytes for
// their alignment.
struct SumBytes {
  int64_t table = 0;
  std::array<int64_t, 5> shared{};
};
SumBytes sumBytes(const Layout &layout, int64_t part, int64_t own) {
  int64_t perMember = layout.sums;
  bool factored = layout.factored, orthogonal = layout.orthogonal;
  if (perMember == 0 && !orthogonal)
    return {};
  int64_t members = int64_t(layout.members.size());
  int64_t segments = own / optimizerSegment + 2 * members + 2;
  int64_t largest = 0;
  for (const Member &member : layout.members)
    largest = std::max(largest, member.elements);
  SumBytes bytes;
  bytes.table = (segments * 3 + members + 1) * 8 + 2 * 4096 +
                (factored ? members * factorMemberBytes + 4096 : 0);
  bytes.shared = {
      perMember > 0 ? groupSumsCap : 0,
      segments * (normDigits + 1) * perMember * 8, members * perMember * 8,
      factored || orthogonal ? std::min(part * 4, elementNumbersCap) : 0,
      orthogonal ? (largest / matrixChunk + 1) * normDigits * 8 : 0};
  return bytes;
}

// Bytes of the ranges of a layout's members, two words each, where a reduction
// takes what lies between them for zero.
int64_t rangeBytes(const Manifest &manifest, const Layout &layout) {
  return readsMemberRanges(manifest, layout)
             ? int64_t(layout.members.size()) * 16 + 4096
             : 0;
}

// An upper bound, since the exact cuts depend on the rank, and in groups on
// their size: a group of one rank updates the whole.
int64_t tableBytes(const Manifest &manifest, int64_t ranks) {
  // Reports, and the step's numbers as the host offers them and as they are
  // taken.
  int64_t bytes = 4096 + 3 * 8 * stepNumberCount(manifest) + 2 * 256;
  std::vector<int> owners = ownersOf(manifest, ranks);
  std::vector<int64_t> owned(static_cast<size_t>(ranks));
  std::array<int64_t, 5> shared{};
  for (size_t i = 0; i < manifest.layouts.size(); ++i) {
    const Layout &layout = manifest.layouts[i];
    if (!layout.trainable)
      continue;
    int64_t whole = wholeElements(manifest, layout, ranks);
    bool updatesAll = layout.stateWhole || layout.inGroups;
    bytes += rangeBytes(manifest, layout);
    // A rank may hold all of a member that it sums only a part of.
    SumBytes sums =
        sumBytes(layout, layout.owned || updatesAll ? whole : whole / ranks,
                 layout.owned ? whole : whole / ranks);
    bytes += sums.table;
    for (size_t kind = 0; kind < shared.size(); ++kind)
      shared[kind] = std::max(shared[kind], sums.shared[kind]);
    if (layout.owned) {
      bytes += layoutTables(layout, 0, 0);
      owned[size_t(owners[i])] += layoutTables(layout, whole, whole);
      continue;
    }
    bytes +=
        layoutTables(layout, updatesAll ? whole : whole / ranks, whole / ranks);
  }
  for (int64_t most : shared)
    bytes += most > 0 ? most + 4096 : 0;
  return bytes + *std::max_element(owned.begin(), owned.end());
}

} // namespace

bool readsMemberRanges(const Manifest &manifest, const Layout &layout) {
  return layout.trainable &&
         blockTypeOf(manifest.reduceDtype) != BlockType::None;
}

int64_t segmentsPerSum(int32_t sumsPerMember) {
  return groupSumsCap / (optimizerSegment / sumGroup * sumsPerMember *
                         int64_t(sizeof(double)));
}

size_t ownedBytes(int64_t elements, size_t width) {
  return size_t(roundUp(elements * int64_t(width), 256));
}

int64_t alignedPlace(int64_t used, int64_t bytes) {
  return roundUp(used, bytes >= (1 << 20) ? 4096 : 256);
}

// As many heads as fit the bound: whole batch entries, else whole groups of
// heads that share a key head, else single heads.
AttentionChunk attentionChunk(const AttentionPlan &p) {
  AttentionChunk chunk;
  // In f32 the weights overwrite the scores, so a head needs one matrix of
  // scores instead of two; the backward pass needs the same for dweights and
  // dscores.
  bool narrow = p.dtype != "f32";
  int64_t element = dtypeBytes(p.dtype), shared = p.heads / p.groups;
  int64_t cells = p.queries * p.keys;
  int64_t perHead = cells * (4 + (narrow ? element : 0)) * (p.backward ? 2 : 1);
  int64_t heads =
      std::max<int64_t>(scoresCap / std::max<int64_t>(perHead, 1), 1);
  if (heads >= p.heads)
    chunk = {divisorUpTo(p.batch, heads / p.heads), p.groups, shared};
  else if (heads >= shared)
    chunk = {1, divisorUpTo(p.groups, heads / shared), shared};
  // Reserves the next piece of the scratch and returns where it begins.
  auto take = [&](int64_t bytes) {
    int64_t begin = chunk.bytes;
    chunk.bytes += roundUp(bytes, 256);
    return begin;
  };
  cells *= chunk.heads();
  take(cells * 4);
  if (narrow)
    chunk.weights = take(cells * element);
  if (p.backward) {
    chunk.dscores = chunk.dweights = take(cells * 4);
    if (narrow)
      chunk.dscores = take(cells * element);
    if (narrow && shared > 1) {
      int64_t rows = chunk.batches * chunk.groups * p.keys;
      chunk.dkey = take(rows * p.width * 4);
      chunk.dvalue = take(rows * p.valueWidth * 4);
    }
  }
  return chunk;
}

// cuDNN's backward sums dquery in f32, padded to its tiles, and keeps one or
// two numbers per row. If query heads share key heads, it also keeps dkey and
// dvalue of every query head. (Its deterministic variant keeps all of dscores.
// It is used if other attentions or the products need as much memory.)
int64_t attentionWorkspaceBytes(const AttentionPlan &p) {
  if (!p.backward)
    return libraryWorkspaceBytes;
  int64_t rows = p.batch * p.heads * roundUp(p.queries, 128);
  int64_t bytes = rows * (roundUp(p.width, 64) * 4 + 16);
  if (p.heads > p.groups)
    bytes += p.batch * p.heads * roundUp(p.keys, 128) *
             (roundUp(p.width, 64) + roundUp(p.valueWidth, 64)) * 4;
  return libraryWorkspaceBytes + bytes;
}

// Two words, and per member four rates and, where it has no master, four of the
// key with which it is rounded.
int64_t stepNumberCount(const Manifest &manifest) {
  int64_t words = 2;
  for (const Layout &layout : manifest.layouts)
    if (layout.trainable)
      words += int64_t(layout.members.size()) * (layout.noMaster ? 8 : 4);
  return words;
}

int64_t collectiveScratchBytes(const Manifest &manifest, int64_t ranks) {
  int64_t whole = largestWhole(manifest, ranks);
  // The norm has sums of layouts; some optimizers have sums of members, or of
  // rows and columns.
  int64_t layouts = int64_t(manifest.layouts.size()), members = 0, factors = 0;
  for (const Layout &layout : manifest.layouts) {
    members += int64_t(layout.members.size()) * layout.sums;
    for (const Member &member : layout.members)
      if (layout.factored)
        factors += factorShapeOf(member.shape).sumCount();
  }
  int64_t added = std::max(std::max(layouts, members) * normDigits, factors);
  int64_t sums = ranks * std::min(added, addedTogether) * 8;
  return roundUp(largestSent(manifest, ranks), 256) +
         roundUp(whole / ranks * 4, 256) + roundUp(sums, 256);
}

int64_t compressionBytes(const Manifest &manifest) {
  int64_t largest = 0;
  for (const Layout &layout : manifest.layouts)
    if (layout.compression)
      largest = std::max(largest, infoOf(layout.compression)
                                      .deviceBytes(layout.elements,
                                                   layout.compression.amount));
  return largest;
}

// Each block may lose 4096 bytes in front of it.
static int64_t compressionBlocks(const Manifest &manifest) {
  int64_t bytes = 0;
  auto add = [&](int64_t block) {
    bytes += block > 0 ? roundUp(block, 4096) + 4096 : 0;
  };
  add(compressionBytes(manifest));
  for (const Layout &layout : manifest.layouts)
    if (const Compression &compression = layout.compression)
      add(4 * infoOf(compression)
                  .stateElements(compression.amount, shapesOf(layout.members)));
  return bytes;
}

CudaScratch cudaScratch(const Manifest &manifest, int64_t ranks,
                        bool communicates) {
  CudaScratch scratch;
  bool products = !manifest.matmuls.empty() || !manifest.convolutions.empty() ||
                  !manifest.attentions.empty();
  for (const Layout &layout : manifest.layouts)
    products |= layout.orthogonal;
  scratch.library = products ? libraryWorkspaceBytes : 0;
  // A plan that cuDNN computes is also counted as products: the runtime falls
  // back to them if cuDNN asks for more than the scratch.
  for (const AttentionPlan &plan : manifest.attentions) {
    scratch.attention = std::max(scratch.attention, attentionChunk(plan).bytes);
    if (plan.library != "products")
      scratch.attention =
          std::max(scratch.attention,
                   attentionWorkspaceBytes(plan) - libraryWorkspaceBytes);
  }
  // A single rank makes blocks of its gradients, too.
  if (communicates || blockTypeOf(manifest.reduceDtype) != BlockType::None)
    scratch.wire = roundUp(largestSent(manifest, ranks), 256);
  if (communicates)
    scratch.collectives = collectiveScratchBytes(manifest, ranks);
  scratch.compression = compressionBlocks(manifest);
  scratch.tables = tableBytes(manifest, ranks);
  // At most 8 blocks per layout, one per buffer and output, two slots per
  // input, and a constant number of others, each with up to 4096 bytes lost in
  // front of it.
  int64_t blocks = 8 * int64_t(manifest.layouts.size()) +
                   int64_t(manifest.buffers.size()) +
                   int64_t(manifest.outputs.size()) +
                   2 * int64_t(manifest.inputs.size()) + 16;
  scratch.alignment = blocks * 4096;
  return scratch;
}

} // namespace fsdpc
