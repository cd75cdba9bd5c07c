// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory of one rank by kind, as a function of the number of ranks and
// threads. The compiler prints it, --info prints it again, and the program
// allocates exactly these bytes: all three come from this one function, so they
// cannot disagree.
//
// Everything is in bytes unless a name says elements.
#pragma once

#include "runtime/abi/element_type.h"
#include "runtime/abi/manifest.h"
#include "runtime/abi/owners.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fsdpc {

/// The memory table of one rank.
struct MemoryPlan {
  int64_t parameters = 0; ///< masters, compute copies that persist and
                          ///< secondary shards
  int64_t gradients = 0; ///< f32 accumulators and the arena's gradient slots at
                         ///< the peak
  int64_t optimizer = 0;
  /// The parts of gradients that reductions have not sent, and what else these
  /// keep.
  int64_t residuals = 0;
  /// Memory through which passes what is offloaded.
  int64_t offloadPieces = 0;
  int64_t gathered = 0;      ///< share of the arena's peak
  int64_t activations = 0;   ///< share of the arena's peak; inputs, outputs and
                             ///< constants
  int64_t communication = 0; ///< windows, pages of peers, gathered statistics
  int64_t scratchpads = 0;
  int64_t stacks = 0;
  int64_t slack = 0; ///< rest of the arena: room for maxRanks, fragmentation
  /// Host memory that the rank's part of a checkpoint is copied into. Only a
  /// run knows if it writes checkpoints along the way, so planMemory leaves it
  /// at 0.
  int64_t checkpoint = 0;
  int64_t offloaded = 0; ///< on disk or pinned; not part of the total
  int64_t allocated = 0; ///< part of the total that runtime/core allocates: all
                         ///< but windows, scratchpads, stacks and constants
  int64_t total() const;
  /// The kinds of memory with their bytes, in the order of the printed table;
  /// "residuals", "offload pieces" and "checkpoint" only if they are not 0.
  std::vector<std::pair<std::string, int64_t>> kinds() const;
};

/// Elements per shard of a layout, a multiple of `alignment` (in elements).
int64_t shardElements(const Layout &layout, int64_t ranks, int64_t alignment);

/// Returns true if some layout is cut over groups of ranks, alone or besides
/// (secondary).
bool usesGroups(const Manifest &manifest);
/// Returns true if some layout's gradients are reduced in groups of ranks.
bool reducesInGroups(const Manifest &manifest);

/// Returns the ranks of a shard group that a plan for `ranks` ranks assumes:
/// `wanted`, else those of --reshard-to, else the ranks per node that the
/// program was planned for, else all; and all where it does not divide them.
int plannedGroup(const Manifest &manifest, int ranks, int wanted);

/// Says how a layout is cut into shards, as one rank sees it. All sizes are in
/// elements. An owned layout has one shard, that of its owner: there `shard`
/// and `own` are the whole, and 0 on all other ranks.
struct LayoutCut {
  int64_t shard = 0; ///< of this rank
  int64_t whole = 0; ///< padded: all shards together
  /// The layout is cut over this many ranks, and replicated on further ones.
  int64_t cutOver = 1;
  /// The part of a shard for which one of its replicas answers, in norms and in
  /// files; without replicas the shard itself.
  int64_t own = 0;
  int owner = noOwner;

  /// Return the element at which a rank's shard begins, and that at which the
  /// part begins for which the rank answers.
  int64_t shardOf(int64_t rank) const {
    return owner == noOwner ? rank % cutOver * shard : 0;
  }
  int64_t ownOf(int64_t rank) const {
    return owner == noOwner ? shardOf(rank) + rank / cutOver * own : 0;
  }
};

/// Returns true if the update also writes a copy of the parameters in the
/// compute type, which persists beside the master.
bool hasComputeCopy(const Manifest &manifest, const Layout &layout);

/// Returns true if what is offloaded lies in pinned host memory, beside a GPU,
/// and not in a file.
bool offloadsToPinned(const Manifest &manifest);
/// The name of the plan's row of what is offloaded.
const char *offloadedName(const Manifest &manifest);

/// Kinds of persistent memory of a layout, in bytes.
struct LayoutKinds {
  int64_t master = 0, compute = 0, gradient = 0, states = 0;
  int64_t total() const { return master + compute + gradient + states; }
};

