// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the descriptions of all kinds of compressions promise to those that ask
// them, and the sizes of each kind.
#include "runtime/abi/compressions.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <string>

using namespace fsdpc;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace {

const MemberShapes shapes = {{64, 4, 16}, {32}, {}};
constexpr int64_t elements = 64 * 64 + 32 + 16;

// Names and keys tell kinds apart in options, dumps, manifests and checkpoints.
TEST(Compressions, AreToldApart) {
  std::set<std::string> names, keywords, keys, symbols;
  size_t states = 0;
  for (const CompressionInfo *info : compressions()) {
    std::string keyword = info->name;
    std::replace(keyword.begin(), keyword.end(), '-', '_');
    EXPECT_EQ(info->keyword, keyword);
    EXPECT_EQ(findCompression(info->name), info);
    names.insert(info->name);
    keywords.insert(info->keyword);
    symbols.insert(info->traffic.symbol);
    if (info->state) {
      keys.insert(info->state->key);
      ++states;
    }
  }
  EXPECT_EQ(names.size(), compressions().size());
  EXPECT_EQ(keywords.size(), compressions().size());
  EXPECT_EQ(symbols.size(), compressions().size());
  EXPECT_EQ(keys.size(), states);
  EXPECT_EQ(findCompression(""), nullptr);
  EXPECT_EQ(findCompression("top_k"), nullptr);
}

// An amount that a kind makes of an option is one that it allows, sends less
// than all, and states are whole.
TEST(Compressions, AllowTheAmountsThatTheyMake) {
  for (const CompressionInfo *info : compressions()) {
    int64_t amount =
        info->amountFor(double(info->value.least), elements, shapes);
    ASSERT_GT(amount, 0) << info->name;
    EXPECT_EQ(info->faultOf(amount, elements), "") << info->name;
    EXPECT_NE(info->faultOf(0, elements), "") << info->name;
    EXPECT_NE(info->faultOf(-1, elements), "") << info->name;
    EXPECT_NE(info->faultOf(1, int64_t(1) << 48), "") << info->name;
    EXPECT_LT(info->sentBytes(amount, shapes), 4 * elements) << info->name;
    EXPECT_GT(info->exchangedBytes(amount, shapes, 4), 0) << info->name;
    EXPECT_GT(info->deviceBytes(elements, amount), 0) << info->name;
    int64_t kept = info->stateElements(amount, shapes);
    EXPECT_EQ(kept > 0, info->state != nullptr) << info->name;
    EXPECT_GE(info->stateBytes(amount, shapes, 4), 4 * kept) << info->name;
  }
}

TEST(TopK, SendsAShareRoundedUp) {
  const CompressionInfo &info = infoOf<TopK>();
  EXPECT_EQ(info.amountFor(2, 80, {}), 2);
  EXPECT_EQ(info.amountFor(100, 16, {}), 16);
  EXPECT_EQ(info.sentBytes(2, {}), 16);
  EXPECT_EQ(info.exchangedBytes(2, {}, 4), 64);
  EXPECT_EQ(info.faultOf(17, 16), "has a top_k of 17, but 16 elements");
  EXPECT_THAT(info.faultOf(1, (int64_t(1) << 32) + 1),
              HasSubstr("cut it with --layout-size"));
}

// Both factors of a 64 x 64 matrix have 128 elements of each vector; a vector,
// a scalar and a layout without a large matrix are sent as they are.
TEST(PowerSgd, SendsFactorsOfLargeMatrices) {
  const CompressionInfo &info = infoOf<PowerSgd>();
  EXPECT_EQ(info.amountFor(2, elements, shapes), 2);
  EXPECT_EQ(info.amountFor(2, 64, {{8, 8}}), 0);
  EXPECT_EQ(info.sentElements(2, shapes), 2 * (64 + 64) + 32 + 1);
  EXPECT_THAT(info.stateShape(2, {64, 4, 16}), ElementsAre(2, 64));
  EXPECT_THAT(info.stateShape(2, {32}), IsEmpty());
  EXPECT_THAT(info.stateShape(2, {0, int64_t(1) << 40, int64_t(1) << 40}),
              IsEmpty());
  EXPECT_EQ(info.stateBytes(2, shapes, 4), powerBytes(128, 4));
  EXPECT_EQ(info.exchangedBytes(2, shapes, 4), powerBytes(128 + 33, 4));
  EXPECT_EQ(info.faultOf(65537, 16),
            "has a power_sgd of 65537; it must be from 1 to 65536");
}

// A block of 100 elements has a scale and four words of signs, and the last one
// of 4096 elements, which has 96, three. A layout of scalars gains nothing.
TEST(OneBit, SendsAScaleAndSignsPerBlock) {
  const CompressionInfo &info = infoOf<OneBit>();
  EXPECT_EQ(info.amountFor(100, elements, shapes), 100);
  EXPECT_EQ(info.amountFor(100, 1, {{}}), 0);
  EXPECT_EQ(info.sentElements(100, {{64, 64}}), 40 * 5 + 4);
  EXPECT_EQ(info.sentElements(100, shapes), 40 * 5 + 4 + 2 + 2);
  EXPECT_EQ(info.sentElements(32, {{0, int64_t(1) << 40, int64_t(1) << 40}}),
            0);
  EXPECT_EQ(info.exchangedBytes(64, {{64, 64}}, 4), 4 * 4 * 64 * 3);
  EXPECT_EQ(info.deviceBytes(4096, 100), 41 * 4 * 8);
  EXPECT_EQ(info.faultOf(31, 4096),
            "has a one_bit of 31; it must be from 32 to 65536");
}

} // namespace
