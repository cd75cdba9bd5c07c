// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// checkpoint.json: what it says reads back, and whatever is wrong with it is
// named.
#include "runtime/checkpoint/checkpoint_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

CheckpointManifest small() {
  CheckpointManifest stored;
  stored.ranks = 2;
  Member member;
  member.name = "w";
  member.shape = {3};
  member.elements = 3;
  stored.layouts = {{"unit", 2, 1, {member}}};
  stored.files = {{1, {2, 3}}, {4, {5, 6}}};
  return stored;
}

TEST(CheckpointManifest, ReadsBackAndChecksSizes) {
  CheckpointManifest stored = small();
  stored.state = {7, 70, {0.125f, 3, 2}};
  stored.layouts[0].optimizer = "lamb";
  auto read = parseCheckpoint(toJson(stored));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->state.step, 7);
  EXPECT_EQ(read->state.sample, 70);
  EXPECT_EQ(read->state.scaler.scale, 0.125f);
  EXPECT_EQ(read->state.scaler.inARow, 3);
  EXPECT_EQ(read->state.scaler.skips, 2);
  EXPECT_EQ(read->files[1].tensors, stored.files[1].tensors);
  EXPECT_EQ(read->layouts[0].optimizer, "lamb");
  // With a right checksum, too: whoever wrote the file can compute it.
  auto refused = [](auto change) {
    CheckpointManifest hostile = small();
    change(hostile);
    return !parseCheckpoint(toJson(hostile));
  };
  EXPECT_TRUE(refused([](auto &m) { m.ranks = 0; }));
  EXPECT_TRUE(refused([](auto &m) { m.ranks = 3; }));
  EXPECT_TRUE(refused([](auto &m) { m.layouts[0].shard = 1; }));
  EXPECT_TRUE(refused([](auto &m) { m.layouts[0].shard = INT64_MAX; }));
  EXPECT_TRUE(refused([](auto &m) { m.layouts[0].states = 99; }));
  EXPECT_TRUE(refused([](auto &m) {
    m.layouts[0].states = 0;
    m.layouts[0].average = true;
  }));
  EXPECT_TRUE(
      refused([](auto &m) { m.layouts[0].members[0].offset = INT64_MAX; }));
  EXPECT_TRUE(refused([](auto &m) { m.layouts[0].members[0].offset = -1; }));
  EXPECT_TRUE(refused([](auto &m) {
    m.layouts[0].members[0].shape = {int64_t(1) << 40, int64_t(1) << 40};
  }));
  for (const char *text : {"", "{}", "[", "{\"format\":2}", "[[[["})
    EXPECT_FALSE(parseCheckpoint(text)) << text;
}