/// The persistent memory of one layout on one rank, in bytes; 0 if the layout
/// has no such memory. If the compute type is f32 and a replicated copy
/// persists, that copy is the master (or contains the rank's shard of it), so
/// the master has no memory of its own, unless the layout is gathered in
/// blocks: the copy then holds what has been rounded. A compute copy below f32
/// exists only if it persists; otherwise each gather casts the master. A layout
/// without master weights (Layout::noMaster), and a frozen one whose values are
/// in a compute type below f32 in the model's file, have no master, and a
/// compute copy even where that does not persist whole.
struct LayoutMemory : LayoutCut, LayoutKinds {
  /// The parts of this rank's gradients that it has not sent yet, in f32, over
  /// the whole layout.
  int64_t residual = 0;
  int64_t compression = 0; ///< what else reductions keep (CompressionState)
  LayoutKinds offloaded;   ///< what is on disk or pinned, and so 0 above
  /// The rank's part of the parameters over its group, in the compute type.
  int64_t secondary = 0;
};
/// `groupRanks`, which divides `ranks`, is the size of a shard group. `owner`
/// is the layout's of ownersOf, and only where it has one does `rank` matter.
LayoutMemory layoutMemory(const Manifest &manifest, const Layout &layout,
                          int64_t ranks, int64_t groupRanks,
                          int owner = noOwner, int rank = 0);

/// Returns true if the compute copy of a layout is its master, or contains the
/// rank's shard of it.
bool computesOnMaster(const Manifest &manifest, const Layout &layout);

/// Returns true if the shards of all ranks, one behind the other, are what a
/// gather of the layout brings. On a host, ranks that reach each other's memory
/// then hold them so, and gathers copy nothing. On each rank the shard takes
/// the bytes that layoutMemory says.
bool gathersInPlace(const Manifest &manifest, const Layout &layout);
/// Returns the bytes of these shards together; 0 if the layout has none.
int64_t sideBySideBytes(const Manifest &manifest, const Layout &layout,
                        int ranks);

/// Return true if a rank has a part of the layout's gradient, or of its
/// parameters, in memory that nothing else lies in and that no other rank has
/// besides: only that can be offloaded. Gradients also must be reduced by
/// ranges of shards, so not to owners, not in blocks, and not with residuals.
bool hasOwnGradient(const Manifest &manifest, const Layout &layout);
bool hasOwnParameters(const Manifest &manifest, const Layout &layout);

/// Returns the bytes per element of the parameters of such a layout: those of a
/// master, or of the compute type.
int64_t ownParameterBytes(const Manifest &manifest, const Layout &layout);

/// Elements of a piece in which the update reads what is offloaded of a layout,
/// and writes it back. Two pieces are in memory: one that is computed, and one
/// that is written back and then replaced by the next. Gathers that convert
/// parameters, and reductions, have a piece each. On a GPU, whose collectives
/// sum a shard as one, the piece of reductions is the largest shard.
constexpr int64_t offloadPieceElements = int64_t(1) << 18;

/// The memory for these pieces, in bytes.
struct OffloadPieces {
  int64_t updates = 0, gathers = 0, reductions = 0;
  int64_t total() const { return updates + gathers + reductions; }
};
/// `owners` comes from ownersOf. The other numbers are those of layoutMemory.
OffloadPieces offloadPieces(const Manifest &manifest, int ranks, int groupRanks,
                            const std::vector<int> &owners, int rank);

/// Bytes of one microbatch of an input. The runtime keeps two: it computes on
/// one and reads the next.
int64_t inputBytes(const Input &input);
/// Bytes of one microbatch of an output, which the program keeps until it is
/// written; 0 for a metric.
int64_t outputBytes(const Output &output);
/// The same without alignment, also of a metric.
size_t bytesOf(const Output &output);
/// Bytes of a model buffer, aligned, so that there may be more than its
/// elements take.
int64_t bufferBytes(const Buffer &buffer);
/// Elements of a model buffer, without alignment.
int64_t bufferElements(const Buffer &buffer);
/// Bytes needed to gather one buffer's batch statistics from all ranks; the
/// largest over the buffers.
int64_t statisticsBytes(const Manifest &manifest, int64_t ranks);
/// Bytes of the blocks in which a gather leaves what it has received, before it
/// is converted; the largest over the layouts that travel in blocks.
int64_t gatheredBlockBytes(const Manifest &manifest, int64_t ranks);
/// Bytes of the pieces of reductions in blocks; 0 if there are none, and on
/// GPUs.
int64_t reducedBlockBytes(const Manifest &manifest, int64_t ranks);
/// Returns the shapes of members, as descriptions of compressions take them.
MemberShapes shapesOf(const std::vector<Member> &members);
/// Bytes through which a layout's reduction sends less than its gradient. The
/// largest over the layouts.
int64_t compressedBytes(const Manifest &manifest, int64_t ranks);

/// Computes the table. The caller asks the communicator for
/// `communicationBytes` and the device for `scratchpadBytes`, for the same
/// ranks and threads. Ranks differ only in the layouts that they own; `rank` is
/// one of them, or fullestRank.
constexpr int fullestRank = -1;
MemoryPlan planMemory(const Manifest &manifest, int ranks, int groupRanks,
                      int threads, int64_t communicationBytes,
                      int64_t scratchpadBytes, int rank = fullestRank);

/// Returns the bytes that a program's communicators take
/// (runtime/abi/staging.h).
int64_t channelBytes(const Manifest &manifest, int ranks, int groupRanks,
                     int ranksPerNode, const std::string &transport);

} // namespace fsdpc
