// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime's own CUDA kernels for blocks of 8 and 4 bits against the host's
// loops over the same values, to the bit.
#include "runtime/numeric/blocks.h"
#include "tests/runtime/cuda/own_kernels.h"

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

namespace {

constexpr BlockType allTypes[] = {BlockType::I8, BlockType::F8E4M3,
                                  BlockType::I4};

// Values of several blocks, among them one of zeroes, one with values that are
// not finite, and one below the least scale.
std::vector<float> valuesOf(int64_t elements, int seed) {
  std::vector<float> values = randomFloats(size_t(elements), seed);
  for (int64_t i = 0; i < blockElements && i < elements; ++i)
    values[size_t(i)] = 0;
  if (elements >= 4 * blockElements) {
    values[2 * blockElements + 7] = -INFINITY;
    for (int64_t i = 0; i < blockElements; ++i)
      values[size_t(3 * blockElements + i)] *= 0x1p-110f;
  }
  return values;
}

struct HostBlocks : Blocks {
  HostBlocks(int64_t count, BlockType type)
      : Blocks{nullptr, type}, memory(size_t(count * blockBytes(type))) {
    bytes = memory.data();
  }
  std::vector<char> memory;
};

BlockForm formOf(BlockType type) { return {type, blockBytes(type)}; }

class OwnBlockKernels : public OwnKernelTest {};

// There and back, with lengths that end within a block, or within four of its
// elements.
TEST_P(OwnBlockKernels, blocksAreTheHosts) {
  for (BlockType blockType : allTypes)
    for (WireType type : types)
      for (int64_t elements : {0, 255, 1030, 1792}) {
        constexpr int64_t count = 7;
        Aligned<char> values(
            bytesIn(type, valuesOf(count * blockElements, 20)));
        HostBlocks expected(count, blockType);
        toBlocks(values.data, type, elements, expected, count);
        Aligned<char> found(std::vector<char>(expected.memory.size(), 7));
        ToBlocks to;
        to.from = values.data, to.type = type;
        to.to = found.data, to.form = formOf(blockType);
        to.count = count, to.elements = elements;
        run(to);
        ASSERT_EQ(memcmp(found.data, expected.bytes, expected.memory.size()), 0)
            << elements << " of type " << int(type);
        int64_t all = count * blockElements;
        std::vector<char> wide(size_t(all) * elementBytes(type));
        fromBlocks(expected, all, type, wide.data());
        Aligned<char> back(std::vector<char>(wide.size(), 7));
        run(FromBlocks{found.data, formOf(blockType), back.data, type, all});
        ASSERT_EQ(memcmp(back.data, wide.data(), wide.size()), 0)
            << elements << " of type " << int(type);
      }
}

// Elements between members count as zero, whatever their memory holds.
TEST_P(OwnBlockKernels, elementsBetweenMembersAreZero) {
  const std::vector<MemberRange> ranges = {{0, 300}, {512, 512}, {768, 1024}};
  constexpr int64_t count = 6;
  std::vector<float> values = randomFloats(count * blockElements, 21), real;
  for (size_t i = 0; i < values.size(); ++i) {
    bool within = false;
    for (const MemberRange &range : ranges)
      within |= int64_t(i) >= range.begin && int64_t(i) < range.end;
    real.push_back(within ? values[i] : 0);
    if (!within)
      values[i] = NAN;
  }
  HostBlocks expected(count, BlockType::I8);
  toBlocks(real.data(), WireType::f32, count * blockElements, expected, count);
  Aligned<float> from(values);
  Aligned<char> found(std::vector<char>(expected.memory.size(), 7));
  ToBlocks to;
  to.from = from.data, to.to = found.data, to.form = formOf(BlockType::I8);
  to.count = count;
  to.ranges = ranges.data(), to.rangeCount = int64_t(ranges.size());
  run(to);
  EXPECT_EQ(memcmp(found.data, expected.bytes, expected.memory.size()), 0);
}

// The sum is of widened blocks in rank order, apart or at a stride.
TEST_P(OwnBlockKernels, sumsAreInRankOrder) {
  constexpr int64_t ranks = 3, count = 3, elements = count * blockElements;
  for (BlockType type : allTypes)
    for (bool add : {false, true})
      for (bool strided : {false, true}) {
        std::vector<float> sum = randomFloats(elements, 23), wide(elements);
        Aligned<float> shard(sum);
        HostBlocks all(ranks * count, type);
        for (int rank = 0; rank < ranks; ++rank) {
          std::vector<float> values = randomFloats(elements, 24 + rank);
          Blocks own = all.from(rank * count);
          toBlocks(values.data(), WireType::f32, elements, own, count);
          fromBlocks(own, elements, WireType::f32, wide.data());
          for (size_t i = 0; i < wide.size(); ++i)
            sum[i] = rank == 0 && !add ? wide[i] : sum[i] + wide[i];
        }
        Aligned<char> blocks(all.memory);
        SumRanks s;
        s.ranks = ranks, s.add = add, s.blocks = formOf(type);
        s.elements = s.shardElements = elements, s.shard = shard.data;
        for (int rank = 0; rank < ranks; ++rank)
          s.parts[rank] = blocks.data + rank * count * blockBytes(type);
        if (strided)
          s.first = blocks.data, s.stride = elements;
        run(s);
        EXPECT_EQ(memcmp(shard.data, sum.data(), sum.size() * sizeof(float)), 0)
            << "blocks of type " << int(type);
      }
}

INSTANTIATE_TEST_SUITE_P(Grids, OwnBlockKernels, someLaunches());
INSTANTIATE_TEST_SUITE_P(Teams, OwnBlockKernels,
                         ::testing::Values(Launch{1, 128}));

} // namespace
