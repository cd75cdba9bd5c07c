// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The manifest survives JSON unchanged, and malformed text is refused with the
// path of the error.
#include "runtime/abi/blocks.h"
#include "runtime/abi/power_sgd.h"
#include "tests/runtime/abi/runtime_manifests.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

using namespace fsdpc;

using testing::HasSubstr;

namespace {

// Every field survives, including integers that a double could not hold.
TEST(Manifest, RoundTrips) {
  Manifest manifest = sample();
  manifest.reshardTo = 2;
  manifest.layouts[0].secondary = true;
  manifest.layouts[0].statesOffloaded = true;
  manifest.layouts[0].stateNames = {"exp_avg", "exp_avg_sq"};
  manifest.layouts[0].sums = 2;
  manifest.layouts[0].factored = true;
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
  EXPECT_EQ(read->layouts[0].stateNames, manifest.layouts[0].stateNames);
  EXPECT_EQ(read->layouts[0].sums, 2);
  EXPECT_TRUE(read->layouts[0].factored);
  EXPECT_TRUE(read->buffers[0].countsOneRank);
  EXPECT_EQ(read->layouts[0].members[0].source.offset, uint64_t(1) << 63);
}

// A path or a name may have any bytes, and JSON only UTF-8.
TEST(Manifest, KeepsBytesThatAreNotUtf8) {
  Manifest manifest = sample();
  std::string bytes = "mod\xe9l \xf0\x9f.onnx";
  manifest.layouts[0].members[0].source.file = bytes;
  manifest.commandLine = bytes;
  std::string text = toJson(manifest);
  auto read = fromJson(text.data(), text.size());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->layouts[0].members[0].source.file, bytes);
  EXPECT_EQ(read->commandLine, bytes);
  EXPECT_THAT(readError(replaced(text, "233", "256")),
              HasSubstr("is not an integer in its range"));
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

// Scratch memory is planned by what the optimizer takes, and checkpoints have a
// name per state, or none.
TEST(Manifest, OptimizersTakeWhatIsPlanned) {
  auto refusal = [](auto change) {
    Manifest manifest = sample();
    change(manifest.layouts[0]);
    return readError(toJson(manifest));
  };
  EXPECT_EQ(refusal([](Layout &l) { l.sums = 8; }), "");
  EXPECT_EQ(refusal([](Layout &l) { l.orthogonal = true; }), "");
  EXPECT_THAT(refusal([](Layout &l) { l.stateNames = {"exp_avg"}; }),
              HasSubstr("layout 'h.0' has 2 states, but names 1"));
  EXPECT_THAT(refusal([](Layout &l) {
                l.average = true;
                l.stateNames = {"exp_avg", "exp_avg_sq"};
              }),
              HasSubstr("layout 'h.0' has 2 states, but names 2"));
  const std::string none = "layout 'h.0' has an optimizer that takes what none "
                           "does";
  EXPECT_THAT(refusal([](Layout &l) { l.sums = 9; }), HasSubstr(none));
  EXPECT_THAT(refusal([](Layout &l) { l.sums = -1; }), HasSubstr(none));
  EXPECT_THAT(refusal([](Layout &l) { l.factored = l.orthogonal = true; }),
              HasSubstr(none));
  EXPECT_THAT(refusal([](Layout &l) {
                l.trainable = false;
                l.sums = 1;
              }),
              HasSubstr(none));
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
  manifest.layouts[0].secondary = manifest.layouts[0].inGroups = true;
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
  // A gradient has one addend only if no rank or microbatch adds another.
  manifest = sample();
  manifest.layouts[0].gradientWhole = false;
  manifest.layouts[0].unsummed = true;
  manifest.maxAccumulate = manifest.maxRanks = 1;
  EXPECT_EQ(readError(toJson(manifest)), "");
  manifest.maxRanks = 2;
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'h.0' does not sum its gradients"));
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
  manifest.layouts[0].inGroups = true;
  EXPECT_THAT(readError(toJson(manifest)), HasSubstr("reduced as 'f8e4m3'"));
  manifest.layouts[0].inGroups = false;
  manifest.computeDtype = "f8e4m3";
  EXPECT_THAT(readError(toJson(manifest)), HasSubstr("is not a supported"));
}

// A reduction that keeps residuals sends f32, and its sizes fit 64 bits.
TEST(Manifest, RefusesResidualsOfImpossibleSize) {
  Manifest manifest = sample();
  Layout &layout = manifest.layouts[0];
  layout.compression = {"top-k", 1000};
  EXPECT_EQ(readError(toJson(manifest)), "");
  layout.compression = {"fewest", 1000};
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'h.0' cannot be reduced by 'fewest' of 1000"));
  layout.compression = {"power-sgd", 1};
  EXPECT_EQ(readError(toJson(manifest)), "");
  layout.elements = int64_t(1) << 46;
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'h.0' cannot be reduced"));
  layout.compression = {"top-k", 1};
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'h.0' cannot be reduced"));
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

// The fuzz target begins with manifests that have a name; the others, named by
// hashes, are what it found. One that is refused at once would teach it
// nothing.
TEST(Manifest, SeedsOfTheFuzzTargetAreAccepted) {
  int seeds = 0;
  for (const auto &entry : std::filesystem::directory_iterator(
           SOURCE_FOLDER "/tests/fuzz/corpus/manifest")) {
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
