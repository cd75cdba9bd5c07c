// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Casting to the wire type and summing over ranks, for every pair of types: the
// loops against the conversions of single numbers. What the collectives make of
// them is in collective_test.cpp.
#include "runtime/comm/reduce_scatter.h"
#include "runtime/numeric/float16.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <iterator>
#include <vector>

using namespace fsdpc::runtime;

namespace {

constexpr WireType types[] = {WireType::f32, WireType::bf16, WireType::f16};

// The value as it is after a way through `type`.
float rounded(float value, WireType type) {
  return type == WireType::f32    ? value
         : type == WireType::bf16 ? widen(narrow<BFloat16>(value))
                                  : widen(narrow<Float16>(value));
}

// Numbers of many magnitudes: from subnormal ones of f16 to such that overflow.
std::vector<float> numbers(int64_t count, int seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(std::ldexp(float((i * 7919 + seed * 104729) % 4096 - 2048),
                                int((i + seed) % 36) - 30));
  return values;
}

std::vector<char> packed(const std::vector<float> &values, WireType type) {
  std::vector<char> bytes(values.size() * elementBytes(type));
  castToWire(values.data(), WireType::f32, type, int64_t(values.size()),
             bytes.data());
  return bytes;
}

// To nearest, ties to even; widening back is exact.
TEST(CastToWire, RoundsEachElement) {
  std::vector<float> values = numbers(1001, 1);
  for (WireType type : types) {
    std::vector<float> back(values.size());
    castToWire(packed(values, type).data(), type, WireType::f32, 1001,
               back.data());
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(back[i], rounded(values[i], type)) << i;
  }
}

// A gradient that is not of the wire type is rounded to it once, from its own
// type.
TEST(SumRanks, RoundsEachAddendToTheWire) {
  constexpr int64_t count = 5000;
  for (WireType type : types)
    for (WireType wire : types) {
      std::vector<std::vector<float>> values;
      std::vector<std::vector<char>> bytes;
      std::vector<Addend> addends;
      for (int rank = 0; rank < 3; ++rank) {
        values.push_back(numbers(count, rank));
        bytes.push_back(packed(values.back(), type));
        addends.push_back({bytes.back().data(), type});
      }
      std::vector<float> shard(count, 1.0f);
      sumRanks(addends.data(), 3, wire, count, shard.data(), true);
      for (int64_t i = 0; i < count; ++i) {
        auto sent = [&](int rank) {
          return rounded(rounded(values[size_t(rank)][size_t(i)], type), wire);
        };
        float sum = 1.0f + sent(0) + sent(1) + sent(2);
        ASSERT_EQ(std::memcmp(&shard[size_t(i)], &sum, 4) == 0 ||
                      (std::isnan(sum) && std::isnan(shard[size_t(i)])),
                  true)
            << i << ": " << shard[size_t(i)] << " instead of " << sum;
      }
    }
}

// What a sum of `ranks` addends does besides adding.
struct SumCase {
  int ranks;
  bool mixed;          // the last addend has another type
  bool add, continues; // from the shard, or from other values
  size_t resultBytes;
  int64_t shift; // elements of the shard behind a cache line
};

std::vector<SumCase> sumCases() {
  std::vector<SumCase> cases;
  for (int ranks : {1, 2, 8, 9})
    for (int from : {0, 1, 2})
      for (size_t resultBytes : {size_t(0), size_t(1) << 20})
        for (int64_t shift : {0, 1, 15})
          for (bool mixed : {false, true})
            cases.push_back(
                {ranks, mixed, from == 1, from == 2, resultBytes, shift});
  return cases;
}

void expectPlainSum(const SumCase &c, WireType type, int64_t count) {
  std::vector<std::vector<char>> bytes;
  std::vector<Addend> addends;
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < c.ranks; ++rank) {
    bool other = c.mixed && rank == c.ranks - 1;
    WireType own = !other                  ? type
                   : type == WireType::f32 ? WireType::bf16
                                           : WireType::f32;
    bytes.push_back(packed(numbers(count, rank), own));
    values.emplace_back(size_t(count));
    castToWire(bytes.back().data(), own, WireType::f32, count,
               values.back().data());
    addends.push_back({bytes.back().data(), own});
  }
  // The shard has neighbours that must stay as they are.
  alignas(64) float memory[4096];
  std::fill(std::begin(memory), std::end(memory), 3.0f);
  std::vector<float> initial = numbers(count, 77);
  float *shard = memory + 64 + c.shift;
  sumRanks(addends.data(), c.ranks, WireType::f32, count, shard, c.add,
           c.continues ? initial.data() : nullptr, c.resultBytes);
  for (int64_t i = 0; i < count; ++i) {
    bool begun = c.add || c.continues;
    float sum = c.add         ? 3.0f
                : c.continues ? initial[size_t(i)]
                              : values[0][size_t(i)];
    for (int rank = begun ? 0 : 1; rank < c.ranks; ++rank)
      sum += values[size_t(rank)][size_t(i)];
    ASSERT_TRUE(shard[i] == sum || (std::isnan(shard[i]) && std::isnan(sum)))
        << c.ranks << " ranks, element " << i;
  }
  for (float *at : {shard - 1, shard + count})
    ASSERT_EQ(*at, 3.0f);
}

// In rank order, however the result lies and is written, and for as many ranks
// as one pass takes and more.
TEST(SumRanks, AddsInRankOrder) {
  for (const SumCase &c : sumCases())
    for (WireType type : types)
      for (int64_t count : {1, 16, 37, 3000})
        expectPlainSum(c, type, count);
}

// The sum may be written over this rank's own part of its gradient.
TEST(SumRanks, MayOverwriteASource) {
  for (int ranks : {2, 9}) {
    std::vector<std::vector<float>> values;
    std::vector<Addend> addends;
    for (int rank = 0; rank < ranks; ++rank)
      values.push_back(numbers(3000, rank));
    for (const std::vector<float> &each : values)
      addends.push_back({each.data(), WireType::f32});
    std::vector<float> expected(3000);
    sumRanks(addends.data(), ranks, WireType::f32, 3000, expected.data(),
             false);
    sumRanks(addends.data(), ranks, WireType::f32, 3000, values[1].data(),
             false, nullptr, 1 << 20);
    EXPECT_EQ(std::memcmp(values[1].data(), expected.data(), 12000), 0);
  }
}

// A 16-bit gradient travels as it is: it is never widened on the way.
TEST(HandedOver, IsTheNarrowerType) {
  for (WireType type : types)
    for (WireType wire : types) {
      ReduceScatter part = {nullptr, type, wire, 0, 0, nullptr, false};
      EXPECT_EQ(handedOver(part), type == WireType::f32 ? wire : type);
    }
}

} // namespace
