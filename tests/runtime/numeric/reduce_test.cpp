// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Casting to the wire type and summing over ranks, for every pair of types: the
// loops against the conversions of single numbers. What the collectives make of
// them is in collective_test.cpp.
#include "runtime/comm/reduce_scatter.h"
#include "runtime/numeric/float16.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
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

// A 16-bit gradient travels as it is: it is never widened on the way.
TEST(HandedOver, IsTheNarrowerType) {
  for (WireType type : types)
    for (WireType wire : types) {
      ReduceScatter part = {nullptr, type, wire, 0, 0, nullptr, false};
      EXPECT_EQ(handedOver(part), type == WireType::f32 ? wire : type);
    }
}

} // namespace