// A checkpoint from before states had names does not have them, and one that
// has them is read by programs from before.
TEST(CheckpointManifest, StatesMayHaveNames) {
  CheckpointManifest stored = small();
  EXPECT_EQ(toJson(stored).find("stateNames"), std::string::npos);
  stored.layouts[0].stateNames = {"exp_avg"};
  stored.layouts[0].factored = true;
  std::string text = toJson(stored);
  EXPECT_THAT(text, HasSubstr("\"format\":1"));
  auto read = parseCheckpoint(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_THAT(read->layouts[0].stateNames, ElementsAre("exp_avg"));
  EXPECT_TRUE(read->layouts[0].factored);
  EXPECT_FALSE(parseCheckpoint(toJson(small()))->layouts[0].factored);
  // A name per state of the optimizer, so the average has none.
  stored.layouts[0].stateNames.push_back("exp_avg_sq");
  EXPECT_FALSE(parseCheckpoint(toJson(stored)));
  stored.layouts[0].states = 2;
  stored.layouts[0].average = true;
  EXPECT_FALSE(parseCheckpoint(toJson(stored)));
  stored.layouts[0].average = false;
  EXPECT_TRUE(parseCheckpoint(toJson(stored)));
}

// A layout with an owner has one shard, the whole, in the owner's file.
TEST(CheckpointManifest, OwnersHaveOneShard) {
  CheckpointManifest stored = small();
  stored.layouts[0].owner = 1;
  stored.layouts[0].shard = 3;
  auto read = parseCheckpoint(toJson(stored));
  ASSERT_TRUE(read) << read.error().message;
  const StoredLayout &layout = read->layouts[0];
  EXPECT_EQ(layout.owner, 1);
  EXPECT_EQ(rankOfShard(*read, layout, 0), 1);
  EXPECT_EQ(tensorsOf(*read, 0)[0].shape[0], 0);
  EXPECT_EQ(tensorsOf(*read, 1)[1].shape[0], 3);
  EXPECT_THAT(toJson(stored), HasSubstr("\"format\":3"));
  stored.layouts[0].shard = 2; // twice that would hold it if it were cut
  EXPECT_FALSE(parseCheckpoint(toJson(stored)));
  stored.layouts[0].shard = 3;
  stored.layouts[0].owner = 2; // of 2 ranks
  EXPECT_FALSE(parseCheckpoint(toJson(stored)));
  stored.layouts[0].owner = 1;
  stored.layouts[0].group = 2;
  EXPECT_FALSE(parseCheckpoint(toJson(stored)));
}

// Each message says in words what is wrong and where, without those of the JSON
// library.
TEST(CheckpointManifest, FaultsAreNamed) {
  auto fault = [](const std::string &text) {
    auto parsed = parseCheckpoint(text);
    return parsed ? "none" : parsed.error().message;
  };
  const std::string text = toJson(small());
  EXPECT_EQ(fault(""), "it is empty");
  EXPECT_EQ(fault("[]"), "it has no 'format'");
  EXPECT_EQ(fault("{\"format\":\"1\"}"),
            "'format' is \"1\", not a whole number from 0 to " +
                std::to_string(INT64_MAX));
  EXPECT_EQ(fault("{\"format\":1}"), "it has no 'checkpoint'");
  EXPECT_EQ(fault(text.substr(0, 100)),
            "it is not valid JSON from byte 100 on");
  std::string broken = text;
  broken[20] = '\x01';
  EXPECT_EQ(fault(broken), "it is not valid JSON from byte 20 on");
  broken = text;
  broken.replace(text.find("\"ranks\""), 7, "\"ranky\"");
  EXPECT_EQ(fault(broken), "its checksum is wrong");
}

// Every bit of the text counts, also in escapes and numbers that could be
// written in another way.
TEST(CheckpointManifest, AFlippedBitIsFound) {
  CheckpointManifest stored = small();
  stored.state = {7, 70, {1e30f, 3, 2}};
  stored.layouts[0].members[0].name = "a\x1f\"b\u00e9";
  stored.layouts[0].members[0].aliases = {"c"};
  std::string text = toJson(stored);
  ASSERT_TRUE(parseCheckpoint(text));
  EXPECT_THAT(parseCheckpoint(text)->layouts[0].members[0].aliases,
              ElementsAre("c"));
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = char(flipped[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(parseCheckpoint(flipped)) << flipped;
  }
}

// With groups of two of four ranks, ranks 0 and 2 have shards 0 and 1.
TEST(CheckpointManifest, GroupsReadBackInAnotherFormat) {
  CheckpointManifest stored;
  stored.ranks = 4;
  stored.layouts.push_back({"l", 8, 0, {}, 2});
  stored.files.resize(4);
  std::string text = toJson(stored);
  EXPECT_THAT(text, HasSubstr("\"format\":2"));
  auto read = parseCheckpoint(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->layouts[0].group, 2);
  std::vector<int64_t> places;
  for (int64_t shard = 0; shard < 4; ++shard)
    places.push_back(rankOfShard(*read, read->layouts[0], shard));
  EXPECT_THAT(places, ElementsAre(0, 2, 1, 3));
  for (int64_t group : {3, 5, -2}) {
    stored.layouts[0].group = group;
    EXPECT_FALSE(parseCheckpoint(toJson(stored))) << group;
  }
  stored.layouts[0].group = 0;
  EXPECT_THAT(toJson(stored), HasSubstr("\"format\":1"));
  EXPECT_EQ(rankOfShard(stored, stored.layouts[0], 3), 3);
}

// Every rank has a residual; right factors are equal on all ranks.
TEST(CheckpointManifest, ResidualsReadBackInAnotherFormat) {
  CheckpointManifest stored = small();
  StoredLayout &layout = stored.layouts[0];
  layout.shard = 2048;
  layout.members[0].shape = {64, 50};
  layout.members[0].elements = layout.residual = 3200;
  layout.compression = {"power-sgd", 2};
  std::string text = toJson(stored);
  EXPECT_THAT(text, HasSubstr("\"format\":4"));
  EXPECT_THAT(text, HasSubstr("\"residual\":3200,\"powerRank\":2"));
  auto read = parseCheckpoint(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->layouts[0].compression, layout.compression);
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<StoredTensor> tensors = tensorsOf(*read, rank);
    ASSERT_EQ(tensors.size(), 4u);
    EXPECT_EQ(tensors[2].name, "0.unit.residual");
    EXPECT_THAT(tensors[2].shape, ElementsAre(3200));
    EXPECT_EQ(tensors[3].name, "0.unit.right");
    EXPECT_THAT(tensors[3].shape, ElementsAre(rank == 0 ? 100 : 0));
  }
  layout.residual = 3199; // shorter than its parameter
  EXPECT_FALSE(parseCheckpoint(toJson(stored)));
  layout.residual = INT64_MAX;
  EXPECT_FALSE(parseCheckpoint(toJson(stored)));
  layout.residual = 3200;
  layout.compression.amount = INT64_MAX;
  EXPECT_FALSE(parseCheckpoint(toJson(stored)));
}

// A layout that is left out has its place in the files, without an element, and
// the hash says of which base its values are.
TEST(CheckpointManifest, LayoutsThatAreLeftOutReadBackInAnotherFormat) {
  CheckpointManifest stored = small();
  StoredLayout &layout = stored.layouts[0];
  layout.states = 0;
  layout.leftOut = true;
  stored.base = "0123456789abcdef";
  std::string text = toJson(stored);
  EXPECT_THAT(text, HasSubstr("\"format\":5"));
  auto read = parseCheckpoint(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(read->layouts[0].leftOut);
  EXPECT_EQ(read->base, stored.base);
  EXPECT_EQ(read->layouts[0].members[0].name, "w");
  EXPECT_THAT(tensorsOf(*read, 1)[0].shape, ElementsAre(0));
  auto fault = [](const CheckpointManifest &forged) {
    auto refused = parseCheckpoint(toJson(forged));
    return refused ? "" : refused.error().message;
  };
  layout.states = 1;
  EXPECT_EQ(fault(stored), "layout 'unit' is left out, but has states");
  layout.states = 0;
  for (const char *base : {"0123456789ABCDEF", "0123"}) {
    stored.base = base;
    EXPECT_THAT(fault(stored), HasSubstr("not a checksum"));
  }
  stored.base.clear();
  EXPECT_EQ(fault(stored), "it leaves parameters out, but has no base");
  stored.base = "0123456789abcdef";
  layout.leftOut = false;
  EXPECT_FALSE(parseCheckpoint(toJson(stored)));
}

TEST(CheckpointManifest, LayoutsWithoutMastersReadBackInAnotherFormat) {
  CheckpointManifest stored = small();
  EXPECT_EQ(tensorsOf(stored, 0)[0].dtype, "f32");
  EXPECT_EQ(stored.layouts[0].elementBytes(), 8);
  stored.layouts[0].dtype = "bf16";
  std::string text = toJson(stored);
  EXPECT_THAT(text, HasSubstr("\"format\":3"));
  auto read = parseCheckpoint(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->layouts[0].dtype, "bf16");
  EXPECT_EQ(read->layouts[0].elementBytes(), 6);
  EXPECT_EQ(tensorsOf(*read, 0)[0].dtype, "bf16");
  EXPECT_EQ(tensorsOf(*read, 0)[1].dtype, "f32");
  stored.layouts[0].dtype = "i8";
  EXPECT_FALSE(parseCheckpoint(toJson(stored)));
}

TEST(CheckpointManifest, AnotherModelIsNamed) {
  Manifest program;
  Layout layout;
  layout.states = 2;
  layout.optimizer = "adam";
  Member member;
  member.name = "w";
  member.shape = {3};
  layout.members = {member};
  program.layouts = {layout};
  auto message = [&] {
    return checkSameModel(small(), program).error().message;
  };
  EXPECT_THAT(message(), HasSubstr("'w' [3] has 1 optimizer states, but adam "
                                   "has 2"));
  program.layouts[0].states = 1;
  EXPECT_TRUE(checkSameModel(small(), program));
  // An average may be new.
  program.layouts[0].states = 2;
  program.layouts[0].average = true;
  EXPECT_TRUE(checkSameModel(small(), program));
  // Any name of a tied parameter will do.
  program.layouts[0].members[0].name = "tied";
  program.layouts[0].members[0].aliases = {"w"};
  EXPECT_TRUE(checkSameModel(small(), program));
  program.layouts[0].members[0] = member;
  program.layouts[0].members[0].shape = {4};
  EXPECT_THAT(message(), HasSubstr("its 'w' [3] is [4] here"));
  program.layouts[0].members[0].name = "v";
  EXPECT_THAT(message(), HasSubstr("it has no 'v' [4]; the program has no 'w' "
                                   "[3]"));
}

} // namespace
