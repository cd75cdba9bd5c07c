// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Allocates the memory of a rank. It follows planMemory block by block and
// compares the sum at the end, so the printed table is what the program really
// takes.
#include "runtime/core/rank.h"
#include "runtime/support/concat.h"

#include <map>
#include <new>
#include <string>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace fsdpc;
using namespace fsdpc::runtime;

// The device is destroyed after this body, as a member. The thread of
// `shardFile` may be reading into a block.
fsdpc_rank::~fsdpc_rank() {
  shardFile.reset();
  for (const Block &block : blocks)
    device->release(block.memory, block.bytes);
}

// Throws if memory runs out; `allocate` turns that into an error. Blocks are
// not counted towards the plan; `take` counts.
char *fsdpc_rank::allocateBlock(int64_t bytes) {
  void *memory = device->allocate(size_t(bytes));
  if (!memory)
    throw std::bad_alloc();
  blocks.push_back({memory, size_t(bytes)});
  return static_cast<char *>(memory);
}

char *fsdpc_rank::take(int64_t bytes) {
  if (bytes == 0)
    return nullptr;
  char *memory = allocateBlock(bytes);
  taken += bytes;
  return memory;
}

// Returns memory for what is offloaded, which counts towards plan.offloaded, or
// null if it lies in a file.
char *fsdpc_rank::takeOffloaded(int64_t bytes) {
  if (!offloadsToPinned(manifest))
    return nullptr;
  void *memory = device->allocateOffloaded(size_t(bytes));
  if (!memory)
    throw std::bad_alloc();
  return static_cast<char *>(memory);
}

// Allocates a layout's buffers and finds this rank's shard in each. Zeroes
// them, because padding takes part in sums and updates and must not hold NaN.
// If all ranks' shards are to lie at `gathered`, this rank's gets its place
// there.
void fsdpc_rank::allocateLayout(const Layout &layout, int owner,
                                char *gathered) {
  LayoutMemory memory =
      layoutMemory(manifest, layout, job.size, groupRanks, owner, job.rank);
  LayoutBuffers buffers;
  static_cast<LayoutCut &>(buffers) = memory;
  int64_t first = memory.shardOf(job.rank);
  auto zeroed = [&](int64_t bytes, int64_t offloaded = 0) {
    if (offloaded > 0)
      return takeOffloaded(offloaded);
    char *pointer = take(bytes);
    if (pointer)
      device->zero(pointer, size_t(bytes));
    return pointer;
  };

  std::string type = manifest.computeDtypeOf(layout);
  int64_t computeBytes = dtypeBytes(type);
  auto parameters = [&](int64_t bytes, int64_t offloaded) {
    if (!gathered || bytes == 0)
      return zeroed(bytes, offloaded);
    taken += bytes;
    char *place = gathered + first * computeBytes;
    device->zero(place, size_t(memory.shard * computeBytes));
    return place;
  };

  buffers.gathered = gathered;
  char *master = parameters(memory.master, memory.offloaded.master);
  char *compute = parameters(memory.compute, memory.offloaded.compute);
  // With f32 compute there is one copy: the master is the compute copy, or a
  // part of it.
  bool same = computesOnMaster(manifest, layout);
  if (same && layout.computeWhole)
    master = compute;
  else if (same)
    compute = master;
  bool masterWhole = layout.masterWhole || (same && layout.computeWhole);
  bool computeWhole = layout.computeWhole || (same && layout.masterWhole);
  // If the buffer is replicated, the shard is a part of it, `first` elements
  // from its start; else the buffer is the shard.
  if (master)
    buffers.masterShard =
        reinterpret_cast<float *>(master) + (masterWhole ? first : 0);
  buffers.masterWhole =
      masterWhole ? reinterpret_cast<float *>(master) : nullptr;
  if (compute)
    buffers.computeShard = compute + (computeWhole ? first * computeBytes : 0);
  buffers.computeWhole = computeWhole ? compute : nullptr;
  buffers.secondary = zeroed(memory.secondary);

  if (layout.trainable) {
    char *gradient = zeroed(memory.gradient, memory.offloaded.gradient);
    auto *sums =
        reinterpret_cast<float *>(layout.unsummed ? nullptr : gradient);
    if (sums)
      buffers.gradientShard = sums + (layout.gradientWhole ? first : 0);
    buffers.gradientWhole = layout.gradientWhole ? sums : nullptr;
    buffers.unsummed = layout.unsummed ? gradient : nullptr;
    buffers.states = reinterpret_cast<float *>(
        zeroed(memory.states, memory.offloaded.states));
    buffers.residual = reinterpret_cast<float *>(zeroed(memory.residual));
    buffers.compression = reinterpret_cast<float *>(zeroed(memory.compression));
    buffers.partBegin = layout.stateWhole ? 0 : first;
    buffers.part = layout.stateWhole ? memory.whole : memory.shard;
    buffers.rates.resize(layout.members.size());
    buffers.since.resize(layout.members.size());
    // The seed and the step are set in each step. The top bit is what no
    // counter of a model's draws has, whose third word is a microbatch.
    for (const Member &member : layout.members)
      if (layout.noMaster)
        buffers.roundingKeys.push_back(
            {0,
             int64_t(XXH64(member.name.data(), member.name.size(), 0) |
                     uint64_t(1) << 63),
             0, buffers.partBegin - member.offset});
  }
  layouts.push_back(std::move(buffers));
}

