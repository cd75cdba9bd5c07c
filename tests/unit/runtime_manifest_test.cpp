// The manifest survives JSON unchanged, malformed text is refused with the path
// of the error, and the memory table equals the sum of what each layout keeps.
// The expected bytes are worked out by hand.
#include "shared/blocks.h"
#include "shared/cuda_scratch.h"
#include "shared/host_products.h"
#include "shared/manifest.h"
#include "shared/memory_plan.h"
#include "shared/power_sgd.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

using namespace fsdpc;

using testing::HasSubstr;

namespace {

Manifest sample() {
  Manifest manifest;
  manifest.compiler = "0.1 \"quoted\" µ";
  manifest.computeDtype = manifest.reduceDtype = "f32";
  manifest.lr = 0.1;
  manifest.inputs.push_back({"ids", {2, 8}, "i64", 100, 0, -100, true});
  Layout layout;
  layout.name = "h.0";
  layout.elements = 1000;
  layout.states = 2;
  Member weight;
  weight.name = "h.0.weight";
  weight.aliases = {"tied"};
  weight.shape = {30, 32};
  weight.elements = 960;
  weight.source.kind = "file";
  weight.source.offset = uint64_t(1) << 63;
  layout.members.push_back(weight);
  manifest.layouts.push_back(layout);
  Buffer buffer;
  buffer.shape = {16};
  buffer.dtype = "f32";
  manifest.buffers.push_back(buffer);
  MatmulPlan product;
  product.m = product.n = product.k = 2;
  manifest.matmuls = {product, product};
  ConvolutionPlan convolution;
  convolution.batch = convolution.channels = convolution.filters = 1;
  convolution.height = convolution.width = 4;
  convolution.kernelHeight = convolution.kernelWidth = 1;
  convolution.outHeight = convolution.outWidth = 4;
  convolution.strides = convolution.dilations = {1, 1};
  convolution.padsBegin = convolution.padsEnd = {0, 0};
  manifest.convolutions = {convolution};
  PoolingPlan pooling;
  pooling.batch = pooling.channels = 1;
  pooling.height = pooling.width = pooling.outHeight = pooling.outWidth = 4;
  pooling.kernel = pooling.strides = {1, 1};
  pooling.padsBegin = pooling.padsEnd = {0, 0};
  manifest.poolings = {pooling};
  manifest.commands = {{"launch", "add_4", 48, 4, 0, -1, {}},
                       {"all_gather", "h.0", 0, 0, 0, -1, {0}}};
  manifest.sequences = {{"microbatch", 0, {{0, "h.0", true, "node_add"}}}};
  return manifest;
}

std::string readError(const std::string &text) {
  auto manifest = fromJson(text.data(), text.size());
  return manifest ? "" : manifest.error().message;
}

std::string replaced(std::string text, const std::string &from,
                     const std::string &to) {
  text.replace(text.find(from), from.size(), to);
  return text;
}

// Every field survives, including integers that a double could not hold.
TEST(Manifest, RoundTrips) {
  Manifest manifest = sample();
  manifest.reshardTo = 2;
  manifest.layouts[0].secondary = true;
  manifest.layouts[0].statesOffloaded = true;
  manifest.maxAccumulate = 4;
  manifest.buffers[0].countsOneRank = true;
  std::string text = toJson(manifest);
  auto read = fromJson(text.data(), text.size());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(toJson(*read), text);
  EXPECT_EQ(read->lr, 0.1);
  EXPECT_EQ(read->reshardTo, 2);
  EXPECT_EQ(read->maxAccumulate, 4);
  EXPECT_TRUE(read->layouts[0].secondary);
  EXPECT_TRUE(read->layouts[0].statesOffloaded);
  EXPECT_TRUE(read->buffers[0].countsOneRank);
  EXPECT_EQ(read->layouts[0].members[0].source.offset, uint64_t(1) << 63);
}

// Errors name the place by its path.
TEST(Manifest, NamesWhatIsWrong) {
  std::string text = toJson(sample());
  EXPECT_THAT(readError(text.substr(0, 100)), HasSubstr("parse error"));
  EXPECT_THAT(
      readError(replaced(text, "\"elements\": 960", "\"elements\": \"x\"")),
      HasSubstr("'layouts[0].members[0].elements' is not an integer"));
  EXPECT_THAT(
      readError(replaced(text, "\"elements\": 960", "\"elments\": 960")),
      HasSubstr("'layouts[0].members[0].elements' is missing"));
  EXPECT_THAT(
      readError(replaced(text, "\"version\": 1", "\"version\": 1, \"x\": 2")),
      HasSubstr("unknown keys"));
  EXPECT_THAT(readError(replaced(text, "\"command\": 0", "\"command\": 2")),
              HasSubstr("'microbatch' calls command 2, which does not exist"));
  EXPECT_THAT(readError(replaced(text, "\"version\": 1", "\"version\": 9")),
              HasSubstr("'version' is 9, not 1"));
}

// Data choose a bucket by the shape of their samples.
TEST(Manifest, BucketsDifferInTheShapeOfASample) {
  Manifest manifest = sample();
  manifest.inputs.resize(1);
  manifest.inputs[0].shape = {2, 12};
  auto error = [&](std::vector<std::vector<int64_t>> shapes) {
    manifest.buckets = {"a", "b"};
    manifest.inputs[0].bucketShapes = std::move(shapes);
    return readError(toJson(manifest));
  };
  EXPECT_EQ(error({{2, 12}, {2, 6}}), "");
  EXPECT_THAT(error({{2, 12}}), HasSubstr("has 1 shapes, but there are 2"));
  EXPECT_THAT(error({{2, 12}, {2, 13}}), HasSubstr("does not fit its memory"));
  EXPECT_THAT(error({{2, 12}, {2, 0}}), HasSubstr("does not fit its memory"));
  EXPECT_THAT(error({{2, 12}, {12}}), HasSubstr("does not fit its memory"));
  EXPECT_THAT(error({{2, 12}, {2, 12}}),
              HasSubstr("have the same shape in the buckets 'a' and 'b'"));
  EXPECT_THAT(error({{2, 12}, {4, 6}}),
              HasSubstr("has 2 samples in bucket 'a' and 4 in bucket 'b'"));
}

// A hostile manifest of some megabytes can name so many; comparing each with
// each took minutes.
TEST(Manifest, ManyBucketsAreComparedInTime) {
  Manifest manifest = sample();
  manifest.inputs.resize(1);
  manifest.inputs[0].shape = {2, 40000};
  for (int64_t bucket = 0; bucket < 40000; ++bucket) {
    manifest.buckets.push_back("T=" + std::to_string(bucket + 1));
    manifest.inputs[0].bucketShapes.push_back({2, bucket + 1});
  }
  auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(checkBuckets(manifest));
  manifest.inputs[0].bucketShapes.back() = {2, 39998};
  Status checked = checkBuckets(manifest);
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message,
              HasSubstr("the same shape in the buckets 'T=39998' and "
                        "'T=40000'"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

// Copies of members would otherwise run past the layout.
TEST(Manifest, RefusesMembersOutsideTheirLayout) {
  Manifest manifest = sample();
  manifest.layouts[0].members[0].offset = 41;
  EXPECT_THAT(readError(toJson(manifest)), HasSubstr("'h.0.weight'"));
}

// Well-formed text may still describe a program that no runtime can run.
TEST(Manifest, RefusesWhatTheRuntimeCannotRun) {
  Manifest manifest = sample();
  manifest.inputs[0].shape = {};
  EXPECT_THAT(readError(toJson(manifest)), HasSubstr("input 'ids'"));
  manifest = sample();
  manifest.reduceDtype = "f8";
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'f8' is not a supported"));
  manifest = sample();
  manifest.layouts[0].stateWhole = true;
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("keeps its state replicated"));
  // The gradient may be gathered for the optimizer only if nothing adds to it.
  manifest.layouts[0].masterWhole = true;
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("keeps its state replicated"));
  manifest.maxAccumulate = 1;
  EXPECT_EQ(readError(toJson(manifest)), "");
  manifest = sample();
  manifest.layouts[0].secondary = manifest.layouts[0].hybrid = true;
  EXPECT_THAT(
      readError(toJson(manifest)),
      HasSubstr("'h.0' has a secondary shard, but is not cut over all"));
  // States lie on disk only if there are any.
  manifest = sample();
  manifest.layouts[0].statesOffloaded = true;
  EXPECT_EQ(readError(toJson(manifest)), "");
  manifest.layouts[0].states = 0;
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'h.0' has its states offloaded, but has none"));
  // Gradients and parameters do only where a rank has a part of its own.
  manifest = sample();
  Layout &layout = manifest.layouts[0];
  layout.gradientWhole = layout.computeWhole = layout.masterWhole = false;
  layout.gradientOffloaded = layout.parametersOffloaded = true;
  EXPECT_EQ(readError(toJson(manifest)), "");
  layout.gradientWhole = true;
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'h.0' has its gradient offloaded, but no shard"));
  layout.gradientOffloaded = false;
  layout.masterWhole = true;
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'h.0' has its parameters offloaded, but no shard"));
  manifest = sample();
  manifest.reshardTo = manifest.maxRanks + 1;
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'reshardTo' is 1025, above 'maxRanks'"));
}

// Blocks have elements of one rank, of a type that the runtime knows, and are
// of layouts whose masters are sharded.
TEST(Manifest, RefusesBlocksAcrossRanks) {
  Manifest manifest = sample();
  manifest.layouts[0].wire = "i4";
  EXPECT_THAT(readError(toJson(manifest)), HasSubstr("gathered as 'i4'"));
  manifest.layouts[0].wire = "i8";
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'shardAlignment' is 32, but ranks send blocks"));
  manifest.shardAlignment = blockElements;
  EXPECT_EQ(readError(toJson(manifest)), "");
  manifest.layouts[0].masterWhole = true;
  EXPECT_THAT(readError(toJson(manifest)), HasSubstr("gathered as 'i8'"));
  // Owners share what they have.
  manifest.layouts[0].masterWhole = false;
  manifest.layouts[0].owned = manifest.layouts[0].computeWhole = true;
  EXPECT_THAT(readError(toJson(manifest)), HasSubstr("gathered as 'i8'"));
  manifest = sample();
  manifest.reduceDtype = "f8e4m3";
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'shardAlignment' is 32, but ranks send blocks"));
  // A shard of a group is longer than one of all ranks.
  manifest.layouts[0].hybrid = true;
  EXPECT_THAT(readError(toJson(manifest)), HasSubstr("reduced as 'f8e4m3'"));
  manifest.layouts[0].hybrid = false;
  manifest.computeDtype = "f8e4m3";
  EXPECT_THAT(readError(toJson(manifest)), HasSubstr("is not a supported"));
}

// A reduction that keeps residuals sends f32, and its sizes fit 64 bits.
TEST(Manifest, RefusesResidualsOfImpossibleSize) {
  Manifest manifest = sample();
  Layout &layout = manifest.layouts[0];
  layout.topK = 1000;
  EXPECT_EQ(readError(toJson(manifest)), "");
  layout.powerRank = 1;
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'h.0' cannot be reduced"));
  layout.topK = 0;
  EXPECT_EQ(readError(toJson(manifest)), "");
  layout.elements = int64_t(1) << 46;
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'h.0' cannot be reduced"));
  layout.topK = 1, layout.powerRank = 0;
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'h.0' cannot be reduced"));
  const int64_t empty[] = {0, int64_t(1) << 40, int64_t(1) << 40};
  EXPECT_FALSE(powerShapeOf(empty).isCompressed(mostPowerRank));
}

// Lists that library calls index, and extents that sizes are divided by.
TEST(Manifest, RefusesPlansOfImpossibleShape) {
  Manifest manifest = sample();
  manifest.matmuls[1].batch = {3};
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'matmuls[1]': matrix product whose 'strideA' has "
                        "0 entries instead of 1"));
  auto epilogue = [](const char *name, auto edit) {
    Manifest manifest = sample();
    manifest.matmuls[0].epilogue = name;
    manifest.matmuls[0].n = 8;
    edit(manifest.matmuls[0]);
    return readError(toJson(manifest));
  };
  EXPECT_EQ(epilogue("gelu", [](MatmulPlan &) {}), "");
  EXPECT_THAT(epilogue("relu", [](MatmulPlan &) {}),
              HasSubstr("unknown epilogue 'relu'"));
  EXPECT_THAT(epilogue("gelu", [](MatmulPlan &p) { p.accumulate = true; }),
              HasSubstr("'gelu' that accumulates or is batched"));
  EXPECT_THAT(epilogue("sum_lhs", [](MatmulPlan &p) { p.bias = true; }),
              HasSubstr("'sum_lhs' and a bias or an addend"));
  EXPECT_THAT(epilogue("gelu_grad", [](MatmulPlan &p) { p.n = 12; }),
              HasSubstr("rows of 12 elements, which is not a multiple of 8"));
  manifest = sample();
  manifest.convolutions[0].strides = {1, 0};
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'convolutions[0]': convolution whose 'strides' "
                        "has the entry 0"));
  manifest = sample();
  manifest.poolings[0].padsEnd = {};
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'padsEnd' has 0 entries instead of 2"));
  // The scratch memory of attention is divided by its heads.
  manifest.poolings.clear();
  AttentionPlan attention;
  attention.batch = attention.groups = attention.queries = attention.keys = 1;
  attention.width = attention.valueWidth = 8;
  attention.strideQuery = attention.strideKey = attention.strideValue =
      attention.strideOutput = {8, 8, 8};
  manifest.attentions = {attention};
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'attentions[0]': attention with an empty"));
  manifest.attentions[0].heads = 1;
  EXPECT_EQ(readError(toJson(manifest)), "");
  manifest.attentions[0].backward = true;
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'strideGrad' has 0 entries instead of 3"));
  manifest = sample();
  manifest.sequences[0].stream = 3;
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'microbatch' names stream 3, but there are 3"));
}

