// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gathers of shards that lie side by side: all ranks compute on one memory, and
// see what all of them have updated in the step before, however late a rank is.
#include "runtime/comm/common_memory.h"
#include "runtime/core/rank.h"
#include "runtime/host/host_device.h"
#include "tests/runtime/comm/collective_cases.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

namespace {

// Two layouts, of which the second one is gathered behind the first one.
constexpr int64_t elements = 96;
constexpr int32_t layouts = 2;
constexpr int steps = 20;

Manifest twoLayouts() {
  Manifest manifest;
  manifest.events = 2;
  manifest.computeDtype = manifest.reduceDtype = "f32";
  manifest.arenaBytes = 4096;
  Layout layout;
  layout.name = layout.unit = "first";
  layout.elements = elements;
  layout.gradientWhole = true;
  Member member;
  member.name = "member";
  member.shape = {elements};
  member.elements = elements;
  layout.members = {member};
  manifest.layouts = {layout, layout};
  manifest.layouts[1].name = "second";
  return manifest;
}

void *gathered(fsdpc_rank *rank, int32_t layout) {
  return fsdpc_pointer(rank, FSDPC_SPACE_GATHERED, layout, layout * 1024);
}

// Gathers each layout and adds it to the layout's sum on the compute stream.
void gatherAndAdd(fsdpc_rank *rank) {
  for (int32_t layout = 0; layout < layouts; ++layout) {
    void *parameters = gathered(rank, layout);
    fsdpc_all_gather(rank, 1, &layout, &parameters);
    fsdpc_event_record(rank, FSDPC_STREAM_GATHER, layout);
    fsdpc_event_wait(rank, FSDPC_STREAM_COMPUTE, layout);
    fsdpc_accumulate(rank, layout, parameters);
  }
}

// A value that a step leaves in a shard.
float valueOf(int step, int rank, int32_t layout) {
  return float(1 + (step * 8 + rank) * layouts + layout);
}

// Runs the steps of one rank. Returns what is wrong first, or "".
std::string run(Job &job) {
  Manifest manifest = twoLayouts();
  int64_t bytes = 0;
  for (const Layout &layout : manifest.layouts)
    bytes += sideBySideBytes(manifest, layout, job.size);
  auto memory = CommonMemory::make(job, size_t(bytes));
  auto device = HostDevice::make(manifest, 1);
  if (!memory || !device)
    return "no memory or no device";
  fsdpc_program none = {};
  fsdpc_rank rank(manifest, none, job, std::move(*device));
  rank.sideBySide = memory->begin();
  MemoryPlan plan = planMemory(manifest, job.size, job.size, 1, 0, 0);
  if (Status allocated = rank.allocate(plan); !allocated)
    return allocated.error().message;
  Communicator &control = *job.channel[controlChannel];
  for (int step = 0; step < steps; ++step) {
    if (step % job.size == job.rank)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (int32_t layout = 0; layout < layouts; ++layout)
      std::fill_n(rank.layouts[size_t(layout)].masterShard,
                  rank.layouts[size_t(layout)].shard,
                  valueOf(step, job.rank, layout));
    rank.device->enter(rank, {false, 0, true, 0, step}, gatherAndAdd);
    rank.device->synchronize();
    for (int32_t layout = 0; layout < layouts; ++layout) {
      const LayoutBuffers &own = rank.layouts[size_t(layout)];
      for (int64_t i = 0; i < elements; ++i) {
        float expected = valueOf(step, int(i / own.shard), layout);
        if (own.gradientWhole[i] != expected)
          return "step " + std::to_string(step) + ": element " +
                 std::to_string(i) + " of layout " + std::to_string(layout) +
                 " is " + std::to_string(own.gradientWhole[i]) + ", not " +
                 std::to_string(expected);
      }
    }
    control.barrier(); // the exchange of a step's losses
  }
  // What others read in place counts as sent.
  const LayoutBuffers &own = rank.layouts[0];
  uint64_t sent = uint64_t(steps) * layouts * uint64_t(own.shard) * 4 *
                  uint64_t(job.size - 1);
  if (job.channel[gatherChannel]->sentBytes() != sent)
    return "sent " + std::to_string(job.channel[gatherChannel]->sentBytes()) +
           " bytes, not " + std::to_string(sent);
  bool isInside = gathered(&rank, 0) == memory->begin() &&
                  reinterpret_cast<char *>(own.masterShard) ==
                      memory->begin() + own.shard * 4 * job.rank;
  return isInside ? "" : "the shard is not where gathers are read";
}

TEST(GatherInPlace, seesWhatAllRanksHaveUpdated) {
  for (int ranks : {1, 2, 3}) {
    auto jobs = makeLocalJobs(ranks, 0);
    for (const std::string &wrong : runJobs(jobs, run))
      EXPECT_EQ(wrong, "") << ranks << " ranks";
  }
}

// Without common memory a gather copies to the arena.
TEST(GatherInPlace, needsCommonMemory) {
  Manifest manifest = twoLayouts();
  auto jobs = makeLocalJobs(1, 0);
  auto device = HostDevice::make(manifest, 1);
  ASSERT_TRUE(device);
  fsdpc_program none = {};
  fsdpc_rank rank(manifest, none, *jobs[0], std::move(*device));
  ASSERT_TRUE(rank.allocate(planMemory(manifest, 1, 1, 1, 0, 0)));
  EXPECT_EQ(gathered(&rank, 1), rank.arena + 1024);
}

// Processes have no memory in common.
TEST(CommonMemory, isOfOneProcess) {
  auto jobs = makeLocalJobs(2, 0);
  jobs[1]->sharesProcess = false;
  EXPECT_EQ(CommonMemory::make(*jobs[1], 64), nullptr);
}

// The last rank that holds it returns it, whichever made it.
TEST(CommonMemory, outlivesItsMaker) {
  auto jobs = makeLocalJobs(2, 0);
  std::array<std::shared_ptr<CommonMemory>, 2> memory;
  runJobs(jobs, [&](Job &job) {
    memory[size_t(job.rank)] = CommonMemory::make(job, 1 << 20);
    return std::string();
  });
  ASSERT_TRUE(memory[0]);
  EXPECT_EQ(memory[0], memory[1]);
  memory[0].reset();
  memory[1]->begin()[(1 << 20) - 1] = 1;
}

} // namespace
