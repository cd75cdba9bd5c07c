// The cost model: each figure is worked out by hand from the machine's
// constants.

#include "compiler/schedule/gpu_machine.h"

#include <gtest/gtest.h>

using namespace fsdpc::schedule;

namespace {

// The roofline: the larger of the times for arithmetic and for memory.
TEST(CostModel, GemmIsBoundByFlopsOrByMemory) {
  Machine machine;
  // 2 · 1000³ flop at 80 GF/s: 25 ms; at 230: 8.7 ms.
  EXPECT_DOUBLE_EQ(gemmUs(machine, 1000, 1000, 1000, ElementType::F32), 25e3);
  EXPECT_NEAR(gemmUs(machine, 1000, 1000, 1000, ElementType::BF16), 8696, 1);
  // A vector times a 1000×1000 matrix moves 4 bytes for 2 flop: 1,002,000
  // elements at 10 GB/s.
  EXPECT_DOUBLE_EQ(gemmUs(machine, 1, 1000, 1000, ElementType::F32), 400.8);
  EXPECT_DOUBLE_EQ(gemmUs(machine, 64, 64, 64, ElementType::F32, 10),
                   10 * gemmUs(machine, 64, 64, 64, ElementType::F32));
}

// Bandwidth and arithmetic scale with the cores of a rank.
TEST(CostModel, CoresShareAnOp) {
  Machine machine;
  machine.cores = 4;
  EXPECT_DOUBLE_EQ(elementwiseUs(machine, 40e6), 1000);
  EXPECT_DOUBLE_EQ(rooflineUs(machine, 320e6, 1, ElementType::F32), 1000);
}

// GPUs have the rates of their data sheets; unknown ones count as an H200.
TEST(CostModel, AGpuHasItsDataSheetsRates) {
  // 10⁹ bytes at 4.8 TB/s; 989 · 10⁹ flop in bf16 take 1 ms.
  Machine h200 = gpuMachine("sm_90");
  EXPECT_NEAR(elementwiseUs(h200, 1e9), 208.3, 0.1);
  EXPECT_DOUBLE_EQ(rooflineUs(h200, 989e9, 1, ElementType::BF16), 1000);
  // Seven of eight shards of 1 GB at 450 GB/s, plus the latency.
  EXPECT_NEAR(allGatherUs(h200, 1000000000), 1944.4 + 20, 0.1);
  EXPECT_GT(elementwiseUs(gpuMachine("sm_80"), 1e9), elementwiseUs(h200, 1e9));
  EXPECT_DOUBLE_EQ(elementwiseUs(gpuMachine("sm_1"), 1e9),
                   elementwiseUs(h200, 1e9));
}

// A rank sends all shards but one; an all-reduce does so twice.
TEST(CostModel, CollectivesMoveAllShardsButOnesOwn) {
  Machine machine;
  machine.ranks = 4;
  // 3/4 of 20 MB at 5 GB/s, plus the latency.
  EXPECT_DOUBLE_EQ(allGatherUs(machine, 20'000'000), 3050);
  EXPECT_DOUBLE_EQ(reduceScatterUs(machine, 20'000'000), 3050);
  EXPECT_DOUBLE_EQ(allReduceUs(machine, 20'000'000), 6050);
}

// A rank receives 3/4, and 2/4 come from another node of two ranks, at a tenth
// of the rate. Groups gather half within the node, and hand on the sums
// of one half, piece by piece of 256 KiB.
TEST(CostModel, NodesHaveASlowerLink) {
  Machine machine;
  machine.ranks = 4;
  machine.ranksPerNode = 2;
  EXPECT_DOUBLE_EQ(allGatherUs(machine, 20'000'000), 3050);
  machine.crossNodeGBs = 0.5;
  EXPECT_DOUBLE_EQ(allGatherUs(machine, 20'000'000), 50 + 1000 + 20'000);
  EXPECT_DOUBLE_EQ(groupGatherUs(machine, 20'000'000), 50 + 2000);
  EXPECT_DOUBLE_EQ(groupReduceUs(machine, 20'000'000, 40'000'000),
                   50 + 2000 + 50 + (20'000'000 + 262'144) / 500.);
}

// Without nodes a group has all ranks, and hands nothing on.
TEST(CostModel, OneGroupIsAllRanks) {
  Machine machine;
  EXPECT_EQ(groupGatherUs(machine, 1 << 20), allGatherUs(machine, 1 << 20));
  EXPECT_EQ(groupReduceUs(machine, 1 << 20, 1 << 20),
            reduceScatterUs(machine, 1 << 20));
}

TEST(CostModel, OneRankSendsNothing) {
  Machine machine;
  machine.ranks = 1;
  EXPECT_EQ(allGatherUs(machine, 1 << 20), 0);
  EXPECT_EQ(reduceScatterUs(machine, 1 << 20), 0);
  EXPECT_EQ(allReduceUs(machine, 1 << 20), 0);
}

} // namespace