// Allocates one slot of every input. The random keys, 24 bytes per slot, are
// not part of the plan. Where the host cannot write to the device, `staging` is
// memory of its own, from which send() copies.
Status fsdpc_rank::allocateSlot(int slot) {
  size_t at = size_t(slot);
  for (const Input &input : manifest.inputs) {
    int64_t bytes = inputBytes(input);
    inputs[at].push_back(take(bytes));
    Result<void *> staged =
        device->staging(slot, inputs[at].back(), size_t(bytes));
    FSDPC_TRY(staged);
    staging[at].push_back(*staged);
  }
  random[at] = allocateBlock(sizeof(RandomKey));
  Result<void *> staged = device->staging(slot, random[at], sizeof(RandomKey));
  FSDPC_TRY(staged);
  randomStaging[at] = static_cast<RandomKey *>(*staged);
  randomStaging[at]->microbatchWeight = float(inverseV);
  return {};
}

// Every member of a layout has its buffers, or none has (the verifier of
// fsdp.update_factors). Without the first member's columns the layout keeps no
// factors.
void fsdpc_rank::findFactors() {
  std::map<std::string, float *> states;
  for (size_t i = 0; i < manifest.buffers.size(); ++i)
    if (manifest.buffers[i].optimizerState)
      states[manifest.buffers[i].name] = static_cast<float *>(buffers[i]);
  auto find = [&](const std::string &name) {
    auto found = states.find(name);
    return found == states.end() ? nullptr : found->second;
  };
  for (size_t i = 0; i < layouts.size(); ++i) {
    int64_t first = 0, firstSum = 0;
    for (const Member &member : manifest.layouts[i].members) {
      MemberFactors factors;
      factors.shape = factorShapeOf(member.shape);
      factors.first = first;
      factors.firstSum = firstSum;
      first += factors.shape.count();
      firstSum += factors.shape.sumCount();
      factors.rows = find(member.name + rowFactors);
      factors.columns =
          find(member.name +
               (factors.shape.factored ? columnFactors : vectorFactors));
      if (!factors.columns)
        break;
      layouts[i].factors.push_back(factors);
    }
  }
}

Status fsdpc_rank::allocate(const MemoryPlan &plan) {
  FSDPC_TRY(device->reserve(plan));
  try {
    std::vector<int> owners = ownersOf(manifest, job.size);
    char *next = sideBySide;
    for (size_t i = 0; i < owners.size(); ++i) {
      const Layout &layout = manifest.layouts[i];
      int64_t bytes =
          sideBySide ? sideBySideBytes(manifest, layout, job.size) : 0;
      allocateLayout(layout, owners[i], bytes ? next : nullptr);
      next += bytes;
    }
    for (const Buffer &buffer : manifest.buffers)
      buffers.push_back(take(bufferBytes(buffer)));
    for (const Output &output : manifest.outputs)
      outputs.push_back(take(outputBytes(output)));
    findFactors();
    OffloadPieces pieces =
        offloadPieces(manifest, job.size, groupRanks, owners, job.rank);
    updatePieces = take(pieces.updates);
    gatherPiece = take(pieces.gathers);
    reducePiece = reinterpret_cast<float *>(take(pieces.reductions));
    for (int slot = 0; slot < 2; ++slot)
      FSDPC_TRY(allocateSlot(slot));
    statistics =
        reinterpret_cast<float *>(take(statisticsBytes(manifest, job.size)));
    gatheredBlocks = take(gatheredBlockBytes(manifest, job.size));
    reducedBlocks = take(reducedBlockBytes(manifest, job.size));
    compressed = take(compressedBytes(manifest, job.size));
    arena = take(manifest.arenaBytes);
  } catch (const std::bad_alloc &) {
    return runError(concat("out of memory after ", taken, " of ",
                           plan.allocated, " bytes"));
  }
  // The plan was printed and checked against the limit, so any difference is an
  // error of the runtime.
  if (taken != plan.allocated)
    return runError(concat("allocated ", taken, " bytes, but the plan has ",
                           plan.allocated));
  return {};
}

// A frozen layout is offloaded as its shard, and another as what this rank
// updates of it, which is its shard if the parameters are offloaded.
Status fsdpc_rank::openFiles(const std::string &folder) {
  if (manifest.activationFileBytes > 0) {
    auto made = ActivationFile::make(folder, manifest.activationFileBytes);
    FSDPC_TRY(made);
    activationFile = std::move(*made);
  }
  bool offloads = false;
  std::vector<ShardFile::Extent> extents;
  for (size_t i = 0; i < layouts.size(); ++i) {
    const Layout &layout = manifest.layouts[i];
    ShardFile::Extent extent;
    extent.isUpdated = layout.trainable;
    if (layout.isOffloaded())
      extent.elements = layout.trainable ? layouts[i].part : layouts[i].shard;
    if (layout.statesOffloaded)
      extent.states = layout.states;
    if (layout.parametersOffloaded)
      extent.parameterBytes = int32_t(ownParameterBytes(manifest, layout));
    extent.gradient = layout.gradientOffloaded;
    extents.push_back(extent);
    offloads |= layout.isOffloaded();
  }
  if (!offloads)
    return {};
  auto made =
      ShardFile::make(folder, extents, offloadPieceElements, updatePieces);
  FSDPC_TRY(made);
  shardFile = std::move(*made);
  return {};
}
