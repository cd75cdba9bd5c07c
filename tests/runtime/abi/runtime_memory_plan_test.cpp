// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory table equals the sum of what each layout keeps. The expected bytes
// are worked out by hand.
#include "runtime/abi/blocks.h"
#include "runtime/abi/cuda_scratch.h"
#include "runtime/abi/memory_plan.h"
#include "tests/runtime/abi/runtime_manifests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace fsdpc;

namespace {

// The plan of one layout of 1000 elements, and of what a test makes of it.
class PlannedMemory : public testing::Test {
protected:
  LayoutMemory memoryOf(int64_t ranks = 3, int64_t group = 3) {
    return layoutMemory(manifest, layout, ranks, group);
  }
  // The plan of ranks with one thread, without windows and scratchpads.
  MemoryPlan planOf(int ranks = 3, int group = 3, int rank = fullestRank) {
    return planMemory(manifest, ranks, group, 1, 0, 0, rank);
  }
  // The scratch of each of four ranks.
  CudaScratch scratch() { return cudaScratch(manifest, 4, true); }

  Manifest manifest = sample();
  Layout &layout = manifest.layouts[0]; // until there are further ones
};

// 1000 elements on 3 ranks: 334 each, rounded up to 352.
TEST_F(PlannedMemory, ShardsAreAlignedAndEqual) {
  EXPECT_EQ(shardElements(layout, 3, 32), 352);
  EXPECT_EQ(shardElements(layout, 1, 32), 1024);
}

// Each row of the table is the sum of what layouts, buffers, inputs and the
// arena's shares contribute.
TEST_F(PlannedMemory, ShardedF32) {
  manifest.arenaBytes = 4096;
  manifest.arenaGathered = 1024;
  manifest.arenaGradients = 512;
  manifest.arenaActivations = 2048;
  manifest.constantBytes = 100;
  manifest.stackBytes = 10;
  MemoryPlan plan = planMemory(manifest, 3, 3, 2, 7, 5);
  EXPECT_EQ(plan.parameters, 352 * 4 + 64);
  EXPECT_EQ(plan.gradients, 352 * 4 + 512);
  EXPECT_EQ(plan.optimizer, 2 * 352 * 4);
  EXPECT_EQ(plan.gathered, 1024);
  EXPECT_EQ(plan.activations, 2 * 128 + 2048 + 100);
  EXPECT_EQ(plan.communication, 7 + 3 * 64);
  EXPECT_EQ(plan.scratchpads, 5);
  EXPECT_EQ(plan.stacks, 20);
  EXPECT_EQ(plan.slack, 512);
  // runtime/core allocates everything but windows, scratchpads, stacks and
  // constants.
  EXPECT_EQ(plan.allocated, plan.total() - 7 - 5 - 20 - 100);
}

// zero1 in f32: the master is the rank's shard of the persistent copy.
TEST_F(PlannedMemory, KeptWholeHoldsTheMaster) {
  layout.computeWhole = true;
  LayoutMemory memory = memoryOf();
  EXPECT_EQ(memory.master, 0);
  EXPECT_EQ(memory.compute, 3 * 352 * 4);
  manifest.computeDtype = "bf16";
  memory = memoryOf();
  EXPECT_EQ(memory.master, 352 * 4);
  EXPECT_EQ(memory.compute, 3 * 352 * 2);
  // A layout that stays f32 is one of f32 in a program of bf16.
  layout.keptF32 = true;
  memory = memoryOf();
  EXPECT_EQ(memory.master, 0);
  EXPECT_EQ(memory.compute, 3 * 352 * 4);
}

// Shards lie side by side only where they are, as they are, what is gathered.
// On 3 ranks they are 3 x 352 elements.
TEST_F(PlannedMemory, ShardsAreGatheredInPlace) {
  EXPECT_EQ(sideBySideBytes(manifest, layout, 3), 3 * 352 * 4);
  auto expectNone = [&](auto change) {
    Manifest other = manifest;
    change(other, other.layouts[0]);
    EXPECT_EQ(sideBySideBytes(other, other.layouts[0], 3), 0);
  };
  expectNone([](Manifest &, Layout &own) { own.computeWhole = true; });
  expectNone([](Manifest &, Layout &own) { own.masterWhole = true; });
  expectNone([](Manifest &, Layout &own) { own.inGroups = true; });
  expectNone([](Manifest &, Layout &own) { own.secondary = true; });
  expectNone([](Manifest &, Layout &own) { own.owned = true; });
  expectNone([](Manifest &, Layout &own) { own.parametersOffloaded = true; });
  expectNone([](Manifest &, Layout &own) { own.wire = "i8"; });
  expectNone([](Manifest &other, Layout &) { other.target = "cuda"; });
  // Masters are cast before they are gathered in bf16, but not where the
  // parameters themselves are bf16.
  expectNone([](Manifest &other, Layout &) { other.computeDtype = "bf16"; });
  manifest.computeDtype = "bf16";
  layout.noMaster = true;
  EXPECT_EQ(sideBySideBytes(manifest, layout, 3), 3 * 352 * 2);
}

// Gradients travel in bf16 only if the layout and the reduction have it, so the
// layouts that stay f32 decide the size, even if another one has more elements.
// 1000 elements on 4 ranks are 4 x 256 with padding, 1200 are 4 x 320.
TEST_F(PlannedMemory, LayoutsThatStayF32TravelInF32) {
  manifest.computeDtype = manifest.reduceDtype = "bf16";
  EXPECT_EQ(scratch().wire, 4 * 256 * 2);
  layout.keptF32 = true;
  EXPECT_EQ(scratch().wire, 4 * 256 * 4);
  Layout larger = layout;
  larger.keptF32 = false;
  larger.elements = 1200;
  manifest.layouts.push_back(larger);
  EXPECT_EQ(scratch().wire, 4 * 256 * 4);
}

// Several owned gradients travel together, a large one alone. Their owner has
// tables for all of it.
TEST_F(PlannedMemory, OwnedGradientsTravelTogether) {
  layout.owned = true;
  int64_t alone = scratch().tables;
  EXPECT_EQ(scratch().wire, 16 * 256);
  manifest.layouts.push_back(layout);
  EXPECT_EQ(scratch().wire, 2 * 16 * 256);
  // Each of two ranks owns one.
  int64_t both = scratch().tables;
  EXPECT_LT(both, 2 * alone);
  EXPECT_GT(cudaScratch(manifest, 1, true).tables, both);
  manifest.layouts[1].elements = ownedTogether;
  EXPECT_EQ(scratch().wire, 4 * ownedTogether);
}

// Layouts share memory of one kind, and each kind is as long as the layout
// needs it that needs most: one sums of groups, the other numbers of elements.
TEST_F(PlannedMemory, MixedOptimizersShareRoom) {
  layout.sums = 2;
  Layout other = layout;
  other.sums = 0;
  other.orthogonal = true;
  other.elements = 1 << 22;
  manifest.layouts.push_back(other);
  EXPECT_GT(scratch().tables, groupSumsCap + other.elements);
}

// 1000 elements are four blocks. A copy that persists holds rounded values, so
// the master has memory of its own; what a gather receives, and the pieces of a
// reduction, belong to communication.
TEST_F(PlannedMemory, BlocksHaveMemory) {
  manifest.shardAlignment = blockElements;
  MemoryPlan before = planOf();
  layout.wire = "i8";
  MemoryPlan plan = planOf();
  // Three shards of two blocks of 260 bytes, in whole cache lines.
  EXPECT_EQ(plan.communication - before.communication, 1600);
  EXPECT_EQ(plan.allocated - before.allocated, 1600);
  manifest.reduceDtype = "i8";
  EXPECT_EQ(planOf().communication - plan.communication,
            (2 * 3 * (262144 / 260 / 3) * 260 + 63) / 64 * 64);
  // On GPUs the blocks of the whole layout lie in the device's scratch. A
  // single rank makes them, too.
  manifest.target = "cuda";
  EXPECT_EQ(planMemory(manifest, 3, 3, 1, 0, 0).communication,
            plan.communication);
  EXPECT_EQ(cudaScratch(manifest, 3, true).wire, 1792); // 6 blocks
  EXPECT_EQ(cudaScratch(manifest, 1, false).wire, 1280);
  layout.computeWhole = true;
  LayoutMemory memory = memoryOf();
  EXPECT_EQ(memory.master, 512 * 4);
  EXPECT_EQ(memory.compute, 3 * 512 * 4);
}

// Six ranks in groups of three: a rank owns two of zero3's shards at that
// number of ranks, answers for one of them, and its counterpart for the other.
TEST_F(PlannedMemory, GroupsOwnSeveralShards) {
  LayoutMemory zero3 = memoryOf(6, 3);
  layout.inGroups = true;
  LayoutMemory memory = memoryOf(6, 3);
  EXPECT_EQ(memory.shard, 2 * zero3.shard);
  EXPECT_EQ(memory.own, zero3.shard);
  EXPECT_EQ(memory.whole, zero3.whole);
  EXPECT_EQ(memory.gradient, 2 * zero3.gradient);
  EXPECT_EQ(memory.shardOf(4), memory.shard);
  EXPECT_EQ(memory.ownOf(4), memory.shard + memory.own);
  EXPECT_EQ(memory.ownOf(1), memory.shard);
  memory = memoryOf(6, 6);
  EXPECT_EQ(memory.shard, zero3.shard);
  EXPECT_EQ(memory.ownOf(4), zero3.shardOf(4));
}

// The largest goes first, to the rank with the fewest elements, and of equals
// the first to the lowest; what is cut has no owner.
TEST_F(PlannedMemory, OwnersAreGreedyBySize) {
  manifest.layouts.clear();
  for (int64_t elements : {100, 400, 100, 300, 500}) {
    manifest.layouts.emplace_back();
    manifest.layouts.back().elements = elements;
    manifest.layouts.back().owned = elements != 500;
  }
  EXPECT_EQ(ownersOf(manifest, 2), (std::vector<int>{1, 0, 0, 1, noOwner}));
  EXPECT_EQ(ownersOf(manifest, 8), (std::vector<int>{2, 0, 3, 1, noOwner}));
  EXPECT_EQ(describeOwners(manifest, 2, "  "),
            "  rank 0 owns 2 parameters, 500 elements\n"
            "  rank 1 owns 2 parameters, 400 elements\n");
  EXPECT_EQ(describeOwners(manifest, 6, ""),
            "rank 0 owns 1 parameter, 400 elements\n"
            "rank 1 owns 1 parameter, 300 elements\n"
            "rank 2 owns 1 parameter, 100 elements\n"
            "rank 3 owns 1 parameter, 100 elements\n"
            "the other 2 ranks own nothing: there are fewer parameters than "
            "ranks\n");
  EXPECT_EQ(describeOwners(sample(), 2, ""), "");
}

// The owner has the gradient, the states and in bf16 the master, whole and
// without the padding of shards; the others have none of them.
TEST_F(PlannedMemory, OwnersHaveAll) {
  manifest.computeDtype = "bf16";
  layout.owned = layout.computeWhole = true;
  LayoutMemory own = layoutMemory(manifest, layout, 3, 3, 0, 0);
  LayoutMemory other = layoutMemory(manifest, layout, 3, 3, 0, 2);
  EXPECT_EQ(own.master, 1024 * 4);
  EXPECT_EQ(own.gradient, 1024 * 4);
  EXPECT_EQ(own.states, 2 * 1024 * 4);
  EXPECT_EQ(other.master + other.gradient + other.states, 0);
  EXPECT_EQ(other.compute, own.compute);
  EXPECT_EQ(other.compute, 1024 * 2);
  EXPECT_EQ(own.ownOf(0), 0);
  EXPECT_EQ(other.own, 0);
  MemoryPlan owner = planOf(3, 3, 0);
  EXPECT_EQ(owner.total() - planOf(3, 3, 2).total(), 4 * 1024 * 4);
  // Without a rank it is the plan of the one that has the most.
  EXPECT_EQ(planOf().total(), owner.total());
}

// A secondary shard is the rank's part over its group, in the compute type. All
// else is zero3's.
TEST_F(PlannedMemory, SecondaryShardsAreOfAGroup) {
  manifest.computeDtype = "bf16";
  manifest.reshardTo = 2;
  LayoutMemory zero3 = memoryOf(6, 6);
  EXPECT_EQ(zero3.secondary, 0);
  EXPECT_FALSE(usesGroups(manifest));
  MemoryPlan before = planOf(6, 6);
  layout.secondary = true;
  LayoutMemory memory = memoryOf(6, 2);
  EXPECT_EQ(memory.secondary, memory.whole / 2 * 2);
  EXPECT_EQ(memory.shard, zero3.shard);
  EXPECT_EQ(memory.master, zero3.master);
  EXPECT_TRUE(usesGroups(manifest));
  EXPECT_FALSE(reducesInGroups(manifest));
  MemoryPlan plan = planOf(6, 2);
  EXPECT_EQ(plan.parameters - before.parameters, memory.secondary);
  EXPECT_EQ(plan.allocated - before.allocated, memory.secondary);
  // Where the group does not divide the ranks, a plan takes them all.
  EXPECT_EQ(plannedGroup(manifest, 6, 0), 2);
  EXPECT_EQ(plannedGroup(manifest, 6, 3), 3);
  EXPECT_EQ(plannedGroup(manifest, 5, 0), 5);
}

// Frozen layouts keep only their parameters.
TEST_F(PlannedMemory, FrozenLayoutsHaveNoGradientAndNoState) {
  layout.trainable = false;
  LayoutMemory memory = memoryOf();
  EXPECT_EQ(memory.gradient, 0);
  EXPECT_EQ(memory.states, 0);
}

// Frozen values that the file has in the compute type have no master. Under
// zero3 their shard takes two bytes per element, where it persists all of it.
TEST_F(PlannedMemory, FrozenValuesInTheComputeTypeHaveNoMaster) {
  layout.trainable = layout.computeWhole = false;
  manifest.computeDtype = "bf16";
  for (Member &member : layout.members)
    member.source.dtype = "bf16";
  LayoutMemory memory = memoryOf();
  EXPECT_EQ(memory.master, 0);
  EXPECT_EQ(memory.compute, memory.shard * 2);
  layout.masterWhole = layout.computeWhole = true;
  memory = memoryOf();
  EXPECT_EQ(memory.master, 0);
  EXPECT_EQ(memory.compute, memory.whole * 2);
}

// With --master=none the shard is bf16 under zero3, and the copy that every
// rank has under ddp is all there is.
TEST_F(PlannedMemory, NoMasterIsPlannedWithoutMasters) {
  manifest.computeDtype = "bf16";
  layout.noMaster = true;
  layout.computeWhole = false;
  LayoutMemory memory = memoryOf();
  EXPECT_EQ(memory.master, 0);
  EXPECT_EQ(memory.compute, memory.shard * 2);
  EXPECT_GT(memory.gradient, 0);
  layout.masterWhole = layout.computeWhole = true;
  memory = memoryOf();
  EXPECT_EQ(memory.master, 0);
  EXPECT_EQ(memory.compute, memory.whole * 2);
}

// An update needs f32, and --save what the file held.
TEST_F(PlannedMemory, OtherLayoutsHaveAMaster) {
  layout.computeWhole = false;
  manifest.computeDtype = "bf16";
  for (Member &member : layout.members)
    member.source.dtype = "bf16";
  LayoutMemory memory = memoryOf();
  EXPECT_EQ(memory.master, memory.shard * 4);
  EXPECT_EQ(memory.compute, 0);
  layout.trainable = false;
  layout.members.back().source.dtype = "f32";
  memory = memoryOf();
  EXPECT_EQ(memory.master, memory.shard * 4);
  EXPECT_EQ(memory.compute, 0);
}

// An update reads offloaded masters, gradients and two states through two
// buffers of 2^18 elements each. A gather that casts has one such buffer. A
// reduction has one, or on a GPU the whole shard.
TEST(MemoryPlan, OffloadedShardsPassThroughPieces) {
  Manifest manifest = sample();
  manifest.computeDtype = "bf16";
  Layout &layout = manifest.layouts[0];
  layout.elements = 3 << 20;
  layout.computeWhole = false;
  layout.statesOffloaded = layout.parametersOffloaded = true;
  layout.gradientOffloaded = true;
  constexpr int64_t piece = int64_t(4) << 18, shard = int64_t(4) << 20;
  for (const char *target : {"host", "cuda"}) {
    SCOPED_TRACE(target);
    manifest.target = target;
    LayoutMemory memory = layoutMemory(manifest, layout, 3, 3);
    EXPECT_EQ(memory.total(), 0);
    EXPECT_EQ(memory.offloaded.master, shard);
    EXPECT_EQ(memory.offloaded.compute, 0);
    EXPECT_EQ(memory.offloaded.gradient, shard);
    EXPECT_EQ(memory.offloaded.states, 2 * shard);
    OffloadPieces pieces =
        offloadPieces(manifest, 3, 3, ownersOf(manifest, 3), 0);
    EXPECT_EQ(pieces.updates, 2 * 4 * piece);
    EXPECT_EQ(pieces.gathers, piece);
    EXPECT_EQ(pieces.reductions, offloadsToPinned(manifest) ? shard : piece);
    MemoryPlan plan = planMemory(manifest, 3, 3, 1, 0, 0);
    EXPECT_EQ(plan.offloaded, 4 * shard);
    EXPECT_EQ(plan.offloadPieces, pieces.total());
    EXPECT_STREQ(offloadedName(manifest),
                 offloadsToPinned(manifest) ? "pinned" : "on disk");
  }
}

} // namespace
