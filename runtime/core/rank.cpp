// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions of the C ABI. Each call forwards to the rank's device, by code
// that is generated from the rt dialect. Devices copy the arrays that a program
// passes, because it may reuse them before the enqueued work runs.
#include "runtime/core/rank.h"
#include "runtime/core/failure.h"
#include "runtime/support/concat.h"

#include <cmath>

using namespace fsdpc;
using namespace fsdpc::runtime;

#define FSDPC_FORWARDING
#include "runtime/core/calls.inc"

// Inputs and random keys depend on the slot, so the same program text reads the
// other slot in the next microbatch.
void *fsdpc_pointer(fsdpc_rank *rank, int32_t space, int32_t index,
                    int64_t offset) {
  auto at = [offset](const void *base) -> void * {
    return static_cast<char *>(const_cast<void *>(base)) + offset;
  };
  size_t slot = size_t(rank->slot);
  switch (space) {
  case FSDPC_SPACE_ARENA:
    return at(rank->arena);
  case FSDPC_SPACE_INPUT:
    return at(rank->inputs[slot][size_t(index)]);
  case FSDPC_SPACE_CONSTANT:
    return at(rank->device->constants(rank->program));
  case FSDPC_SPACE_BUFFER:
    return at(rank->buffers[size_t(index)]);
  case FSDPC_SPACE_WHOLE:
    return at(rank->layouts[size_t(index)].computeWhole);
  case FSDPC_SPACE_RANDOM:
    return at(rank->random[slot]);
  case FSDPC_SPACE_GRADIENT:
    return at(rank->layouts[size_t(index)].unsummed);
  case FSDPC_SPACE_GATHERED:
    if (char *gathered = rank->layouts[size_t(index)].gathered)
      return gathered;
    return at(rank->arena);
  }
  fail(inputError(concat("the program uses memory space ", space,
                         ", which does not exist")));
}

// The operands that both kernels begin with: parameter, gradient, the average
// of squares if it follows from factors, and states. Without `gradient` it is
// the layout's own.
static OptimizerOperands commonOperands(const fsdpc_rank &rank, int32_t index,
                                        const void *gradient, bool hasNumber) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  const LayoutBuffers &buffers = rank.layouts[size_t(index)];
  OptimizerOperands operands;
  operands.hasNumber = hasNumber;
  // If the state is replicated, so is the master; checkManifest makes sure of
  // it.
  if (layout.noMaster)
    operands.push(layout.stateWhole ? buffers.computeWhole
                                    : buffers.computeShard);
  else
    operands.push(layout.stateWhole ? buffers.masterWhole
                                    : buffers.masterShard);
  // Kernels count elements from the part's first. Where a shard has memory of
  // its own and the part is whole, that address lies outside of the memory, so
  // it is computed as a number.
  int64_t before = buffers.shardOf(rank.job.rank) - buffers.partBegin;
  GradientShard shard = gradientShardOf(rank, index);
  operands.push(gradient ? const_cast<void *>(gradient)
                         : reinterpret_cast<void *>(
                               reinterpret_cast<uintptr_t>(shard.values) -
                               uintptr_t(before) * elementBytes(shard.type)));
  if (hasNumber)
    operands.push(nullptr);
  for (int32_t state = 0; state < layout.states; ++state)
    operands.push(buffers.states ? buffers.states + state * buffers.part
                                 : nullptr);
  return operands;
}

void fsdpc::runtime::placePiece(OptimizerOperands &operands,
                                const fsdpc_rank &rank, int32_t index,
                                const ShardPiece &piece) {
  if (piece.parameters)
    operands.list[0] = piece.parameters -
                       piece.begin * elementBytes(offloadedTypeOf(rank, index));
  if (piece.gradient)
    operands.list[1] = piece.gradient - piece.begin;
  int32_t states = rank.manifest.layouts[size_t(index)].states;
  for (int32_t state = 0; piece.states && state < states; ++state)
    operands.list[operands.statesAt() + size_t(state)] =
        piece.states + (state * piece.stride - piece.begin);
}

OptimizerOperands fsdpc::runtime::memberSumOperands(const fsdpc_rank &rank,
                                                    int32_t index,
                                                    const void *scale,
                                                    bool hasNumber) {
  // A rank sums its own elements, of which it always has the gradient.
  OptimizerOperands operands = commonOperands(rank, index, nullptr, hasNumber);
  operands.push(const_cast<void *>(scale));
  return operands;
}