// Sizes of scratch memory are products of extents.
TEST(Manifest, RefusesPlansThatOverflow) {
  const int64_t large = int64_t(1) << 40, huge = int64_t(1) << 50;
  auto error = [](const auto &change) {
    Manifest manifest = sample();
    change(manifest);
    return readError(toJson(manifest));
  };
  EXPECT_THAT(error([&](Manifest &m) { m.matmuls[0].k = huge; }),
              HasSubstr("'matmuls[0]': matrix product of too many elements"));
  EXPECT_THAT(error([&](Manifest &m) {
                m.matmuls[0].m = m.matmuls[0].k = int64_t(1) << 25;
              }),
              HasSubstr("matrix product of too many elements"));
  EXPECT_THAT(error([&](Manifest &m) {
                MatmulPlan &p = m.matmuls[0];
                p.batch = p.strideA = p.strideB = p.strideC = {large, large};
              }),
              HasSubstr("matrix product of too many elements"));
  // Small matrices have products of more than 2^64 multiplications.
  Manifest manifest = sample();
  MatmulPlan &product = manifest.matmuls[0];
  product.m = product.n = product.k = int64_t(1) << 23;
  MatmulGrid grid = gridOf(product);
  EXPECT_EQ(grid.rows, 512);
  EXPECT_EQ(grid.columns, product.n);
  EXPECT_THAT(error([&](Manifest &m) { m.convolutions[0].batch = huge; }),
              HasSubstr("'convolutions[0]': convolution of too many elements"));
  // Each tensor is small, and the matrix of windows is not.
  EXPECT_THAT(error([&](Manifest &m) {
                ConvolutionPlan &p = m.convolutions[0];
                p.channels = p.kernelHeight = p.kernelWidth = int64_t(1) << 9;
                p.outHeight = p.outWidth = int64_t(1) << 15;
              }),
              HasSubstr("convolution of too many elements"));
  EXPECT_THAT(error([&](Manifest &m) {
                m.convolutions[0].dilations = {1, int64_t(1) << 60};
              }),
              HasSubstr("convolution whose 'dilations' has the entry"));
  EXPECT_THAT(error([&](Manifest &m) { m.convolutions[0].padsEnd[0] = large; }),
              HasSubstr("convolution whose 'padsEnd' has the entry"));
  EXPECT_THAT(error([&](Manifest &m) { m.poolings[0].height = huge; }),
              HasSubstr("'poolings[0]': pooling of too many elements"));
  EXPECT_THAT(error([&](Manifest &m) { m.poolings[0].strides[0] = large; }),
              HasSubstr("pooling whose 'strides' has the entry"));
  EXPECT_THAT(error([&](Manifest &m) {
                AttentionPlan &p = m.attentions.emplace_back();
                p.batch = p.heads = p.groups = p.width = p.valueWidth = 1;
                p.queries = p.keys = int64_t(1) << 25;
              }),
              HasSubstr("'attentions[0]': attention of too many elements"));
  EXPECT_THAT(error([&](Manifest &m) {
                AttentionPlan &p = m.attentions.emplace_back();
                p.batch = p.heads = p.groups = p.width = p.valueWidth = 1;
                p.keys = 1;
                p.queries = large;
              }),
              HasSubstr("attention whose 'queries' has the entry"));
}

