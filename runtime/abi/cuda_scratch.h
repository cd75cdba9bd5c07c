// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes from the manifest alone how much device memory a CUDA rank takes in
// addition to what runtime/core allocates. The compiler prints it in the memory
// table, and the program sizes its one allocation by it. Includes nothing of
// CUDA, so the compiler needs no CUDA.
//
// All sizes are in bytes.
#pragma once

#include "runtime/abi/manifest.h"

#include <cstdint>

namespace fsdpc {

/// Bound of the workspace of cuBLASLt and cuDNN, which run on one stream.
constexpr int64_t libraryWorkspaceBytes = int64_t(32) << 20;
/// Pinned memory that blocking copies go through.
constexpr int64_t bounceBytes = int64_t(4) << 20;
/// Bound of the scores of attention by products that exist at one time.
constexpr int64_t scoresCap = int64_t(64) << 20;
/// Elements that one block of the optimizer kernel updates at most.
constexpr int64_t optimizerSegment = 4096;

/// Bound of the sums of groups of 16 elements that exist at one time.
constexpr int64_t groupSumsCap = int64_t(4) << 20;
/// Bound of the numbers, one per element, that optimizers take beside their
/// states and that exist at one time: they stay in the cache between two
/// kernels.
constexpr int64_t elementNumbersCap = int64_t(16) << 20;
/// Elements of a matrix whose squares one block sums for its norm.
constexpr int64_t matrixChunk = 4096;
/// Bytes of a member's entry in the table of factors.
constexpr int64_t factorMemberBytes = 128;
/// Numbers of an all-reduce for which memory is planned; more are added up in
/// pieces.
constexpr int64_t addedTogether = int64_t(1) << 17;
/// Segments whose sums of groups fit groupSumsCap.
int64_t segmentsPerSum(int32_t sumsPerMember);

/// Returns the offset of a block of `bytes` behind `used` bytes: aligned to
/// 256, blocks of 1 MiB and more to 4096.
int64_t alignedPlace(int64_t used, int64_t bytes);

/// Attention by products: the heads whose scores exist at one time. A chunk
/// covers `batches` whole batch entries; or, of one entry, `groups` key heads
/// with all of their query heads; or a single query head.
struct AttentionChunk {
  int64_t batches = 1, groups = 1, shared = 1;
  int64_t heads() const { return batches * groups * shared; }
  /// Offsets in the scratch, after the scores (f32): dweights in f32; weights
  /// and dscores in the plan's type unless that is f32; f32 sums of dkey and
  /// dvalue if these are rounded only after several heads were added.
  int64_t weights = 0, dweights = 0, dscores = 0, dkey = 0, dvalue = 0;
  int64_t bytes = 0;
};
AttentionChunk attentionChunk(const AttentionPlan &plan);
/// Returns the workspace that cuDNN is expected to need at most. An attention
/// for which it asks for more than the device's scratch runs by products.
int64_t attentionWorkspaceBytes(const AttentionPlan &plan);

/// The parts of a device's scratch.
struct CudaScratch {
  int64_t library = 0;     ///< workspace of libraries
  int64_t attention = 0;   ///< a chunk's scores, or cuDNN's own memory
  int64_t wire = 0;        ///< gradients cast for the other ranks
  int64_t collectives = 0; ///< collectiveScratchBytes
  int64_t compression = 0; ///< compressionBytes, and first CompressionStates
  int64_t tables = 0;      ///< norms, optimizers, numbers, reports
  int64_t alignment = 0;   ///< lost between blocks
  int64_t total() const {
    return library + attention + wire + collectives + compression + tables +
           alignment;
  }
};
/// `communicates` is false for a single rank, unless it tests NCCL alone.
CudaScratch cudaScratch(const Manifest &manifest, int64_t ranks,
                        bool communicates);

/// Returns true if a reduction of the layout reads where its members lie: the
/// memory between them may hold anything.
bool readsMemberRanges(const Manifest &manifest, const Layout &layout);

/// Gradients of owned layouts travel together as long as they take at most so
/// many bytes; a larger one travels alone.
constexpr int64_t ownedTogether = int64_t(32) << 20;
/// Returns what one of them takes then.
size_t ownedBytes(int64_t elements, size_t width);

/// The numbers that a step computes with, in words of eight bytes: of the step,
/// and of each member of trainable layouts.
int64_t stepNumberCount(const Manifest &manifest);

/// Scratch that the collectives of both channels need together: gradients with
/// all ranks' shards as they travel, one shard, and the sums of every rank.
int64_t collectiveScratchBytes(const Manifest &manifest, int64_t ranks);

/// The memory with which compressed reductions compute, one layout after the
/// other (CompressionInfo::deviceBytes).
int64_t compressionBytes(const Manifest &manifest);

} // namespace fsdpc
