// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The cost model: each figure is worked out by hand from the machine's
// constants.

#include "compiler/schedule/cost_model.h"

#include <gtest/gtest.h>

using fsdpc::Result;
using namespace fsdpc::schedule;
using fsdpc::ElementType;

namespace {

// One core of the host: 80 GF/s in f32, 230 in bf16, 10 GB/s; links of 5 GB/s.
Machine host() { return defaultMachine("host"); }

// The roofline: the larger of the times for arithmetic and for memory.
TEST(CostModel, AProductIsBoundByFlopsOrByMemory) {
  // 2 · 1000³ flop at 80 GF/s: 25 ms; at 230: 8.7 ms.
  EXPECT_DOUBLE_EQ(opUs(host(), "matmul", 2e9, 12e6, ElementType::f32), 25e3);
  EXPECT_NEAR(opUs(host(), "matmul", 2e9, 6e6, ElementType::bf16), 8696, 1);
  // A vector times a 1000×1000 matrix moves 4 bytes for 2 flop.
  EXPECT_DOUBLE_EQ(opUs(host(), "matmul", 2e6, 4008000, ElementType::f32),
                   400.8);
}

// A kernel's time is that of its memory traffic.
TEST(CostModel, AKernelMovesBytes) {
  EXPECT_DOUBLE_EQ(opUs(host(), "launch", 1e12, 1e6, ElementType::f32), 100);
}

// A call costs time of its own, on any number of cores; a class without rates
// has those of "default".
TEST(CostModel, ClassesHaveRatesOfTheirOwn) {
  Machine machine = host();
  machine.rates["attention"][0] = {40, 10, 3};
  EXPECT_DOUBLE_EQ(opUs(machine, "attention", 4e6, 1, ElementType::f32), 103);
  EXPECT_DOUBLE_EQ(opUs(machine, "matmul", 4e6, 1, ElementType::f32), 50);
  machine.cores = 4;
  EXPECT_DOUBLE_EQ(opUs(machine, "attention", 4e6, 1, ElementType::f32), 28);
}

// A file from before the class `copy` gives copies the rates of kernels, if it
// has these.
TEST(CostModel, CopiesAreLikeKernels) {
  Machine machine = host();
  machine.rates["default"][0] = {80, 1, 0};
  EXPECT_DOUBLE_EQ(copyUs(machine, 1e6), 100);
  machine.rates.erase("launch");
  EXPECT_DOUBLE_EQ(copyUs(machine, 1e6), 1000);
  machine.rates["copy"][0] = {0, 5, 0};
  EXPECT_DOUBLE_EQ(copyUs(machine, 1e6), 200);
}

// Bandwidth and arithmetic scale with the cores of a rank.
TEST(CostModel, CoresShareAnOp) {
  Machine machine = host();
  machine.cores = 4;
  EXPECT_DOUBLE_EQ(opUs(machine, "launch", 0, 40e6, ElementType::f32), 1000);
  EXPECT_DOUBLE_EQ(opUs(machine, "matmul", 320e6, 1, ElementType::f32), 1000);
}

// An H100 with the rates of its data sheet alone.
Machine dataSheet() {
  Machine machine = *machineFromJson(machineText("h100"));
  auto forget = [](Speed &speed) { speed.measured = 0; };
  for (auto &[name, types] : machine.rates)
    for (Rate &rate : types) {
      forget(rate.gflops);
      forget(rate.memoryGBs);
    }
  for (Link *link : {&machine.node, &machine.nodes}) {
    forget(link->gatherGBs);
    forget(link->reduceGBs);
  }
  forget(machine.offload.readGBs);
  forget(machine.offload.writeGBs);
  return machine;
}

// Predictions use what others have measured on a machine, each class its own
// rate. Without that they use the data sheet. Unknown GPUs count as an H200.
TEST(CostModel, AGpuHasMeasuredRates) {
  Machine sheet = dataSheet(), h100 = *machineFromJson(machineText("h100"));
  auto us = [](const Machine &machine, const char *opClass) {
    return opUs(machine, opClass, 989e9, 1, ElementType::bf16);
  };
  // 989 · 10⁹ flop in bf16 take 1 ms at the sheet's rate.
  for (const char *opClass : {"matmul", "attention", "attention_grad"})
    EXPECT_DOUBLE_EQ(us(sheet, opClass), 1000) << opClass;
  EXPECT_DOUBLE_EQ(us(h100, "matmul"), 1000 * 989 / 794.5);
  EXPECT_DOUBLE_EQ(us(h100, "attention"), 1000 * 989 / 518.);
  EXPECT_DOUBLE_EQ(us(h100, "attention_grad"), 1000 * 989 / 499.);
  // 10⁹ bytes at 3.35 and at 2.97 TB/s.
  for (const char *opClass : {"launch", "optimizer", "copy", "matmul"}) {
    EXPECT_DOUBLE_EQ(opUs(sheet, opClass, 0, 1e9, ElementType::f32), 1e6 / 3350)
        << opClass;
    EXPECT_DOUBLE_EQ(opUs(h100, opClass, 0, 1e9, ElementType::f32), 1e6 / 2970)
        << opClass;
  }
  auto copyOn = [](const char *arch) {
    return copyUs(defaultMachine(arch), 1e9);
  };
  EXPECT_GT(copyOn("sm_80"), copyOn("sm_90"));
  EXPECT_DOUBLE_EQ(copyOn("sm_1"), copyOn("sm_90"));
}

// A product is computed in tiles, one per processor and wave.
TEST(CostModel, ProductsTakeWholeWaves) {
  Machine machine = host();
  EXPECT_EQ(tilingFactor(machine, 1, 100, 100), 1);
  machine.processors = 132;
  // 64 × 32 tiles of 128 × 256 are 15.5 waves of 132.
  EXPECT_DOUBLE_EQ(tilingFactor(machine, 1, 8192, 8192), 16 * 132 / 2048.);
  // In tiles of 128 × 128 the result has 64 × 12.5, of which the last are half
  // empty: 832 tiles, 6.3 waves. Larger tiles would take 4 of twice the length.
  EXPECT_DOUBLE_EQ(tilingFactor(machine, 1, 8192, 1600), 7 * 132 / 800.);
  // A result of one tile takes as long as one of 132.
  EXPECT_DOUBLE_EQ(tilingFactor(machine, 1, 128, 128), 132);
  EXPECT_DOUBLE_EQ(tilingFactor(machine, 132, 128, 128), 1);
  EXPECT_EQ(tilingFactor(machine, 0, 128, 128), 1);
}

// Links within a node and between nodes, and those to pinned memory, each carry
// a share of what their data sheets state.
TEST(CostModel, LinksHaveMeasuredRates) {
  Machine sheet = dataSheet(), h100 = *machineFromJson(machineText("h100"));
  for (Machine *machine : {&sheet, &h100}) {
    machine->isGpu = true;
    machine->ranks = 8;
  }
  // Seven of eight shards of 1 GB, plus the latency.
  EXPECT_DOUBLE_EQ(allGatherUs(sheet, 1000000000), 20 + 875e6 / 450e3);
  EXPECT_DOUBLE_EQ(allGatherUs(h100, 1000000000), 20 + 875e6 / 361e3);
  EXPECT_DOUBLE_EQ(reduceScatterUs(h100, 1000000000), 20 + 875e6 / 363e3);
  EXPECT_DOUBLE_EQ(offloadUs(sheet, 1e9, 1e9), 1e6 / 64);
  EXPECT_DOUBLE_EQ(offloadUs(h100, 1e9, 0), 1e6 / 51);
  EXPECT_DOUBLE_EQ(offloadUs(h100, 0, 1e9), 1e6 / 52);
  h100.ranksPerNode = 1;
  EXPECT_DOUBLE_EQ(allGatherUs(h100, 1000000000), 20 + 875e6 / 47e3);
  // Another port reaches the same share.
  h100.nodes.gatherGBs = h100.nodes.gatherGBs.of(25);
  EXPECT_DOUBLE_EQ(allGatherUs(h100, 1000000000), 20 + 875e6 / 23.5e3);
  EXPECT_DOUBLE_EQ(Speed(50).of(25).reached(), 25);
}

// A rank receives all shards but one.
TEST(CostModel, CollectivesMoveAllShardsButOnesOwn) {
  Machine machine = host();
  machine.ranks = 4;
  // 3/4 of 20 MB at 5 GB/s, plus the latency.
  EXPECT_DOUBLE_EQ(allGatherUs(machine, 20'000'000), 3050);
  EXPECT_DOUBLE_EQ(reduceScatterUs(machine, 20'000'000), 3050);
  // Gathers and reductions may differ.
  machine.node.reduceGBs = 2.5;
  EXPECT_DOUBLE_EQ(reduceScatterUs(machine, 20'000'000), 6050);
}

// A rank receives 3/4, and 2/4 come from another node of two ranks, at a tenth
// of the rate. On the host each rank brings half of that in for its node, but
// receives all gradients from there itself. Groups gather half within the node,
// and hand on the sums of one half, piece by piece of 256 KiB.
TEST(CostModel, NodesHaveASlowerLink) {
  Machine machine = host();
  machine.ranks = 4;
  machine.ranksPerNode = 2;
  EXPECT_DOUBLE_EQ(allGatherUs(machine, 20'000'000), 50 + 50 + 3000);
  machine.nodes.gatherGBs = machine.nodes.reduceGBs = 0.5;
  EXPECT_DOUBLE_EQ(allGatherUs(machine, 20'000'000), 50 + 50 + 2000 + 10'000);
  EXPECT_DOUBLE_EQ(reduceScatterUs(machine, 20'000'000),
                   50 + 50 + 1000 + 20'000);
  EXPECT_DOUBLE_EQ(groupGatherUs(machine, 20'000'000), 50 + 2000);
  EXPECT_DOUBLE_EQ(groupReduceUs(machine, 20'000'000, 40'000'000),
                   50 + 2000 + 50 + (20'000'000 + 262'144) / 500.);
  // Each level has its latency. Between nodes of one rank there is one level.
  machine.nodes.latencyUs = 80;
  EXPECT_DOUBLE_EQ(allGatherUs(machine, 20'000'000), 50 + 80 + 2000 + 10'000);
  machine.ranksPerNode = 1;
  EXPECT_DOUBLE_EQ(allGatherUs(machine, 20'000'000), 80 + 30'000);
  EXPECT_EQ(allToAllUs(machine, 20'000'000), allGatherUs(machine, 20'000'000));
}

// NCCL's rings bring each byte into a node once, by all ports of the node.
TEST(CostModel, ANodesPortsServeItsGpusTogether) {
  Machine machine = dataSheet();
  machine.isGpu = true;
  machine.ranks = 16;
  machine.ranksPerNode = 8;
  // A port carries an eighth of the 15/16 that each GPU receives, at 50 GB/s.
  // The links within the node carry the rest at 450 GB/s meanwhile.
  double portUs = 1e9 * 15 / 16 / 8 / 50e3;
  EXPECT_NEAR(allGatherUs(machine, 1'000'000'000), 20 + 20 + portUs, 1e-6);
  EXPECT_NEAR(reduceScatterUs(machine, 1'000'000'000), 40 + portUs, 1e-6);
  // With fast ports the links within the node count.
  machine.nodes.gatherGBs = 400;
  EXPECT_NEAR(allGatherUs(machine, 1'000'000'000),
              40 + 1e9 * 15 / 16 * 7 / 8 / 450e3, 1e-6);
  // Each rank receives its own share of the data, half of it from the other
  // node.
  EXPECT_NEAR(allToAllUs(machine, 1'000'000'000),
              40 + 1e9 / 2 / 50e3 + 1e9 * 7 / 16 / 450e3, 1e-6);
}

// NCCL sums a rank's eighth over four nodes by an all-reduce: 2 · 3/4 of it,
// where a chain of groups would send three times as much.
TEST(CostModel, GroupsSumByAnAllReduce) {
  Machine machine = dataSheet();
  machine.isGpu = true;
  machine.ranks = 32;
  machine.ranksPerNode = 8;
  double sentUs = 1e9 / 8 * 1.5 / 50e3;
  EXPECT_NEAR(groupReduceUs(machine, 0, 1'000'000'000), 20 + 20 + sentUs, 1e-6);
  machine.isGpu = false;
  EXPECT_NEAR(groupReduceUs(machine, 0, 1'000'000'000),
              40 + 3 * (1e9 / 8 + 262'144) / 50e3, 1e-6);
}

// A collective and the ops beside it slow each other down, as they share a
// core. With several cores the collective takes a smaller share of them.
TEST(CostModel, CollectivesTakeCores) {
  Machine machine = host();
  machine.node.cores = 0.5;
  machine.nodes.cores = 1.5;
  machine.computeSlowdown = 0.2;
  Contention beside = contentionOf(machine, false);
  EXPECT_DOUBLE_EQ(beside.ofCompute, 1.2 * 1.5 - 1);
  EXPECT_DOUBLE_EQ(beside.ofCommunication, 0.5);
  machine.cores = 2;
  EXPECT_DOUBLE_EQ(contentionOf(machine, false).ofCommunication, 0.25);
  machine.ranksPerNode = 1;
  EXPECT_DOUBLE_EQ(contentionOf(machine, false).ofCommunication, 0.75);
  // One rank sends nothing, but copies. Copies of files take a whole core.
  machine.ranks = 1;
  EXPECT_DOUBLE_EQ(contentionOf(machine, false).ofCommunication, 0.25);
  EXPECT_DOUBLE_EQ(contentionOf(machine, true).ofCommunication, 0.5);
  machine.isGpu = true;
  EXPECT_DOUBLE_EQ(contentionOf(machine, true).ofCommunication, 0.25);
}

// A gather and a reduction run at once only if each has the cores that it
// takes, and not on a link that they share.
TEST(CostModel, CollectivesTakeTurnsOnTooFewCores) {
  Machine machine = host();
  machine.node.cores = 1;
  EXPECT_TRUE(takeTurns(machine, false));
  machine.cores = 2;
  EXPECT_FALSE(takeTurns(machine, false));
  machine.sharedLink = true;
  EXPECT_TRUE(takeTurns(machine, false));
  machine.sharedLink = false;
  machine.node.cores = 0.5;
  machine.cores = 1;
  EXPECT_FALSE(takeTurns(machine, false));
  EXPECT_TRUE(takeTurns(machine, true));
  EXPECT_FALSE(takeTurns(defaultMachine("sm_90"), false));
}

// A disk takes reads and writes in turn, and the core of the update; a GPU's
// link both at once, beside the update.
TEST(CostModel, WhatIsOffloadedIsCopied) {
  Machine machine = host();
  machine.offload = {2, 1};
  EXPECT_DOUBLE_EQ(offloadUs(machine, 4e6, 6e6), 2000 + 6000);
  EXPECT_DOUBLE_EQ(offloadedOpUs(machine, 5000, 4e6, 6e6), 13'000);
  EXPECT_DOUBLE_EQ(offloadedOpUs(machine, 5000, 0, 0), 5000);
  machine.isGpu = true;
  EXPECT_DOUBLE_EQ(offloadUs(machine, 4e6, 6e6), 6000);
  EXPECT_DOUBLE_EQ(offloadedOpUs(machine, 5000, 4e6, 6e6), 6000);
  EXPECT_DOUBLE_EQ(offloadedOpUs(machine, 7000, 4e6, 6e6), 7000);
}

// Two nodes of four: rank by rank 4/8 of the gradients would reach each rank
// from the other node, as sums 1/4 do; within a node 3/4. Of four nodes a rank
// also takes its 1/16 back.
TEST(CostModel, NodesHandOnSums) {
  Machine machine = host();
  machine.ranks = 8;
  machine.ranksPerNode = 4;
  machine.nodes.reduceGBs = 0.5;
  EXPECT_DOUBLE_EQ(reduceScatterUs(machine, 16'000'000), 50 + 50 + 8000 + 2400);
  machine.ranks = 16;
  EXPECT_DOUBLE_EQ(reduceScatterUs(machine, 16'000'000),
                   50 + 50 + 10'000 + 2400);
}

// Without nodes a group has all ranks, and hands nothing on.
TEST(CostModel, OneGroupIsAllRanks) {
  EXPECT_EQ(groupGatherUs(host(), 1 << 20), allGatherUs(host(), 1 << 20));
  EXPECT_EQ(groupReduceUs(host(), 1 << 20, 1 << 20),
            reduceScatterUs(host(), 1 << 20));
}

// Nodes of eight do not divide twelve ranks, so these are one group, of which a
// rank receives 4/12 from the other node on the mean.
TEST(CostModel, NodesOfOtherSizesAreOneGroup) {
  Machine machine = host();
  machine.ranks = 12;
  machine.ranksPerNode = 8;
  EXPECT_EQ(groupRanks(machine), 12);
  EXPECT_EQ(groupGatherUs(machine, 12'000'000),
            allGatherUs(machine, 12'000'000));
  EXPECT_EQ(groupReduceUs(machine, 12'000'000, 12'000'000),
            reduceScatterUs(machine, 12'000'000));
  machine.ranks = 16;
  EXPECT_EQ(groupRanks(machine), 8);
}

// Two of three other ranks are in the other node of two.
TEST(CostModel, OwnersTradeParts) {
  Machine machine = host();
  machine.ranks = 4;
  EXPECT_DOUBLE_EQ(tradeUs(machine, 15'000'000), 50 + 3000);
  machine.ranksPerNode = 2;
  machine.nodes.reduceGBs = 0.5;
  EXPECT_DOUBLE_EQ(tradeUs(machine, 15'000'000), 50 + 50 + 1000 + 20'000);
}

TEST(CostModel, OneRankSendsNothing) {
  Machine machine = host();
  machine.ranks = 1;
  EXPECT_EQ(allGatherUs(machine, 1 << 20), 0);
  EXPECT_EQ(reduceScatterUs(machine, 1 << 20), 0);
  EXPECT_EQ(tradeUs(machine, 1 << 20), 0);
}

// Every committed machine parses, and survives the way through JSON.
TEST(Machines, AreRead) {
  ASSERT_FALSE(machineNames().empty());
  for (const std::string &name : machineNames()) {
    Result<Machine> machine = machineFromJson(machineText(name));
    ASSERT_TRUE(machine) << name << ": " << machine.error().message;
    std::string text = toJson(*machine);
    EXPECT_EQ(text.find("\"measured\": {") != std::string::npos,
              name != "one-core");
    Result<Machine> again = machineFromJson(text);
    ASSERT_TRUE(again) << name << ": " << again.error().message;
    EXPECT_EQ(toJson(*again), text);
  }
  EXPECT_EQ(machineText("no such machine"), "");
}

// The message of the text of `name` in which `from` is replaced by `to`.
std::string fault(const std::string &from, const std::string &to,
                  const char *name = "one-core") {
  std::string text(machineText(name));
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  Result<Machine> machine = machineFromJson(text.replace(at, from.size(), to));
  return machine ? "" : machine.error().message;
}

// A wrong figure is named by its path, with its range.
TEST(Machines, WrongFiguresAreNamed) {
  EXPECT_EQ(fault("\"memory_gbs\": 10", "\"memory_gbs\": -3"),
            "not a machine: 'rates.default.f32.memory_gbs' is -3; it must be a "
            "number above 0 and up to 1e9");
  EXPECT_EQ(fault("\"gflops\": 80", "\"gflop\": 80"),
            "not a machine: 'rates.default.f32.gflops' is missing; it must be "
            "a number from 0 to 1e9");
  EXPECT_EQ(fault("\"gflops\": 80", "\"gflops\": \"80\""),
            "not a machine: 'rates.default.f32.gflops' is \"80\"; it must be a "
            "number from 0 to 1e9");
  EXPECT_EQ(fault("\"launch\"", "\"lunch\""),
            "not a machine: 'rates.lunch' is not known");
  EXPECT_EQ(fault("\"default\"", "\"matmul\""),
            "not a machine: 'rates.default' is missing");
  EXPECT_EQ(fault("\"ranks_per_node\": 0", "\"ranks_per_node\": 1.5"),
            "not a machine: 'ranks_per_node' is 1.5; it must be an integer "
            "from 0 to 1048576");
  EXPECT_EQ(fault("\"gib\": 0", "\"gib\": 0, \"gib\": 1"),
            "not a machine: 'gib' stands in it twice");
  EXPECT_EQ(fault("\"one_link\": false", "\"one_link\": 0"),
            "not a machine: 'sharing.one_link' is 0; it must be true or "
            "false");
  EXPECT_EQ(fault("\"gib\": 0", "\"gib\": 0, \"tib\": 1"),
            "not a machine: 'memory.tib' is not known");
}

// A measured rate is above 0 and at most the stated one, and has a source.
TEST(Machines, WrongMeasuredFiguresAreNamed) {
  auto measured = [](const std::string &from, const std::string &to) {
    return fault(from, to, "h100");
  };
  EXPECT_EQ(measured("\"gflops\": 794500", "\"gflops\": 0"),
            "not a machine: 'rates.default.bf16.measured.gflops' is 0; it must "
            "be a number above 0 and up to 1e9");
  EXPECT_EQ(measured("\"gflops\": 794500", "\"gflops\": 994500"),
            "not a machine: 'rates.default.bf16.measured.gflops' is 994500.0, "
            "more than 'rates.default.bf16.gflops'");
  EXPECT_EQ(measured("\"all_gather_gbs\": 361", "\"all_gather_gb\": 361"),
            "not a machine: 'links.node.measured.all_gather_gb' is not known");
  EXPECT_EQ(measured("\"read_gbs\": 51", "\"read_gbs\": \"51\""),
            "not a machine: 'links.offload.measured.read_gbs' is \"51\"; it "
            "must be a number above 0 and up to 1e9");
  EXPECT_EQ(measured("\"count\": 132", "\"count\": 0"),
            "not a machine: 'processors.count' is 0; it must be an integer "
            "from 1 to 1048576");
  EXPECT_EQ(fault("\"gflops\": 80", "\"measured\": {}, \"gflops\": 80"),
            "not a machine: 'rates.default.f32.measured.source' is missing; it "
            "must be a text");
  EXPECT_EQ(fault("\"gflops\": 80", "\"achieved\": 0.8, \"gflops\": 80"),
            "not a machine: 'rates.default.f32.achieved' is not known");
}

// Texts of others: cut off, nested without end, or another document.
TEST(Machines, OtherTextsAreRefused) {
  std::string text(machineText("one-core"));
  for (size_t size = 0; size < text.size(); size += 97)
    EXPECT_FALSE(machineFromJson(text.substr(0, size)));
  EXPECT_FALSE(machineFromJson(std::string(1 << 20, '[')));
  EXPECT_FALSE(machineFromJson("[]"));
  EXPECT_FALSE(machineFromJson("{\"name\": {}}"));
}

} // namespace