// The plan of a large shape takes no memory per row.
TEST(MemoryPlan, CutsOfTallConvolutionsAreFew) {
  Manifest manifest = sample();
  ConvolutionPlan &p = manifest.convolutions[0];
  p.kind = "forward";
  p.dtype = "f32";
  p.kernelWidth = 2;
  p.width = p.outWidth = int64_t(1) << 17;
  p.height = p.outHeight = int64_t(1) << 29;
  auto cut = cutConvolution(p);
  ASSERT_TRUE(cut);
  EXPECT_LE(cut->blocks.size(), size_t(1) << 16);
  EXPECT_EQ(cut->blocks.back().begin + cut->blocks.back().count, p.outHeight);
}

// Text that was damaged is refused, whatever it claims.
TEST(Manifest, TrustsNothing) {
  std::string text = toJson(sample());
  auto with = [&](const char *from, const char *to) {
    return readError(replaced(text, from, to));
  };
  EXPECT_THAT(with("\"lr\": 0.1", "\"lr\": 0.1, \"lr\": 0.2"),
              HasSubstr("'lr' stands in it twice"));
  EXPECT_THAT(with("\"lr\": 0.1", "\"lr\": 1e999"), HasSubstr("malformed"));
  EXPECT_THAT(with("\"states\": 2", "\"states\": 4294967298"),
              HasSubstr("is not an integer in its range"));
  EXPECT_THAT(with("\"elements\": 1000", "\"elements\": 9223372036854775808"),
              HasSubstr("is not an integer in its range"));
  EXPECT_THAT(with("\"elements\": 1000", "\"elements\": -9223372036854775808"),
              HasSubstr("has -9223372036854775808 elements"));
  EXPECT_THAT(with("\"arenaBytes\": 0", "\"arenaBytes\": -1"),
              HasSubstr("'arenaBytes' is -1"));
  EXPECT_THAT(with("\"maxAccumulate\": 0", "\"maxAccumulate\": -1"),
              HasSubstr("'maxAccumulate' is -1"));
  EXPECT_THAT(with("\"maxRanks\": 1024", "\"maxRanks\": 0"),
              HasSubstr("'maxRanks' is 0"));
  // Products that overflow, to 0 and to 960.
  EXPECT_THAT(with("30,\n", "4294967296,\n4294967296,\n"),
              HasSubstr("member 'h.0.weight' is not within"));
  EXPECT_THAT(with("    2,\n", "4611686018427387904,\n4,\n"),
              HasSubstr("input 'ids' has no elements, or too many"));
  EXPECT_THAT(readError(std::string(100000, '[')),
              HasSubstr("nested too deeply"));
}

