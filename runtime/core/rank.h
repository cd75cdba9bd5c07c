// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The state of one rank while the program runs: its memory, its device, its
// place in the job, and the microbatch and step that are being enqueued. The
// functions of the C ABI (rank.cpp) work on it, and the training loop
// (loop.cpp) drives it.
//
// A rank is not safe for concurrent use. The thread that runs the loop owns it;
// work on streams gets values and pointers, never fields that the loop changes.
#pragma once

#include "runtime/abi/blocks.h"
#include "runtime/abi/factors.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/groups.h"
#include "runtime/core/activation_file.h"
#include "runtime/core/device.h"
#include "runtime/core/shard_file.h"
#include "runtime/numeric/reduce.h"
#include "runtime/support/status.h"

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace fsdpc::runtime {

class UpdateRatios;

/// The numbers of a step that follow from the steps before it.
struct StepNumbers {
  int64_t updates = 0; ///< steps before this one that were not skipped
  double lr = 0;
  float lossScale = 1;
  /// The factor that turns an accumulated gradient into the mean: inverseV /
  /// the loss's scale, less the factors that hooks on the reduction have
  /// applied.
  double gradientFactor = 1;
};

/// Elements that one thread sums for the norm before it goes on. The sum has
/// the same bits for every multiple of a group (square_sum.h).
constexpr int64_t normBlock = 4096;

/// Content of FSDPC_SPACE_RANDOM. `words` are the counter and key of the random
/// numbers (philox.h); the factors are read by the loss and the backward.
struct RandomKey {
  std::array<uint32_t, 4> words;
  float lossScale;
  float microbatchWeight; ///< inverseV
  /// The factors of the microbatch's means, in the order of
  /// Manifest::lossWeights.
  float lossFactors[fsdpc::mostLossWeights];
};

/// The state of an optimizer that keeps averages of squares along rows and
/// columns of a member.
struct MemberFactors {
  FactorShape shape;
  float *rows = nullptr, *columns = nullptr; ///< rows: null if not factored
  int64_t first = 0;    ///< the member's among the layout's rows and columns
  int64_t firstSum = 0; ///< and among the numbers that ranks add up
};

/// The persistent memory of one layout on this rank. "Shard" pointers refer to
/// this rank's shard, which either has memory of its own or lies inside the
/// full-length ("whole") buffer.
struct LayoutBuffers : LayoutCut {
  /// An offloaded part is null here if it lies in a file, and otherwise in
  /// pinned host memory, which only copies reach.
  ///
  /// Null if the layout keeps its values in the compute type only.
  float *masterShard = nullptr, *masterWhole = nullptr;
  /// In the compute type. Null if the layout has no such copy, and gathers cast
  /// the master instead.
  char *computeShard = nullptr, *computeWhole = nullptr;
  /// The shards of all ranks side by side, this one's among them, so that a
  /// gather copies nothing. Null if this rank has its shard to itself.
  char *gathered = nullptr;
  float *gradientShard = nullptr, *gradientWhole = nullptr;
  /// The gradient of a layout that is unsummed, in the compute type; the other
  /// two are null then.
  char *unsummed = nullptr;
  /// This rank's part of the parameters over its shard group, in the compute
  /// type; null if the layout has none.
  char *secondary = nullptr;
  /// The part of this rank's gradients that reductions have not sent,
  /// `elements` of the layout; null if they send all.
  float *residual = nullptr;
  /// What else reductions keep, of all members (CompressionState); null if
  /// nothing.
  float *compression = nullptr;
  /// `part` elements per state, one after the other.
  float *states = nullptr;
  int64_t partBegin = 0, part = 0; ///< elements that this rank updates
  /// The double[4] of fsdpc_optimizer, per member.
  std::vector<std::array<double, 4>> rates;
  /// The int64[4] of fsdpc_optimizer, per member; empty with a master.
  std::vector<std::array<int64_t, 4>> roundingKeys;
  /// Updates of the run before the first one of each member's state, which is
  /// later than the first step if the member was frozen before.
  std::vector<int64_t> since;
  /// The optimizer's averages of rows and columns, per member; empty if it
  /// keeps none.
  std::vector<MemberFactors> factors;
};

} // namespace fsdpc::runtime

