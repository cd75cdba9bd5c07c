// The allocation of a rank: what planMemory says, block for block.
#include "runtime/core/rank.h"

#include <cstring>
#include <new>

using namespace fsdpc;

fsdpc_rank::~fsdpc_rank() {
  for (const Block &block : blocks)
    device->release(block.memory, block.bytes);
}

char *fsdpc_rank::take(int64_t bytes) {
  if (bytes == 0)
    return nullptr;
  void *memory = device->allocate(size_t(bytes));
  if (!memory)
    throw std::bad_alloc();
  blocks.push_back({memory, size_t(bytes)});
  taken += bytes;
  return static_cast<char *>(memory);
}

void fsdpc_rank::allocateLayout(const Layout &layout) {
  LayoutMemory memory = layoutMemory(manifest, layout, job.size);
  LayoutBuffers buffers;
  buffers.shard = memory.shard;
  buffers.whole = memory.whole;
  int64_t first = job.rank * memory.shard;
  auto zeroed = [&](int64_t bytes) {
    char *pointer = take(bytes);
    return pointer ? static_cast<char *>(std::memset(pointer, 0, size_t(bytes)))
                   : nullptr;
  };

  char *master = zeroed(memory.master);
  char *compute = zeroed(memory.compute);
  // In f32 there is one copy: the master is the compute copy, or part of it.
  bool same = manifest.computeDtype == "f32";
  if (same && layout.computeWhole)
    master = compute;
  else if (same)
    compute = master;
  bool masterWhole = layout.masterWhole || (same && layout.computeWhole);
  bool computeWhole = layout.computeWhole || (same && layout.masterWhole);
  int64_t computeBytes = dtypeBytes(manifest.computeDtype);
  buffers.masterShard =
      reinterpret_cast<float *>(master) + (masterWhole ? first : 0);
  buffers.masterWhole =
      masterWhole ? reinterpret_cast<float *>(master) : nullptr;
  if (compute)
    buffers.computeShard = compute + (computeWhole ? first * computeBytes : 0);
  buffers.computeWhole = computeWhole ? compute : nullptr;

  if (layout.trainable) {
    auto *gradient = reinterpret_cast<float *>(zeroed(memory.gradient));
    buffers.gradientShard = gradient + (layout.gradientWhole ? first : 0);
    buffers.gradientWhole = layout.gradientWhole ? gradient : nullptr;
    buffers.states = reinterpret_cast<float *>(zeroed(memory.states));
    buffers.partBegin = layout.stateWhole ? 0 : first;
    buffers.part = layout.stateWhole ? memory.whole : memory.shard;
    buffers.rates.resize(layout.members.size());
  }
  size_t blocksOfNorm = size_t((memory.shard + normBlock - 1) / normBlock);
  if (partials.size() < blocksOfNorm)
    partials.resize(blocksOfNorm);
  layouts.push_back(std::move(buffers));
}

bool fsdpc_rank::allocate(const MemoryPlan &plan, std::string &error) {
  try {
    for (const Layout &layout : manifest.layouts)
      allocateLayout(layout);
    for (const Buffer &buffer : manifest.buffers)
      buffers.push_back(take(bufferBytes(buffer)));
    for (auto &slot : inputs)
      for (const Input &input : manifest.inputs)
        slot.push_back(take(inputBytes(input)));
    statistics =
        reinterpret_cast<float *>(take(statisticsBytes(manifest, job.size)));
    arena = take(manifest.arenaBytes);
  } catch (const std::bad_alloc &) {
    error = "out of memory after " + std::to_string(taken) + " of " +
            std::to_string(plan.allocated) + " bytes";
    return false;
  }
  if (taken != plan.allocated) {
    error = "allocated " + std::to_string(taken) +
            " bytes where the plan says " + std::to_string(plan.allocated);
    return false;
  }
  return true;
}
