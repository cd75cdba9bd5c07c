// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The samples of a run: the order in which they are read from one or several
// files, and the errors of files that do not fit.
#include "runtime/data/safetensors.h"
#include "runtime/data/samples.h"
#include "tests/runtime/data/runtime_files.h"
#include "tests/runtime/train/runtime_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::HasSubstr;

namespace {

// Input `ids` with 5 samples of 3 elements (0, 1, 2, …), 2 per microbatch.
class SamplesTest : public testing::Test {
protected:
  SamplesTest() {
    manifest.inputs = {ids()};
    options.data.resize(1);
    options.data[0].input = "ids";
    write(npy<int64_t>("<i8", "(5, 3)", 15));
  }
  void write(const std::string &bytes) {
    options.data[0].file = folder.write("ids.npy", bytes);
  }
  std::vector<int64_t> read(int64_t number) {
    std::vector<int64_t> values(6);
    void *buffers[] = {values.data()};
    EXPECT_TRUE(samples.read(number, buffers));
    return values;
  }
  TemporaryFolder folder;
  Manifest manifest;
  Options options;
  Samples samples;
};

// The last microbatch of an epoch is filled with the first samples of the next.
TEST_F(SamplesTest, WrapAroundTheEpoch) {
  ASSERT_TRUE(samples.open(manifest, options, 2));
  EXPECT_EQ(read(0), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(read(4), (std::vector<int64_t>{12, 13, 14, 0, 1, 2}));
}

// All samples of a step are of one bucket, and buckets take turns in proportion
// to their samples.
TEST_F(SamplesTest, AStepIsOfOneBucket) {
  manifest.buckets = {"T=3", "T=4"};
  manifest.inputs[0].shape = {2, 4};
  manifest.inputs[0].bucketShapes = {{2, 3}, {2, 4}};
  std::string lengths[] = {
      folder.write("four.npy", npy<int64_t>("<i8", "(4, 4)", 16)),
      folder.write("three.npy", npy<int64_t>("<i8", "(8, 3)", 24))};
  options.data[0].file = lengths[0] + "," + lengths[1];
  ASSERT_TRUE(samples.open(manifest, options, 2));
  EXPECT_EQ(samples.count(), 12);
  std::vector<size_t> order;
  std::vector<int64_t> begins;
  for (int64_t number = 0; number < 24; number += 2) {
    std::vector<int64_t> values(8, -1);
    void *buffers[] = {values.data()};
    ASSERT_TRUE(samples.read(number, buffers));
    order.push_back(samples.bucketOf(number));
    begins.push_back(values[0]);
    EXPECT_EQ(values[7], order.back() == 0 ? -1 : values[0] + 7);
  }
  EXPECT_EQ(order, (std::vector<size_t>{1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(begins,
            (std::vector<int64_t>{0, 8, 0, 6, 12, 18, 0, 8, 0, 6, 12, 18}));
  EXPECT_THAT(samples.open(manifest, options, 3).error().message,
              HasSubstr("bucket 'T=4' has 4 samples, but one step takes 3 "
                        "microbatches of 2 of one bucket"));
  write(npy<int64_t>("<i8", "(5, 5)", 25));
  EXPECT_THAT(samples.open(manifest, options, 2).error().message,
              HasSubstr("the program has the buckets T=3, T=4"));
}

// Nodes and edges of graphs, for example: microbatch n takes the n-th rows of
// each input, and shuffling never mixes microbatches.
TEST_F(SamplesTest, InputsOfOtherRowsAreCutByMicrobatches) {
  manifest.inputs[0].shape = {4, 3};
  manifest.inputs.push_back({"edges", {2}, "i64"});
  options.data.resize(2);
  write(npy<int64_t>("<i8", "(12, 3)", 36));
  options.data[1].file =
      folder.write("edges.npy", npy<int64_t>("<i8", "(6,)", 6));
  options.shuffle = true;
  ASSERT_TRUE(samples.open(manifest, options, 2));
  EXPECT_EQ(samples.count(), 3);
  EXPECT_EQ(samples.batch(), 1);
  std::set<int64_t> found;
  for (int64_t number = 0; number < 3; ++number) {
    std::vector<int64_t> nodes(12), edges(2);
    void *buffers[] = {nodes.data(), edges.data()};
    ASSERT_TRUE(samples.read(number, buffers));
    EXPECT_EQ(nodes[0], edges[0] * 6);
    EXPECT_EQ(nodes[11], nodes[0] + 11);
    EXPECT_EQ(edges[1], edges[0] + 1);
    found.insert(edges[0]);
  }
  EXPECT_EQ(found, (std::set<int64_t>{0, 2, 4}));
  write(npy<int64_t>("<i8", "(13, 3)", 39));
  EXPECT_THAT(samples.open(manifest, options, 2).error().message,
              HasSubstr("has shape [13, 3], but a microbatch takes 4 rows of "
                        "input 'ids'"));
  options.data[0].tokens = true;
  EXPECT_THAT(samples.open(manifest, options, 2).error().message,
              HasSubstr("input 'ids' cannot be a token stream"));
}

// A loss of parameters alone is trained without data.
TEST_F(SamplesTest, AModelWithoutInputsReadsNothing) {
  manifest.inputs.clear();
  options.data.clear();
  ASSERT_TRUE(samples.open(manifest, options, 2));
  EXPECT_TRUE(samples.check(0, nullptr));
}

// A tensor of a safetensors file is an array too, by the input's name or its
// own.
TEST_F(SamplesTest, TensorsAreArrays) {
  std::string array = npy<int64_t>("<i8", "(5, 3)", 15).substr(128);
  SafeTensorsHeader header;
  header.add("ids", "i64", {5, 3}, {});
  header.add("late", "i64", {5, 3}, {});
  header.add("loss", "i64", {}, {});
  std::string late = array.substr(24) + array.substr(0, 24);
  std::string path =
      folder.write("x.safetensors", header.text() + array + late + "01234567");
  options.data[0].file = path;
  ASSERT_TRUE(samples.open(manifest, options, 2));
  EXPECT_EQ(read(1), (std::vector<int64_t>{3, 4, 5, 6, 7, 8}));
  options.data[0].file = path + ":late," + path;
  ASSERT_TRUE(samples.open(manifest, options, 2));
  EXPECT_EQ(samples.count(), 10);
  EXPECT_EQ(read(4), (std::vector<int64_t>{0, 1, 2, 0, 1, 2}));
  auto error = [&](const std::string &file) {
    options.data[0].file = file;
    return samples.open(manifest, options, 2).error().message;
  };
  EXPECT_THAT(error(path + ":lat"),
              HasSubstr("has no tensor 'lat'; did you mean 'late'?"));
  EXPECT_THAT(error(path + ":loss"), HasSubstr("is a scalar"));
  EXPECT_THAT(error(folder / "ids.npy.safetensors"), HasSubstr("cannot open"));
}

// An input without an axis has a value per step, which the number of the sample
// does not choose, and begins again after the last one.
TEST_F(SamplesTest, AnInputWithoutAnAxisHasAValuePerStep) {
  manifest.inputs.push_back({"scale", {}, "f32"});
  options.data.resize(2);
  options.data[1].file =
      folder.write("scale.npy", npy<double>("<f8", "(3,)", 3));
  ASSERT_TRUE(samples.open(manifest, options, 2));
  EXPECT_EQ(samples.batch(), 2);
  EXPECT_EQ(samples.count(), 5);
  std::vector<int64_t> ids(6);
  float scale = -1;
  void *buffers[] = {ids.data(), &scale};
  for (int64_t step : {0, 2, 4}) {
    ASSERT_TRUE(samples.read(2, buffers, step));
    EXPECT_EQ(ids, (std::vector<int64_t>{6, 7, 8, 9, 10, 11}));
    EXPECT_EQ(scale, float(step % 3));
  }
  // An evaluation takes the first one.
  ASSERT_TRUE(samples.readFrom(0, 2, buffers));
  EXPECT_EQ(scale, 0);
  Result<uint64_t> three = samples.hashOf(1);
  ASSERT_TRUE(three);
  options.data[1].file = folder.write("one.npy", npy<double>("<f8", "()", 1));
  ASSERT_TRUE(samples.open(manifest, options, 2));
  EXPECT_NE(*samples.hashOf(1), *three);
  EXPECT_EQ(samples.paths(1).size(), 1u);
  auto error = [&](const char *shape, size_t values) {
    options.data[1].file =
        folder.write("scale.npy", npy<double>("<f8", shape, values));
    return samples.open(manifest, options, 2).error().message;
  };
  EXPECT_THAT(error("(3, 1)", 3),
              HasSubstr("takes a value per step: [steps], or []"));
  EXPECT_THAT(error("(0,)", 0), HasSubstr("has shape [0], but input 'scale'"));
  options.data[1].tokens = true;
  EXPECT_THAT(samples.open(manifest, options, 2).error().message,
              HasSubstr("cannot be a token stream"));
}

// Samples count on from one file to the next, an empty one included.
TEST_F(SamplesTest, ContinueInTheNextFile) {
  std::string whole = folder.read("ids.npy");
  auto part = [&](const char *name, const char *shape, size_t begin,
                  size_t count) {
    std::string bytes = npy<int64_t>("<i8", shape, 0);
    folder.write(name, bytes + whole.substr(128 + begin * 24, count * 24));
  };
  part("p1.npy", "(3, 3)", 0, 3);
  part("p2.npy", "(0, 3)", 3, 0);
  part("p3.npy", "(2, 3)", 3, 2);
  options.data[0].file = folder / "p*.npy";
  ASSERT_TRUE(samples.open(manifest, options, 2));
  EXPECT_EQ(samples.count(), 5);
  EXPECT_EQ(read(2), (std::vector<int64_t>{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(read(4), (std::vector<int64_t>{12, 13, 14, 0, 1, 2}));
  EXPECT_THAT(samples.open(manifest, options, 3).error().message,
              HasSubstr("the 3 files of input 'ids' contain 5 samples"));
}

// Each part has its share of every stretch, in the order of its samples, and
// begins again when it is used up.
TEST_F(SamplesTest, MixPartsByWeight) {
  folder.write("a1.npy", npy<int64_t>("<i8", "(4, 3)", 12));
  folder.write("a2.npy", npy<int64_t>("<i8", "(3, 3)", 9));
  folder.write("b.npy", npy<int64_t>("<i8", "(2, 3)", 6));
  options.data[0].file = folder / "a*.npy," + folder / "b.npy";
  options.mix = {0.7, 0.3};
  ASSERT_TRUE(samples.open(manifest, options, 2));
  std::vector<int64_t> taken[2];
  for (int64_t number = 0; number < 1000; ++number) {
    int64_t sample = samples.sampleOf(number);
    taken[sample >= 7].push_back(sample);
    double share = 0.7 * double(number + 1);
    EXPECT_LE(std::abs(double(taken[0].size()) - share), 1) << number;
  }
  EXPECT_EQ(taken[0].size(), 700u);
  for (size_t i = 0; i < 700; ++i)
    ASSERT_EQ(taken[0][i], int64_t(i % 7));
  for (size_t i = 0; i < 300; ++i)
    ASSERT_EQ(taken[1][i], int64_t(7 + i % 2));
  // Shuffled, every epoch of a part still has each of its samples once.
  options.shuffle = true;
  ASSERT_TRUE(samples.open(manifest, options, 2));
  std::vector<int64_t> first;
  for (int64_t number = 0; first.size() < 14; ++number)
    if (samples.sampleOf(number) < 7)
      first.push_back(samples.sampleOf(number));
  for (int epoch : {0, 7})
    EXPECT_THAT(std::vector(first.begin() + epoch, first.begin() + epoch + 7),
                testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6));
}

// Shares stay exact at numbers that a double cannot hold, and for many parts.
TEST(Mixture, IsExactFarOut) {
  Mixture mixture({5, 3, 1, 1});
  const int64_t far = (int64_t(1) << 61) + 12345;
  std::vector<int64_t> next(4, -1), count(4);
  for (int64_t number = far; number < far + 1000; ++number) {
    auto [part, index] = mixture.at(number);
    EXPECT_TRUE(next[part] < 0 || index == next[part]);
    next[part] = index + 1;
    ++count[part];
  }
  const int64_t wanted[] = {500, 300, 100, 100};
  for (size_t part = 0; part < 4; ++part)
    EXPECT_NEAR(double(count[part]), double(wanted[part]), 4) << part;
}

// Windows that do not cross documents, against a plain list of them; documents
// of no window, of several blocks, and one without an end.
TEST_F(SamplesTest, SplitAtTheEndsOfDocuments) {
  std::string stream;
  std::vector<int64_t> begins; // of windows of 3 tokens and the one after them
  auto document = [&](int64_t tokens, bool ends) {
    for (int64_t i = 0; i + 4 <= tokens; i += 3)
      begins.push_back(int64_t(stream.size()) + i);
    for (int64_t i = 0; i < tokens; ++i)
      stream += char(ends && i + 1 == tokens ? 99 : 1 + (stream.size() % 90));
  };
  for (int64_t tokens : {1, 3, 4, 5, 6, 7, 1, 9000, 2, 4093, 4096, 12})
    document(tokens, true);
  for (int64_t tokens = 0; tokens < 300; ++tokens)
    document(tokens % 17 + 1, true);
  document(8, false);
  options.data[0] = {"ids", folder.write("text", stream), true, "u8", 0};
  manifest.inputs.push_back(ids());
  manifest.inputs[1].name = "labels";
  options.data.push_back({"labels", options.data[0].file, true, "u8", 1});
  options.splitAt = 99;
  Status opened = samples.open(manifest, options, 2);
  ASSERT_TRUE(opened) << opened.error().message;
  ASSERT_EQ(samples.count(), int64_t(begins.size()));
  std::vector<int64_t> read(6), labels(6);
  void *buffers[] = {read.data(), labels.data()};
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    ASSERT_TRUE(samples.read(int64_t(i), buffers));
    for (size_t e = 0; e < 6; ++e) {
      size_t at = size_t(begins[i + e / 3]) + e % 3;
      ASSERT_EQ(read[e], stream[at]) << i;
      ASSERT_EQ(labels[e], stream[at + 1]) << i;
      ASSERT_NE(read[e], 99) << "a window crosses documents";
    }
  }
  options.splitAt = 98;
  EXPECT_THAT(samples.open(manifest, options, 2).error().message,
              HasSubstr("--split-at: token 98 does not occur in '"));
  options.data[1] = {"labels", folder.write("short", "abc"), true, "u8", 0};
  EXPECT_THAT(samples.open(manifest, options, 2).error().message,
              HasSubstr("has 3 tokens in windows of 3, '"));
  options.data[1].tokens = false;
  options.data[1].file = folder / "ids.npy";
  EXPECT_THAT(samples.open(manifest, options, 2).error().message,
              HasSubstr("input 'labels' has samples; give its tokens with "
                        "--tokens or --eval-tokens"));
}

// The same readers serve --data and --eval, --tokens and --eval-tokens, so what
// is wrong with a file is said without a flag that the user may not have given.
TEST_F(SamplesTest, FaultsOfFilesNameNoFlagOfTheirs) {
  Input tokens = {"ids", {2, 3}, "i64"};
  std::string path = folder.write("text", "some text");
  EXPECT_THAT(openTokenWindows(tokens, path, "", 0).error().message,
              HasSubstr("as in 'ids=" + path + ":u8'"));
  path = folder.write("rows.npy", npy<int64_t>("<i8", "(4, 3)", 12));
  EXPECT_THAT(openTokenWindows(tokens, path, "", 0).error().message,
              HasSubstr("samples are given with --data or --eval"));
}

// Parts must be as many as weights, the same for all inputs, and not empty.
TEST_F(SamplesTest, MixNamesWhatDoesNotFit) {
  folder.write("b.npy", npy<int64_t>("<i8", "(0, 3)", 0));
  auto error = [&] {
    return samples.open(manifest, options, 2).error().message;
  };
  options.mix = {1, 1};
  EXPECT_THAT(error(), HasSubstr("--mix has 2 weights, but '"));
  EXPECT_THAT(error(), HasSubstr("lists 1 parts"));
  options.data[0].file += "," + folder / "b.npy";
  EXPECT_THAT(error(), HasSubstr("--mix: part 2 of '"));
  options.data[0].file = folder / "ids.npy," + folder / "[ib]*.npy";
  manifest.inputs.push_back(ids());
  manifest.inputs[1].name = "labels";
  options.data.push_back(options.data[0]);
  options.data[1].file = folder / "[ib]*.npy," + folder / "ids.npy";
  EXPECT_THAT(error(), HasSubstr("--mix: inputs 'ids' and 'labels' list"));
}

// A step takes each sample at most once.
TEST_F(SamplesTest, OneStepMustFit) {
  Status opened = samples.open(manifest, options, 3);
  EXPECT_THAT(
      opened.error().message,
      HasSubstr("contains 5 samples, but one step takes 3 microbatches of "
                "2"));
}

// Every epoch has each sample exactly once.
TEST_F(SamplesTest, ShuffleIsAPermutationPerEpoch) {
  options.shuffle = true;
  options.seed = 9;
  ASSERT_TRUE(samples.open(manifest, options, 2));
  for (int64_t epoch : {0, 1, 7}) {
    std::vector<int64_t> seen;
    for (int64_t i = 0; i < 5; ++i)
      seen.push_back(samples.sampleOf(epoch * 5 + i));
    EXPECT_THAT(seen, testing::UnorderedElementsAre(0, 1, 2, 3, 4));
  }
}

// A value out of range is named with its sample and element, also if samples
// are only checked. The ignored value is legal.
TEST_F(SamplesTest, NamesTheValueOutOfRange) {
  std::string bytes = npy<int64_t>("<i8", "(5, 3)", 15);
  int64_t bad = 100;
  bytes.replace(bytes.size() - 8, 8, reinterpret_cast<char *>(&bad), 8);
  write(bytes);
  ASSERT_TRUE(samples.open(manifest, options, 2));
  EXPECT_TRUE(samples.check(0, nullptr));
  Status read = samples.check(3, nullptr);
  EXPECT_THAT(read.error().message,
              HasSubstr("ids.npy' sample 4 element 2: 100 is outside [0, 100) "
                        "of input 'ids'"));
  bad = -100; // the ignored value
  bytes.replace(bytes.size() - 8, 8, reinterpret_cast<char *>(&bad), 8);
  write(bytes);
  ASSERT_TRUE(samples.open(manifest, options, 2));
  EXPECT_TRUE(samples.check(3, nullptr));
}

} // namespace