struct fsdpc_rank {
  fsdpc_rank(const fsdpc::Manifest &manifest, const fsdpc_program &program,
             fsdpc::runtime::Job &job,
             std::unique_ptr<fsdpc::runtime::Device> device)
      : manifest(manifest), program(program), job(job), groupRanks(job.size),
        device(std::move(device)) {}
  ~fsdpc_rank();
  fsdpc_rank(const fsdpc_rank &) = delete;

  /// Allocates exactly what the plan says, and zeroes the layouts. Fails if
  /// memory runs out or if the sum differs from plan.allocated.
  fsdpc::Status allocate(const fsdpc::MemoryPlan &plan);
  /// Makes the files of what is offloaded in a folder, of layouts and of
  /// activations. Call it after `allocate`.
  fsdpc::Status openFiles(const std::string &folder);

  const fsdpc::Manifest &manifest;
  const fsdpc_program &program;
  fsdpc::runtime::Job &job;
  int groupRanks; ///< of a shard group; set before `allocate`
  /// Memory that all ranks of the job reach, for the shards of layouts that are
  /// gathered in place (sideBySideBytes, one layout's after another's). Set
  /// before `allocate`, and outlives the rank. Null: each rank has its shards
  /// to itself.
  char *sideBySide = nullptr;
  /// The groups of the gather and of the reduce channel, which the loop owns.
  /// Null if no layout is gathered or reduced in groups, and on GPUs.
  std::array<fsdpc::runtime::ShardGroups *, 2> groups{};
  std::unique_ptr<fsdpc::runtime::Device> device;

  std::vector<fsdpc::runtime::LayoutBuffers> layouts;
  /// Holds what is offloaded of the layouts; null if nothing is, or if it lies
  /// in pinned memory.
  std::unique_ptr<fsdpc::runtime::ShardFile> shardFile;
  /// Returns true if a part of a layout, which is offloaded or not, lies in the
  /// file.
  bool isInFile(bool isOffloaded) const { return isOffloaded && shardFile; }
  /// Holds the activations that are offloaded; null if none are.
  std::unique_ptr<fsdpc::runtime::ActivationFile> activationFile;
  /// Memory of two pieces of an update (offloadPieces), and memory through
  /// which a gather takes offloaded parameters that it converts, and reductions
  /// take gradients. Each is of one stream.
  char *updatePieces = nullptr;
  char *gatherPiece = nullptr;
  float *reducePiece = nullptr;
  char *arena = nullptr;
  /// Two slots per input: the device computes on one while the loop fills the
  /// other. `staging` is host memory from which `inputs` are copied.
  std::array<std::vector<void *>, 2> inputs, staging;
  std::array<void *, 2> random{};
  std::array<fsdpc::runtime::RandomKey *, 2> randomStaging{};
  std::vector<void *> buffers;
  /// The last report of each output of the manifest, in device memory; null for
  /// a metric.
  std::vector<void *> outputs;
  float *statistics = nullptr; ///< one buffer's batch statistics of all ranks
  /// The buffer for what a gather in blocks receives, and for the pieces of a
  /// reduction in blocks; null if there are none. Each is of one stream.
  char *gatheredBlocks = nullptr, *reducedBlocks = nullptr;
  /// A buffer for what reductions with residuals send, one after the other;
  /// null if there are none.
  char *compressed = nullptr;