// 1000 elements on 3 ranks: 334 each, rounded up to 352.
TEST(MemoryPlan, ShardsAreAlignedAndEqual) {
  Manifest manifest = sample();
  EXPECT_EQ(shardElements(manifest.layouts[0], 3, 32), 352);
  EXPECT_EQ(shardElements(manifest.layouts[0], 1, 32), 1024);
}

// Each row of the table is the sum of what layouts, buffers, inputs and the
// arena's shares contribute.
TEST(MemoryPlan, ShardedF32) {
  Manifest manifest = sample();
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
TEST(MemoryPlan, KeptWholeHoldsTheMaster) {
  Manifest manifest = sample();
  manifest.layouts[0].computeWhole = true;
  LayoutMemory memory = layoutMemory(manifest, manifest.layouts[0], 3, 3);
  EXPECT_EQ(memory.master, 0);
  EXPECT_EQ(memory.compute, 3 * 352 * 4);
  manifest.computeDtype = "bf16";
  memory = layoutMemory(manifest, manifest.layouts[0], 3, 3);
  EXPECT_EQ(memory.master, 352 * 4);
  EXPECT_EQ(memory.compute, 3 * 352 * 2);
  // A layout that stays f32 is one of f32 in a program of bf16.
  manifest.layouts[0].keptF32 = true;
  memory = layoutMemory(manifest, manifest.layouts[0], 3, 3);
  EXPECT_EQ(memory.master, 0);
  EXPECT_EQ(memory.compute, 3 * 352 * 4);
}

// Gradients travel in bf16 only if the layout and the reduction have it, so the
// layouts that stay f32 decide the size, even if another one has more elements.
// 1000 elements on 4 ranks are 4 x 256 with padding, 1200 are 4 x 320.
TEST(MemoryPlan, LayoutsThatStayF32TravelInF32) {
  Manifest manifest = sample();
  manifest.computeDtype = manifest.reduceDtype = "bf16";
  EXPECT_EQ(cudaScratch(manifest, 4, true).wire, 4 * 256 * 2);
  manifest.layouts[0].keptF32 = true;
  EXPECT_EQ(cudaScratch(manifest, 4, true).wire, 4 * 256 * 4);
  Layout larger = manifest.layouts[0];
  larger.keptF32 = false;
  larger.elements = 1200;
  manifest.layouts.push_back(larger);
  EXPECT_EQ(cudaScratch(manifest, 4, true).wire, 4 * 256 * 4);
}

// Several owned gradients travel together, a large one alone. Their owner has
// tables for all of it.
TEST(MemoryPlan, OwnedGradientsTravelTogether) {
  Manifest manifest = sample();
  Layout &layout = manifest.layouts[0];
  layout.owned = true;
  int64_t alone = cudaScratch(manifest, 4, true).tables;
  EXPECT_EQ(cudaScratch(manifest, 4, true).wire, 16 * 256);
  manifest.layouts.push_back(layout);
  EXPECT_EQ(cudaScratch(manifest, 4, true).wire, 2 * 16 * 256);
  // Each of two ranks owns one.
  int64_t both = cudaScratch(manifest, 4, true).tables;
  EXPECT_LT(both, 2 * alone);
  EXPECT_GT(cudaScratch(manifest, 1, true).tables, both);
  manifest.layouts[1].elements = ownedTogether;
  EXPECT_EQ(cudaScratch(manifest, 4, true).wire, 4 * ownedTogether);
}

// 1000 elements are four blocks. A copy that persists holds rounded values, so
// the master has memory of its own; what a gather receives, and the pieces of a
// reduction, belong to communication.
TEST(MemoryPlan, BlocksHaveMemory) {
  Manifest manifest = sample();
  manifest.shardAlignment = blockElements;
  MemoryPlan before = planMemory(manifest, 3, 3, 1, 0, 0);
  Layout &layout = manifest.layouts[0];
  layout.wire = "i8";
  MemoryPlan plan = planMemory(manifest, 3, 3, 1, 0, 0);
  // Three shards of two blocks of 260 bytes, in whole cache lines.
  EXPECT_EQ(plan.communication - before.communication, 1600);
  EXPECT_EQ(plan.allocated - before.allocated, 1600);
  manifest.reduceDtype = "i8";
  EXPECT_EQ(planMemory(manifest, 3, 3, 1, 0, 0).communication -
                plan.communication,
            (2 * 3 * (262144 / 260 / 3) * 260 + 63) / 64 * 64);
  layout.computeWhole = true;
  LayoutMemory memory = layoutMemory(manifest, layout, 3, 3);
  EXPECT_EQ(memory.master, 512 * 4);
  EXPECT_EQ(memory.compute, 3 * 512 * 4);
}

// Six ranks in groups of three: a rank owns two of zero3's shards at that
// number of ranks, answers for one of them, and its counterpart for the other.
TEST(MemoryPlan, GroupsOwnSeveralShards) {
  Manifest manifest = sample();
  Layout &layout = manifest.layouts[0];
  LayoutMemory zero3 = layoutMemory(manifest, layout, 6, 3);
  layout.hybrid = true;
  LayoutMemory memory = layoutMemory(manifest, layout, 6, 3);
  EXPECT_EQ(memory.shard, 2 * zero3.shard);
  EXPECT_EQ(memory.own, zero3.shard);
  EXPECT_EQ(memory.whole, zero3.whole);
  EXPECT_EQ(memory.gradient, 2 * zero3.gradient);
  EXPECT_EQ(memory.shardOf(4), memory.shard);
  EXPECT_EQ(memory.ownOf(4), memory.shard + memory.own);
  EXPECT_EQ(memory.ownOf(1), memory.shard);
  memory = layoutMemory(manifest, layout, 6, 6);
  EXPECT_EQ(memory.shard, zero3.shard);
  EXPECT_EQ(memory.ownOf(4), zero3.shardOf(4));
}

// The largest goes first, to the rank with the fewest elements, and of equals
// the first to the lowest; what is cut has no owner.
TEST(Owners, AreGreedyBySize) {
  Manifest manifest = sample();
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
TEST(MemoryPlan, OwnersHaveAll) {
  Manifest manifest = sample();
  manifest.computeDtype = "bf16";
  Layout &layout = manifest.layouts[0];
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
  MemoryPlan owner = planMemory(manifest, 3, 3, 1, 0, 0, 0);
  EXPECT_EQ(owner.total() - planMemory(manifest, 3, 3, 1, 0, 0, 2).total(),
            4 * 1024 * 4);
  // Without a rank it is the plan of the one that has the most.
  EXPECT_EQ(planMemory(manifest, 3, 3, 1, 0, 0).total(), owner.total());
}

// A secondary shard is the rank's part over its group, in the compute type. All
// else is zero3's.
TEST(MemoryPlan, SecondaryShardsAreOfAGroup) {
  Manifest manifest = sample();
  manifest.computeDtype = "bf16";
  manifest.reshardTo = 2;
  Layout &layout = manifest.layouts[0];
  LayoutMemory zero3 = layoutMemory(manifest, layout, 6, 6);
  EXPECT_EQ(zero3.secondary, 0);
  EXPECT_FALSE(usesGroups(manifest));
  MemoryPlan before = planMemory(manifest, 6, 6, 1, 0, 0);
  layout.secondary = true;
  LayoutMemory memory = layoutMemory(manifest, layout, 6, 2);
  EXPECT_EQ(memory.secondary, memory.whole / 2 * 2);
  EXPECT_EQ(memory.shard, zero3.shard);
  EXPECT_EQ(memory.master, zero3.master);
  EXPECT_TRUE(usesGroups(manifest));
  EXPECT_FALSE(reducesInGroups(manifest));
  MemoryPlan plan = planMemory(manifest, 6, 2, 1, 0, 0);
  EXPECT_EQ(plan.parameters - before.parameters, memory.secondary);
  EXPECT_EQ(plan.allocated - before.allocated, memory.secondary);
  // Where the group does not divide the ranks, a plan takes them all.
  EXPECT_EQ(plannedGroup(manifest, 6, 0), 2);
  EXPECT_EQ(plannedGroup(manifest, 6, 3), 3);
  EXPECT_EQ(plannedGroup(manifest, 5, 0), 5);
}

// Frozen layouts keep only their parameters.
TEST(MemoryPlan, FrozenLayoutsHaveNoGradientAndNoState) {
  Manifest manifest = sample();
  manifest.layouts[0].trainable = false;
  LayoutMemory memory = layoutMemory(manifest, manifest.layouts[0], 3, 3);
  EXPECT_EQ(memory.gradient, 0);
  EXPECT_EQ(memory.states, 0);
}

// Frozen values that the file has in the compute type have no master. Under
// zero3 their shard takes two bytes per element, where it persists all of it.
TEST(MemoryPlan, FrozenValuesInTheComputeTypeHaveNoMaster) {
  Manifest manifest = sample();
  Layout &layout = manifest.layouts[0];
  layout.trainable = layout.computeWhole = false;
  manifest.computeDtype = "bf16";
  for (Member &member : layout.members)
    member.source.dtype = "bf16";
  LayoutMemory memory = layoutMemory(manifest, layout, 3, 3);
  EXPECT_EQ(memory.master, 0);
  EXPECT_EQ(memory.compute, memory.shard * 2);
  layout.masterWhole = layout.computeWhole = true;
  memory = layoutMemory(manifest, layout, 3, 3);
  EXPECT_EQ(memory.master, 0);
  EXPECT_EQ(memory.compute, memory.whole * 2);
}

// With --master=none the shard is bf16 under zero3, and the copy that every
// rank has under ddp is all there is.
TEST(MemoryPlan, NoMasterIsPlannedWithoutMasters) {
  Manifest manifest = sample();
  Layout &layout = manifest.layouts[0];
  manifest.computeDtype = "bf16";
  layout.noMaster = true;
  layout.computeWhole = false;
  LayoutMemory memory = layoutMemory(manifest, layout, 3, 3);
  EXPECT_EQ(memory.master, 0);
  EXPECT_EQ(memory.compute, memory.shard * 2);
  EXPECT_GT(memory.gradient, 0);
  layout.masterWhole = layout.computeWhole = true;
  memory = layoutMemory(manifest, layout, 3, 3);
  EXPECT_EQ(memory.master, 0);
  EXPECT_EQ(memory.compute, memory.whole * 2);
}

// An update needs f32, and --save what the file held.
TEST(MemoryPlan, OtherLayoutsHaveAMaster) {
  Manifest manifest = sample();
  Layout &layout = manifest.layouts[0];
  layout.computeWhole = false;
  manifest.computeDtype = "bf16";
  for (Member &member : layout.members)
    member.source.dtype = "bf16";
  LayoutMemory memory = layoutMemory(manifest, layout, 3, 3);
  EXPECT_EQ(memory.master, memory.shard * 4);
  EXPECT_EQ(memory.compute, 0);
  layout.trainable = false;
  layout.members.back().source.dtype = "f32";
  memory = layoutMemory(manifest, layout, 3, 3);
  EXPECT_EQ(memory.master, memory.shard * 4);
  EXPECT_EQ(memory.compute, 0);
}

// The fuzz target begins with manifests that have a name; the others, named by
// hashes, are what it found. One that is refused at once would teach it
// nothing.
TEST(Manifest, SeedsOfTheFuzzTargetAreAccepted) {
  int seeds = 0;
  for (const auto &entry : std::filesystem::directory_iterator(
           SOURCE_FOLDER "/fuzz/corpus/manifest")) {
    std::string name = entry.path().filename();
    if (name.size() == 12)
      continue;
    std::ostringstream file;
    file << std::ifstream(entry.path()).rdbuf();
    std::string text = file.str();
    Result<Manifest> read = fromJson(text.data(), text.size());
    EXPECT_TRUE(read) << "fuzz/corpus/manifest/" << name << ": "
                      << read.error().message
                      << "; add what manifests have gained";
    ++seeds;
  }
  EXPECT_GE(seeds, 6);
}

} // namespace
