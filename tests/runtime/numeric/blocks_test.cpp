// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values in blocks of 8 and 4 bits: f8e4m3 against a table of all its codes,
// blocks against their definition in f64, and the reduce-scatter of blocks
// against sums of what single ranks send.
#include "runtime/comm/block_reduction.h"
#include "runtime/comm/reduce_scatter.h"
#include "runtime/numeric/float8.h"
#include "tests/runtime/comm/collective_cases.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <thread>
#include <vector>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

// Returns what a code means, by the definition of the format.
double meaning(int code) {
  int exponent = (code >> 3) & 15, mantissa = code & 7;
  double magnitude = exponent == 0 ? std::ldexp(mantissa, -9)
                                   : std::ldexp(8 + mantissa, exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

bool isNanCode(int code) { return (code & 0x7f) == 0x7f; }

TEST(Float8, WidensEveryCode) {
  for (int code = 0; code < 256; ++code) {
    float value = widen(Float8{uint8_t(code)});
    if (isNanCode(code)) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    EXPECT_EQ(double(value), meaning(code)) << code;
    EXPECT_EQ(std::signbit(value), (code & 0x80) != 0) << code;
  }
}

// Each code comes back from its value; the middle of two goes to the even one,
// and what is next to the middle to the nearer one.
TEST(Float8, RoundsToNearestTiesToEven) {
  for (int sign : {0, 0x80})
    for (int code = 0; code < 0x7f; ++code) {
      float value = float(meaning(code | sign));
      EXPECT_EQ(narrow<Float8>(value).bits, code | sign) << code;
      if (code == 0x7e)
        continue;
      auto middle =
          float((meaning(code | sign) + meaning((code + 1) | sign)) / 2);
      int even = code % 2 == 0 ? code : code + 1;
      EXPECT_EQ(narrow<Float8>(middle).bits, even | sign) << code;
      float outwards = sign ? -HUGE_VALF : HUGE_VALF;
      EXPECT_EQ(narrow<Float8>(std::nextafter(middle, 0.0f)).bits, code | sign);
      EXPECT_EQ(narrow<Float8>(std::nextafter(middle, outwards)).bits,
                (code + 1) | sign);
    }
}

// 464 is the middle between 448 and the number that the code of NaN would be.
TEST(Float8, HasNoInfinity) {
  EXPECT_EQ(narrow<Float8>(464.0f).bits, 0x7e);
  EXPECT_EQ(narrow<Float8>(-464.0f).bits, 0xfe);
  for (float value : {std::nextafter(464.0f, 1e9f), 1e30f, HUGE_VALF, NAN})
    EXPECT_EQ(narrow<Float8>(value).bits, 0x7f) << value;
  EXPECT_EQ(narrow<Float8>(-HUGE_VALF).bits, 0xff);
  EXPECT_EQ(narrow<Float8>(1e-40f).bits, 0);
}

std::vector<float> numbers(int64_t count, float scale, int rank = 0) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(scale * fsdpc::testing::valueOf(rank, i));
  return values;
}

constexpr BlockType allTypes[] = {BlockType::I8, BlockType::F8E4M3,
                                  BlockType::I4};

// Blocks that hold so many elements.
struct OwnedBlocks : Blocks {
  OwnedBlocks(int64_t elements, BlockType type)
      : Blocks{nullptr, type},
        count((elements + blockElements - 1) / blockElements),
        memory(size_t(blockedBytes(elements, type))) {
    bytes = memory.data();
  }
  int64_t count;
  std::vector<char> memory;
};

// The values after a way through blocks, of which the last is padded.
std::vector<float> sent(const std::vector<float> &values, BlockType type,
                        std::vector<float> *scales = nullptr) {
  auto elements = int64_t(values.size());
  OwnedBlocks blocks(elements, type);
  toBlocks(values.data(), WireType::f32, elements, blocks, blocks.count);
  std::vector<float> back(values.size());
  fromBlocks(blocks, elements, WireType::f32, back.data());
  for (int64_t i = 0; scales && i < blocks.count; ++i)
    scales->push_back(blocks.from(i).scale());
  return back;
}

// In i8 and i4 a value is off by half a step of its block at most, in f8e4m3 by
// a 16th of itself, or half of the least step.
TEST(Blocks, AreNearTheirValues) {
  for (BlockType type : allTypes)
    for (float scale : {1.0f, 1e-20f, 1e25f}) {
      std::vector<float> values = numbers(1000, scale);
      std::vector<float> scales;
      std::vector<float> back = sent(values, type, &scales);
      ASSERT_EQ(scales.size(), 4u);
      for (size_t i = 0; i < values.size(); ++i) {
        double step = scales[i / blockElements];
        double bound = type != BlockType::F8E4M3
                           ? step / 2
                           : std::max(std::abs(double(values[i])) / 16,
                                      step * std::ldexp(1.0, -10));
        ASSERT_LE(std::abs(double(back[i]) - values[i]), bound * (1 + 1e-6))
            << i;
      }
    }
}

// The code of i8 is the quotient, to nearest, ties to even.
TEST(Blocks, RoundTiesToEven) {
  std::vector<float> values(blockElements);
  for (int i = 0; i < int(blockElements); ++i)
    values[size_t(i)] = float(i - 127) / 2; // -63.5 … 64
  values[255] = 127;                        // so that a step is 1
  std::vector<float> back = sent(values, BlockType::I8);
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(back[i], std::nearbyint(values[i])) << i;
}

// All fifteen codes of i4, at odd and even places.
TEST(Blocks, RoundToFourBits) {
  std::vector<float> values(blockElements);
  for (int i = 0; i < int(blockElements); ++i)
    values[size_t(i)] = float(i % 29 - 14) / 2; // -7 … 7, so a step is 1
  std::vector<float> back = sent(values, BlockType::I4);
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(back[i], std::nearbyint(values[i])) << i;
}

// A block that has a value that is not finite is NaN, so that no rank computes
// on as if nothing had happened; its neighbours are not.
TEST(Blocks, KeepWhatIsNotFiniteVisible) {
  for (BlockType type : allTypes)
    for (float bad : {NAN, HUGE_VALF, -HUGE_VALF}) {
      std::vector<float> values = numbers(3 * blockElements, 1);
      values[300] = bad;
      std::vector<float> back = sent(values, type);
      for (size_t i = 0; i < back.size(); ++i)
        ASSERT_EQ(std::isnan(back[i]), i / blockElements == 1) << i;
    }
}

TEST(Blocks, OfTinyValuesAreZero) {
  for (BlockType type : allTypes)
    for (float tiny : {0.0f, 1e-40f, 0x1p-101f})
      for (float value : sent(std::vector<float>(300, tiny), type))
        ASSERT_EQ(value, 0);
}

// bf16 values are widened before, and narrowed after the way.
TEST(Blocks, ConvertHalves) {
  std::vector<float> values = numbers(700, 1);
  std::vector<char> halves(values.size() * 2), back(halves), expected(halves);
  castToWire(values.data(), WireType::f32, WireType::bf16, 700, halves.data());
  castToWire(halves.data(), WireType::bf16, WireType::f32, 700, values.data());
  std::vector<float> wide = sent(values, BlockType::I8);
  castToWire(wide.data(), WireType::f32, WireType::bf16, 700, expected.data());
  OwnedBlocks blocks(700, BlockType::I8);
  toBlocks(halves.data(), WireType::bf16, 700, blocks, blocks.count);
  fromBlocks(blocks, 700, WireType::bf16, back.data());
  EXPECT_EQ(back, expected);
}

// Members that begin with a block, the first ones with a gap behind them.
std::vector<Member> membersOf(int64_t elements) {
  std::vector<Member> members;
  int64_t sizes[] = {7, 300, 256};
  for (int64_t begin = 0; begin < elements;) {
    Member member;
    member.offset = begin;
    bool last = members.size() == 3;
    member.elements = last ? elements - begin
                           : std::min(sizes[members.size()], elements - begin);
    begin +=
        (member.elements + blockElements - 1) / blockElements * blockElements;
    members.push_back(member);
  }
  return members;
}

// The sum of what each rank has sent, in rank order, on top of what the shard
// holds; bytes are counted. What stands between members counts as zero, also if
// it is NaN. Several pieces, and a last shard of padding alone.
void checkReduction(BlockType type, int ranks, int ranksPerNode,
                    int64_t elements, bool add) {
  int64_t blocks = (elements + blockElements - 1) / blockElements;
  int64_t shard = (blocks + ranks - 1) / ranks * blockElements;
  std::vector<Member> members = membersOf(elements);
  std::vector<float> expected(size_t(ranks * shard), add ? 0.5f : 0.0f);
  std::vector<std::vector<float>> gradients;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<float> values = numbers(elements, 1, rank);
    std::vector<float> kept(values.size(), 0.0f), garbage(values.size(), NAN);
    for (const Member &member : members)
      for (int64_t i = member.offset; i < member.offset + member.elements; ++i)
        kept[size_t(i)] = garbage[size_t(i)] = values[size_t(i)];
    gradients.push_back(garbage);
    std::vector<float> addend = sent(kept, type);
    for (size_t i = 0; i < addend.size(); ++i)
      expected[i] += addend[i];
  }
  auto jobs = makeLocalJobs(ranks, ranksPerNode);
  std::vector<std::thread> threads;
  std::vector<float> found(expected.size(), 0.5f);
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Communicator &channel = *jobs[size_t(rank)]->channel[reduceChannel];
      std::vector<char> scratch(size_t(reducedPieceBytes(ranks, type)));
      BlockReducer().reduceScatter(channel,
                                   {gradients[size_t(rank)].data(),
                                    WireType::f32, WireType::f32, elements,
                                    shard, &found[size_t(rank * shard)], add},
                                   members, type, scratch.data());
      EXPECT_EQ(channel.sentBytes(),
                uint64_t(blockedBytes(shard, type) * (ranks - 1)));
    });
  for (std::thread &thread : threads)
    thread.join();
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_EQ(found[i], expected[i]) << i << " of " << ranks << " ranks";
}

TEST(BlockReducer, AddsWhatRanksSend) {
  for (int ranks : {1, 2, 3, 5})
    for (bool add : {false, true})
      for (int64_t elements : {1, 1000, 300001})
        checkReduction(BlockType::F8E4M3, ranks, 0, elements, add);
  checkReduction(BlockType::F8E4M3, 4, 2, 300001, true);
  for (int64_t elements : {1000, 300001})
    checkReduction(BlockType::I4, 3, 0, elements, true);
}

} // namespace