  /// The loop's position. Calls of the C ABI read it while they enqueue; work
  /// on the streams must not, because it runs later.
  int slot = 0;
  int64_t microbatch = 0; ///< of this rank within the step: 0 … accumulate-1
  int64_t step = 0;
  /// The step's numbers. A device that runs ahead is given the step before it
  /// is known whether the one before is skipped: it takes the second ones if
  /// so.
  fsdpc::runtime::StepNumbers numbers, afterSkip;
  uint64_t seed = 0;      ///< of the words with which parameters are rounded
  double inverseV = 1;    ///< 1 / microbatches per step over all ranks
  int64_t accumulate = 1; ///< microbatches of this rank per step
  /// The optimizers of a step whose gradients are not finite do nothing;
  /// otherwise such a step ends the job.
  bool skipsNonFinite = false;
  /// A step is also skipped if a loss is not finite, and the buffers of the
  /// model then keep their values (--on-nonfinite).
  bool leavesOut = false;
  /// The update adds its changes here; null in a step that is not measured.
  /// Read while the update is enqueued.
  fsdpc::runtime::UpdateRatios *updateRatios = nullptr;
  /// Describes a number in a step's data that is not finite, or returns an
  /// empty string. Called on any thread.
  std::function<std::string(int64_t step)> describeNonFinite;
  /// Called by all ranks together, on any thread, before such a number ends the
  /// job: completes the checkpoint that is being written.
  std::function<void()> finishCheckpoint;

private:
  char *allocateBlock(int64_t bytes);
  char *take(int64_t bytes); ///< allocates and counts towards plan.allocated
  char *takeOffloaded(int64_t bytes);
  void allocateLayout(const fsdpc::Layout &layout, int owner, char *gathered);
  void findFactors();
  fsdpc::Status allocateSlot(int slot);
  struct Block {
    void *memory;
    size_t bytes;
  };
  std::vector<Block> blocks;
  int64_t taken = 0;
};

namespace fsdpc::runtime {

/// Calls body(member, from, to) for the elements of each member within [begin,
/// end). `member` is an index; positions are in elements of the layout. Gaps
/// between members and the layout's padding are left out. A body may return a
/// Status; its first error ends the loop and is returned.
template <class Body>
auto forEachMember(const Layout &layout, int64_t begin, int64_t end, Body body)
    -> std::invoke_result_t<Body, size_t, int64_t, int64_t> {
  using Outcome = std::invoke_result_t<Body, size_t, int64_t, int64_t>;
  size_t low = 0, high = layout.members.size();
  while (low < high) { // the first member that ends after begin
    size_t middle = (low + high) / 2;
    const Member &member = layout.members[middle];
    if (member.offset + member.elements <= begin)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < layout.members.size() && layout.members[low].offset < end;
       ++low) {
    const Member &member = layout.members[low];
    int64_t from = member.offset > begin ? member.offset : begin;
    int64_t to = member.offset + member.elements;
    to = to < end ? to : end;
    if (from >= to)
      continue;
    if constexpr (std::is_void_v<Outcome>)
      body(low, from, to);
    else
      FSDPC_TRY(body(low, from, to));
  }
  return Outcome();
}

/// Operands of an optimizer kernel: parameter, gradient, the element's number
/// if it takes one, states, the copy in the compute type or the key of a
/// member's rounding, scale, and up to three that a device adds.
struct OptimizerOperands {
  std::array<void *, mostStates + 7> list;
  size_t count = 0;
  bool hasNumber = false;
  void push(void *operand) { list[count++] = operand; }
  /// Where the states begin.
  size_t statesAt() const { return hasNumber ? 3 : 2; }
};

/// The operands of a layout's optimizer kernel, as fsdpc_optimizer lists them,
/// up to and including `scale`. They point to the part that this rank updates:
/// the full-length buffers if the state is replicated, else the shards. With
/// factors or updates the device sets the operand of the element's number, and
/// without a master that of the key, which is the one before `scale`. Operands
/// that are offloaded are set piece by piece: on a host by `placePiece`, on a
/// GPU by CudaOffload::bring. If `gradient` is null, the operand is the
/// gradient in the layout's memory.
OptimizerOperands optimizerOperands(const fsdpc_rank &rank, int32_t layout,
                                    const void *scale, const void *gradient,
                                    bool hasNumber = false);
/// The same for fsdpc_member_sums, whose kernel reads no copy in the compute
/// type.
OptimizerOperands memberSumOperands(const fsdpc_rank &rank, int32_t layout,
                                    const void *scale, bool hasNumber = false);
constexpr size_t numberOperand = 2;
/// Returns where an operand in f32 has an element of the part. The operand
/// itself may lie outside of the memory, so the address is computed as a
/// number.
inline const float *elementOf(const void *operand, int64_t element) {
  return reinterpret_cast<const float *>(reinterpret_cast<uintptr_t>(operand) +
                                         uintptr_t(element) * sizeof(float));
}
/// Sets the operands of what a piece holds. A kernel counts elements from the
/// beginning of the rank's part, so they point to where the part would begin.
void placePiece(OptimizerOperands &operands, const fsdpc_rank &rank,
                int32_t layout, const ShardPiece &piece);

/// Returns the type in which a layout is gathered and its gradients are packed.
inline WireType computeTypeOf(const fsdpc_rank &rank, int32_t layout) {
  const fsdpc::Layout &own = rank.manifest.layouts[size_t(layout)];
  return own.ofBytes ? WireType::u8
                     : wireType(rank.manifest.computeDtypeOf(own));
}

/// This rank's part of a layout's gradient.
struct GradientShard {
  const char *values = nullptr; ///< null if it lies in a file
  WireType type = WireType::f32;

