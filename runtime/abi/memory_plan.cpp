// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The arithmetic of the memory table. Sizes are rounded to 64 bytes exactly as
// they are allocated, so the plan is the allocation and not an estimate of it.
// The sum of what runtime/core allocates (`allocated`) is taken before shares
// of the arena are attributed to kinds: the arena is allocated as one block.
#include "runtime/abi/memory_plan.h"

#include "runtime/abi/blocks.h"
#include "runtime/abi/compressions.h"
#include "runtime/abi/staging.h"
#include "runtime/support/round_up.h"

#include <algorithm>
#include <utility>

namespace fsdpc {
namespace {

// Does not overflow for shapes that fromJson has checked.
int64_t product(const std::vector<int64_t> &shape) {
  int64_t elements = 1;
  for (int64_t extent : shape)
    elements *= extent;
  return elements;
}

} // namespace

// With few elements and many ranks the last shards are padding alone.
int64_t shardElements(const Layout &layout, int64_t ranks, int64_t alignment) {
  return roundUp((layout.elements + ranks - 1) / ranks, alignment);
}

bool usesGroups(const Manifest &manifest) {
  return std::any_of(
      manifest.layouts.begin(), manifest.layouts.end(),
      [](const Layout &layout) { return layout.inGroups || layout.secondary; });
}

bool reducesInGroups(const Manifest &manifest) {
  return std::any_of(manifest.layouts.begin(), manifest.layouts.end(),
                     [](const Layout &layout) { return layout.inGroups; });
}

int plannedGroup(const Manifest &manifest, int ranks, int wanted) {
  int64_t group = wanted               ? wanted
                  : manifest.reshardTo ? manifest.reshardTo
                                       : manifest.planRanksPerNode;
  return group > 0 && ranks % group == 0 ? int(group) : ranks;
}

// Neither with --master=none nor of bytes are there masters. Else, nothing
// changes a frozen layout, so values that the model's file has in the compute
// type are kept in that type alone: no bit is lost. The master of values in
// another type stays, so that --save writes what the file held. It also stays
// where the copy that persists holds what a gather has rounded.
static bool needsMaster(const Manifest &manifest, const Layout &layout) {
  if (layout.noMaster || layout.ofBytes)
    return false;
  std::string compute = manifest.computeDtypeOf(layout);
  return layout.trainable || compute == "f32" ||
         (layout.computeWhole && !layout.wire.empty()) ||
         !std::all_of(layout.members.begin(), layout.members.end(),
                      [&](const Member &member) {
                        return member.source.dtype == compute;
                      });
}

bool computesOnMaster(const Manifest &manifest, const Layout &layout) {
  return manifest.computeDtypeOf(layout) == "f32" && layout.wire.empty();
}

// A shard is gathered where it lies only if it has the compute type. Groups
// and owners have other shards, and what is offloaded has no address.
bool gathersInPlace(const Manifest &manifest, const Layout &layout) {
  return !manifest.target.starts_with("cuda") && !layout.masterWhole &&
         !layout.computeWhole && !layout.inGroups && !layout.secondary &&
         !layout.owned && !layout.parametersOffloaded && layout.wire.empty() &&
         (!needsMaster(manifest, layout) || computesOnMaster(manifest, layout));
}

int64_t sideBySideBytes(const Manifest &manifest, const Layout &layout,
                        int ranks) {
  if (!gathersInPlace(manifest, layout))
    return 0;
  int64_t whole = ranks * shardElements(layout, ranks, manifest.shardAlignment);
  return roundUp(whole * dtypeBytes(manifest.computeDtypeOf(layout)), 64);
}

bool hasComputeCopy(const Manifest &manifest, const Layout &layout) {
  return !layout.noMaster && layout.computeWhole &&
         manifest.computeDtypeOf(layout) != "f32";
}

// A gradient that every rank gathers for its update, or that an owner, a block
// reducer or a compressed reduction sums whole, is not taken by ranges.
bool hasOwnGradient(const Manifest &manifest, const Layout &layout) {
  return layout.trainable && !layout.gradientWhole && !layout.stateWhole &&
         !layout.owned && !layout.compression &&
         blockTypeOf(manifest.reduceDtype) == BlockType::None;
}

bool hasOwnParameters(const Manifest &manifest, const Layout &layout) {
  if (layout.masterWhole)
    return false;
  return !layout.computeWhole ||
         (needsMaster(manifest, layout) && !computesOnMaster(manifest, layout));
}

int64_t ownParameterBytes(const Manifest &manifest, const Layout &layout) {
  return needsMaster(manifest, layout)
             ? 4
             : dtypeBytes(manifest.computeDtypeOf(layout));
}

bool offloadsToPinned(const Manifest &manifest) {
  return manifest.target.starts_with("cuda");
}

const char *offloadedName(const Manifest &manifest) {
  return offloadsToPinned(manifest) ? "pinned" : "on disk";
}

// A gather reads parameters straight to their place where it neither casts them
// nor sends blocks.
OffloadPieces offloadPieces(const Manifest &manifest, int ranks, int groupRanks,
                            const std::vector<int> &owners, int rank) {
  OffloadPieces pieces;
  for (size_t i = 0; i < manifest.layouts.size(); ++i) {
    const Layout &layout = manifest.layouts[i];
    if (!layout.isOffloaded())
      continue;
    LayoutMemory memory =
        layoutMemory(manifest, layout, ranks, groupRanks, owners[i], rank);
    int64_t part = layout.stateWhole ? memory.whole : memory.shard;
    auto ofPiece = [&](int64_t elementBytes) {
      return roundUp(std::min(part, offloadPieceElements) * elementBytes, 64);
    };
    int64_t parameters =
        layout.parametersOffloaded ? ownParameterBytes(manifest, layout) : 0;
    int64_t ofElement = parameters + (layout.gradientOffloaded ? 4 : 0) +
                        (layout.statesOffloaded ? 4 * layout.states : 0);
    if (layout.trainable)
      pieces.updates = std::max(pieces.updates, 2 * ofPiece(ofElement));
    bool converts = !layout.wire.empty() ||
                    parameters != dtypeBytes(manifest.computeDtypeOf(layout));
    if (layout.parametersOffloaded && converts)
      pieces.gathers = std::max(pieces.gathers, ofPiece(parameters));
    if (layout.gradientOffloaded)
      pieces.reductions =
          std::max(pieces.reductions, offloadsToPinned(manifest)
                                          ? roundUp(memory.shard * 4, 64)
                                          : ofPiece(4));
  }
  return pieces;
}

MemberShapes shapesOf(const std::vector<Member> &members) {
  MemberShapes shapes;
  for (const Member &member : members)
    shapes.push_back(member.shape);
  return shapes;
}

// The padding is the same for every size of groups, so that files, and sums
// over own elements, do not depend on it.
LayoutMemory layoutMemory(const Manifest &manifest, const Layout &layout,
                          int64_t ranks, int64_t groupRanks, int owner,
                          int rank) {
  LayoutMemory memory;
  if (owner != noOwner) {
    memory.owner = owner;
    memory.whole = shardElements(layout, 1, manifest.shardAlignment);
    memory.shard = memory.own = owner == rank ? memory.whole : 0;
  } else {
    memory.cutOver = layout.inGroups ? groupRanks : ranks;
    memory.own = shardElements(layout, ranks, manifest.shardAlignment);
    memory.shard = ranks / memory.cutOver * memory.own;
    memory.whole = ranks * memory.own;
  }
  // Each block is rounded up by itself, because the runtime allocates each by
  // itself.
  auto bytes = [&](bool whole, int64_t size) {
    return roundUp((whole ? memory.whole : memory.shard) * size, 64);
  };
  // With f32 compute a replicated compute copy serves as the master too.
  std::string compute = manifest.computeDtypeOf(layout);
  bool same = computesOnMaster(manifest, layout);
  bool master = needsMaster(manifest, layout);
  if (same && layout.computeWhole)
    memory.compute = bytes(true, 4);
  else if (master)
    memory.master = bytes(layout.masterWhole, 4);
  if (!same && (layout.computeWhole || !master))
    memory.compute = bytes(layout.computeWhole, dtypeBytes(compute));
  // A frozen layout has neither a gradient nor optimizer state.
  if (layout.trainable) {
    memory.gradient =
        bytes(layout.gradientWhole, layout.unsummed ? dtypeBytes(compute) : 4);
    memory.states = layout.states * bytes(layout.stateWhole, 4);
  }
  auto offload = [&](bool isOffloaded, int64_t LayoutKinds::*kind) {
    if (isOffloaded)
      memory.offloaded.*kind = std::exchange(memory.*kind, 0);
  };
  offload(layout.statesOffloaded, &LayoutKinds::states);
  offload(layout.gradientOffloaded, &LayoutKinds::gradient);
  // The compute copy beside a master is no shard.
  offload(layout.parametersOffloaded,
          master ? &LayoutKinds::master : &LayoutKinds::compute);
  if (const Compression &compression = layout.compression) {
    memory.residual = roundUp(layout.elements * 4, 64);
    memory.compression =
        infoOf(compression)
            .stateBytes(compression.amount, shapesOf(layout.members), ranks);
  }
  if (layout.secondary)
    memory.secondary =
        roundUp(memory.whole / groupRanks * dtypeBytes(compute), 64);
  return memory;
}

// Inputs, buffers and statistics are separate allocations, so each is rounded
// up like a layout's blocks.
int64_t inputBytes(const Input &input) {
  return roundUp(product(input.shape) * dtypeBytes(input.dtype), 64);
}

size_t bytesOf(const Output &output) {
  return size_t(product(output.shape) * dtypeBytes(output.dtype));
}

int64_t outputBytes(const Output &output) {
  if (output.isScalar())
    return 0;
  return roundUp(int64_t(bytesOf(output)), 64);
}

int64_t bufferElements(const Buffer &buffer) { return product(buffer.shape); }

int64_t bufferBytes(const Buffer &buffer) {
  return roundUp(bufferElements(buffer) * dtypeBytes(buffer.dtype), 64);
}

// Buffers are gathered one after the other into the same memory, hence the
// largest one counts. Statistics are f32; buffers of other types, such as
// counters, are never gathered.
int64_t statisticsBytes(const Manifest &manifest, int64_t ranks) {
  int64_t largest = 0;
  for (const Buffer &buffer : manifest.buffers)
    if (buffer.dtype == "f32" && !buffer.optimizerState)
      largest = std::max(largest, product(buffer.shape) * 4);
  return roundUp(largest * ranks, 64);
}

int64_t gatheredBlockBytes(const Manifest &manifest, int64_t ranks) {
  int64_t largest = 0;
  for (const Layout &layout : manifest.layouts)
    if (!layout.wire.empty())
      largest = std::max(
          largest, blockedBytes(ranks * shardElements(layout, ranks,
                                                      manifest.shardAlignment),
                                blockTypeOf(layout.wire)));
  return roundUp(largest, 64);
}

// On GPUs blocks lie in the device's own scratch (runtime/abi/cuda_scratch.h).
int64_t reducedBlockBytes(const Manifest &manifest, int64_t ranks) {
  BlockType type = blockTypeOf(manifest.reduceDtype);
  return type == BlockType::None || manifest.target.starts_with("cuda")
             ? 0
             : roundUp(reducedPieceBytes(ranks, type), 64);
}

int64_t compressedBytes(const Manifest &manifest, int64_t ranks) {
  int64_t largest = 0;
  for (const Layout &layout : manifest.layouts)
    if (const Compression &compression = layout.compression)
      largest = std::max(largest,
                         infoOf(compression)
                             .exchangedBytes(compression.amount,
                                             shapesOf(layout.members), ranks));
  return roundUp(largest, 64);
}

int64_t channelBytes(const Manifest &manifest, int ranks, int groupRanks,
                     int ranksPerNode, const std::string &transport) {
  int64_t bytes = communicationBytes(ranks, ranksPerNode, transport);
  // GPUs have communicators of their own, which take no staging memory.
  if (usesGroups(manifest) && !manifest.target.starts_with("cuda"))
    bytes += groupCommunicationBytes(ranks, groupRanks, ranksPerNode, transport,
                                     reducesInGroups(manifest));
  return bytes;
}

// The rows of what a rank keeps of layouts.
static MemoryPlan planLayouts(const Manifest &manifest, int ranks,
                              int groupRanks, const std::vector<int> &owners,
                              int rank) {
  MemoryPlan plan;
  for (size_t i = 0; i < manifest.layouts.size(); ++i) {
    const Layout &layout = manifest.layouts[i];
    LayoutMemory memory =
        layoutMemory(manifest, layout, ranks, groupRanks, owners[i], rank);
    plan.parameters += memory.master + memory.compute + memory.secondary;
    plan.gradients += memory.gradient;
    plan.optimizer += memory.states;
    plan.residuals += memory.residual + memory.compression;
    plan.offloaded += memory.offloaded.total();
  }
  plan.offloadPieces =
      offloadPieces(manifest, ranks, groupRanks, owners, rank).total();
  return plan;
}

// The same for the rank that keeps the most. Only what a rank owns differs from
// what all keep, and only ranks below the number of layouts own anything; the
// first of the others stands for all of them.
static MemoryPlan planFullest(const Manifest &manifest, int ranks,
                              int groupRanks, const std::vector<int> &owners) {
  MemoryPlan fullest = planLayouts(manifest, ranks, groupRanks, owners, 0);
  if (!hasOwners(manifest))
    return fullest;
  int different = int(std::min(int64_t(ranks), int64_t(owners.size()) + 1));
  for (int rank = 1; rank < different; ++rank) {
    MemoryPlan plan = planLayouts(manifest, ranks, groupRanks, owners, rank);
    if (plan.total() > fullest.total())
      fullest = plan;
  }
  return fullest;
}

MemoryPlan planMemory(const Manifest &manifest, int ranks, int groupRanks,
                      int threads, int64_t communicationBytes,
                      int64_t scratchpadBytes, int rank) {
  std::vector<int> owners = ownersOf(manifest, ranks);
  MemoryPlan plan =
      rank == fullestRank
          ? planFullest(manifest, ranks, groupRanks, owners)
          : planLayouts(manifest, ranks, groupRanks, owners, rank);
  for (const Buffer &buffer : manifest.buffers)
    (buffer.optimizerState ? plan.optimizer : plan.parameters) +=
        bufferBytes(buffer);
  for (const Input &input : manifest.inputs)
    // Two slots: one is filled while the other is computed on.
    plan.activations += 2 * inputBytes(input);
  for (const Output &output : manifest.outputs)
    plan.activations += outputBytes(output);
  // Counts the memory that collectives need besides the windows of their
  // channels.
  int64_t exchanged =
      statisticsBytes(manifest, ranks) + gatheredBlockBytes(manifest, ranks) +
      reducedBlockBytes(manifest, ranks) + compressedBytes(manifest, ranks);
  // The arena is one block, so `allocated` is taken before its peak is divided
  // among the kinds.
  plan.allocated = plan.parameters + plan.gradients + plan.optimizer +
                   plan.residuals + plan.offloadPieces + plan.activations +
                   exchanged + manifest.arenaBytes;

  // The shares of the arena and its slack add up to arenaBytes. Constants are
  // not among the allocations of runtime/core, so `allocated` leaves them out.
  plan.gradients += manifest.arenaGradients;
  plan.gathered = manifest.arenaGathered;
  plan.activations += manifest.arenaActivations + manifest.constantBytes;
  plan.slack = manifest.arenaBytes - manifest.arenaGathered -
               manifest.arenaGradients - manifest.arenaActivations;
  plan.communication = communicationBytes + exchanged;
  plan.offloaded += manifest.activationFileBytes;
  plan.scratchpads = scratchpadBytes;
  plan.stacks = threads * manifest.stackBytes;
  return plan;
}

std::vector<std::pair<std::string, int64_t>> MemoryPlan::kinds() const {
  std::vector<std::pair<std::string, int64_t>> rows = {
      {"parameters", parameters},
      {"gradients", gradients},
      {"optimizer", optimizer},
      {"gathered", gathered},
      {"activations", activations},
      {"communication", communication},
      {"scratchpads", scratchpads},
      {"stacks", stacks},
      {"slack", slack}};
  if (residuals != 0)
    rows.emplace_back("residuals", residuals);
  if (offloadPieces != 0)
    rows.emplace_back("offload pieces", offloadPieces);
  if (checkpoint != 0)
    rows.emplace_back("checkpoint", checkpoint);
  return rows;
}

// Sums the rows of the table. `allocated` is not a row: its bytes are already
// counted by kind.
int64_t MemoryPlan::total() const {
  int64_t sum = 0;
  for (auto &[kind, bytes] : kinds())
    sum += bytes;
  return sum;
}

} // namespace fsdpc