// The operands are in the order that fsdpc_optimizer documents.
OptimizerOperands fsdpc::runtime::optimizerOperands(const fsdpc_rank &rank,
                                                    int32_t index,
                                                    const void *scale,
                                                    const void *gradient,
                                                    bool hasNumber) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  const LayoutBuffers &buffers = rank.layouts[size_t(index)];
  OptimizerOperands operands = commonOperands(rank, index, gradient, hasNumber);
  // In f32 the master is the compute copy, and the kernel has no such operand.
  if (layout.noMaster)
    operands.push(nullptr);
  else if (hasComputeCopy(rank.manifest, layout))
    operands.push(layout.stateWhole ? buffers.computeWhole
                                    : buffers.computeShard);
  operands.push(const_cast<void *>(scale));
  return operands;
}

// The states of optimizers are behind the update, which changes nothing.
size_t fsdpc::runtime::changingBytes(const Buffer &buffer) {
  return buffer.optimizerState
             ? 0
             : size_t(bufferElements(buffer) * dtypeBytes(buffer.dtype));
}

// Writes `count` elements of a gradient, in f32. `to` has room for them.
static void downloadWide(const fsdpc_rank &rank, const GradientShard &shard,
                         int64_t from, size_t count, float *to) {
  if (shard.type == WireType::f32)
    return rank.device->download(to, shard.at(from), count * sizeof(float));
  std::vector<char> narrow(count * elementBytes(shard.type));
  rank.device->download(narrow.data(), shard.at(from), narrow.size());
  castToWire(narrow.data(), shard.type, WireType::f32, int64_t(count), to);
}

// Takes pieces, since gradients may be in device memory or in a file. What
// cannot be read counts as not finite: the job is about to end.
int64_t fsdpc::runtime::firstNonFinite(const fsdpc_rank &rank) {
  std::vector<float> piece(1 << 16);
  for (size_t i = 0; i < rank.layouts.size(); ++i) {
    const LayoutBuffers &buffers = rank.layouts[i];
    GradientShard shard = gradientShardOf(rank, int32_t(i));
    if (buffers.gradientWhole)
      shard.values = reinterpret_cast<const char *>(buffers.gradientWhole);
    bool inFile = rank.isInFile(rank.manifest.layouts[i].gradientOffloaded);
    if (!shard.values && !inFile)
      continue; // frozen
    int64_t count = buffers.gradientWhole ? buffers.whole : buffers.shard;
    for (int64_t e = 0; e < count; e += int64_t(piece.size())) {
      size_t length = std::min(piece.size(), size_t(count - e));
      if (!inFile)
        downloadWide(rank, shard, e, length, piece.data());
      else if (!rank.shardFile->readGradient(i, e, int64_t(length),
                                             piece.data()))
        return int64_t(i);
      for (size_t at = 0; at < length; ++at)
        if (!std::isfinite(piece[at]))
          return int64_t(i);
    }
  }
  return int64_t(rank.layouts.size());
}

// All ranks look at the data of all, so that none waits for another.
std::string fsdpc::runtime::causeOfNonFinite(const fsdpc_rank &rank,
                                             int64_t step,
                                             const std::string &unit) {
  std::string data = rank.describeNonFinite ? rank.describeNonFinite(step) : "";
  if (!data.empty())
    return data;
  return (unit.empty()
              ? "all gradients are finite"
              : "first unit with a non-finite gradient: '" + unit + "'") +
         std::string("; use a lower --lr or a longer warmup");
}

// A checkpoint that is being written is finished first: it is of a step before
// the fault.
void fsdpc::runtime::stopAtNonFinite(fsdpc_rank &rank, int64_t step,
                                     const std::string &what,
                                     const std::string &unit) {
  if (rank.finishCheckpoint)
    rank.finishCheckpoint();
  failJob(rank.job, runError(concat("step ", step, ": ", what, "; ",
                                    causeOfNonFinite(rank, step, unit))));
}

void fsdpc::runtime::stopAtGradient(fsdpc_rank &rank, int64_t step,
                                    int32_t layout) {
  // Under a constant scale the gradient itself may be small enough.
  const LossScale &scale = rank.manifest.lossScale;
  std::string factor =
      scale.isOn() ? " times the constant loss scale" : std::string();
  stopAtNonFinite(rank, step, "the gradient" + factor + " is not finite",
                  rank.manifest.layouts[size_t(layout)].unit);
}