  /// Returns the address of an element of the shard.
  const char *at(int64_t element) const {
    return values + element * elementBytes(type);
  }
};
inline GradientShard gradientShardOf(const fsdpc_rank &rank, int32_t layout) {
  const LayoutBuffers &buffers = rank.layouts[size_t(layout)];
  if (buffers.unsummed)
    return {buffers.unsummed, computeTypeOf(rank, layout)};
  return {reinterpret_cast<const char *>(buffers.gradientShard), WireType::f32};
}

/// Returns the type of this rank's offloaded parameters: f32 if they are
/// masters.
inline WireType offloadedTypeOf(const fsdpc_rank &rank, int32_t layout) {
  const Layout &own = rank.manifest.layouts[size_t(layout)];
  return ownParameterBytes(rank.manifest, own) == 4
             ? WireType::f32
             : computeTypeOf(rank, layout);
}

/// Returns the type of the blocks in which a layout is gathered.
inline BlockType gatheredAs(const fsdpc_rank &rank, int32_t layout) {
  return blockTypeOf(rank.manifest.layouts[size_t(layout)].wire);
}

/// Returns the bytes of a layout's secondary shard without padding.
inline size_t secondaryBytes(const fsdpc_rank &rank, int32_t layout) {
  return size_t(rank.layouts[size_t(layout)].whole / rank.groupRanks) *
         elementBytes(computeTypeOf(rank, layout));
}

/// The bytes of a buffer that the forward may change, or 0: running statistics
/// and counters.
size_t changingBytes(const Buffer &buffer);

/// Returns the index of the first layout whose accumulated gradient is not
/// finite on this rank, or the number of layouts if all are. Reads all
/// gradients; for error messages only.
int64_t firstNonFinite(const fsdpc_rank &rank);
/// Says where a number that is not finite may come from: the data of the step
/// if it is not finite either, else `unit`, the first one with such a gradient
/// (empty: none). For messages.
std::string causeOfNonFinite(const fsdpc_rank &rank, int64_t step,
                             const std::string &unit);
/// Ends the job because `what` of a step is not finite: "the loss is nan".
/// `unit` is as above. Every rank must call it.
[[noreturn]] void stopAtNonFinite(fsdpc_rank &rank, int64_t step,
                                  const std::string &what,
                                  const std::string &unit);
/// The same for the gradient's sum of squares; `layout` is the first such
/// layout.
[[noreturn]] void stopAtGradient(fsdpc_rank &rank, int64_t step,
                                 int32_t layout);

} // namespace fsdpc::runtime
