// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime's own CUDA kernels of casts, sums over ranks, the norm and
// reports against plain loops. Other topics have files of their own,
// own_*_test.cpp.
#include "tests/runtime/cuda/own_kernels.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

namespace {

// Casts both ways, with zeroes as padding, for lengths that are not a multiple
// of a vector's.
TEST_P(OwnKernelTest, cast) {
  for (int64_t elements : {1, 3, 64, 1027}) {
    int64_t padded = elements + 37;
    std::vector<float> values = randomFloats(elements, 1);
    for (WireType type : types)
      for (WireType to : types) {
        // By way of f32, which is exact.
        Aligned<char> from(bytesIn(type, values));
        std::vector<float> wide(elements);
        castToWire(from.data, type, WireType::f32, elements, wide.data());
        std::vector<char> expected = bytesIn(to, wide);
        expected.resize(size_t(padded) * elementBytes(to), 0);
        Aligned<char> found(std::vector<char>(expected.size(), 7));
        run(Cast{from.data, found.data, type, to, elements, padded});
        EXPECT_EQ(memcmp(found.data, expected.data(), expected.size()), 0)
            << int(type) << " to " << int(to);
      }
  }
}

// The host's bits for every mix of types, overwriting and adding.
TEST_P(OwnKernelTest, sumRanks) {
  constexpr int ranks = 3;
  constexpr int64_t count = 1030;
  for (WireType type : types)
    for (WireType wire : types)
      for (bool add : {false, true})
        for (bool strided : {false, true}) {
          std::vector<float> all = randomFloats(ranks * count, 2);
          Aligned<char> values(bytesIn(type, all));
          char *base = values.data;
          // With a stride, parts are ranges of what lies so far apart.
          constexpr int64_t stride = count / 32 * 32;
          int64_t length = strided ? stride - 96 : count;
          SumRanks s;
          std::vector<Addend> addends;
          for (int rank = 0; rank < ranks; ++rank) {
            s.parts[rank] = base + rank * stride * elementBytes(type);
            addends.push_back({s.parts[rank], type});
          }
          if (strided)
            s.first = base, s.stride = stride;
          Aligned<float> shard(randomFloats(length, 3));
          std::vector<float> expected = randomFloats(length, 3);
          s.ranks = ranks, s.type = type, s.wire = wire, s.add = add;
          s.elements = s.shardElements = length;
          s.shard = shard.data;
          run(s);
          fsdpc::runtime::sumRanks(addends.data(), ranks, wire, length,
                                   expected.data(), add);
          EXPECT_EQ(memcmp(shard.data, expected.data(), length * 4), 0);
        }
}

// Elements beyond the real ones count as zero.
TEST_P(OwnKernelTest, sumRanksOfPadding) {
  Aligned<float> part(randomFloats(50, 4)), shard(randomFloats(64, 5));
  std::vector<float> before(shard.data, shard.data + 64);
  SumRanks s;
  s.parts[0] = part.data;
  s.elements = 50, s.shardElements = 64, s.shard = shard.data;
  s.add = true;
  run(s);
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(shard.data[i], before[i] + (i < 50 ? part.data[i] : 0));
  s.add = false;
  run(s);
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(shard.data[i], i < 50 ? part.data[i] : 0);
}

// Values whose sum shows the order: (1e16 + 1) - 1e16 is not 1.
TEST_P(OwnKernelTest, sumDoubles) {
  std::vector<double> all = {1e16, 3, 1, -4, -1e16, 5};
  SumDoubles s;
  double sums[2];
  s.first = all.data(), s.ranks = 3, s.count = 2, s.values = sums;
  run(s);
  EXPECT_EQ(sums[0], (1e16 + 1) - 1e16);
  EXPECT_EQ(sums[1], 4);
  s.first = nullptr;
  for (int rank = 0; rank < 3; ++rank)
    s.parts[rank] = &all[2 * rank];
  sums[0] = sums[1] = 0;
  run(s);
  EXPECT_EQ(sums[0], (1e16 + 1) - 1e16);
}

// The sum is exact over groups, so segments may be cut anywhere between them.
TEST_P(OwnKernelTest, squaresAreTheSameHoweverTheyAreCut) {
  std::vector<float> gradient = randomFloats(3 * 4096 + 99, 6);
  gradient[5] = 1e18f, gradient[4100] = 1e-18f;
  SquareSum whole;
  whole.addSquares(gradient.data(), int64_t(gradient.size()));
  double expected[normDigits];
  whole.write(expected);
  for (int64_t step : {16, 1008, 4096}) {
    std::vector<NormSegment> segments;
    for (int64_t at = 0; at < int64_t(gradient.size()); at += step)
      segments.push_back({at, std::min(at + step, int64_t(gradient.size()))});
    std::vector<SquareSum> each(segments.size());
    NormLayout layouts[2];
    layouts[1] = {gradient.data(), segments.data(), int64_t(segments.size()),
                  each.data()};
    double sums[2 * normDigits];
    std::fill_n(sums, 2 * normDigits, -1);
    SumSquareSegments first;
    first.layouts = layouts, first.list[0] = 1, first.count = 1;
    run(first);
    SumSquares second;
    second.layouts = layouts, second.list[0] = 1, second.count = 1;
    second.sums = sums + normDigits;
    run(second);
    EXPECT_EQ(sums[0], -1);
    int64_t failed = 7;
    EXPECT_EQ(sumOfSquares(sums + normDigits, 1, failed),
              sumOfSquares(expected, 1, failed));
    EXPECT_EQ(failed, -1);
  }
}

// A gradient of 16 bits has the sum of its values in f32.
TEST_P(OwnKernelTest, squaresOfNarrowGradientsAreThoseOfTheirValues) {
  std::vector<float> wide = randomFloats(4096 + 99, 7);
  wide[5] = 1e18f, wide[4100] = 1e-18f;
  auto sumOf = [&](const void *gradient, WireType type) {
    std::vector<NormSegment> segments = {{0, 4096}, {4096, 4096 + 99}};
    std::vector<SquareSum> each(segments.size());
    NormLayout layout = {gradient, segments.data(), 2, each.data(), type};
    SumSquareSegments sum;
    sum.layouts = &layout, sum.count = 1;
    run(sum);
    each[0].add(each[1]);
    std::vector<double> digits(normDigits);
    each[0].write(digits.data());
    return digits;
  };
  for (WireType type : {WireType::bf16, WireType::f16}) {
    std::vector<uint16_t> narrow(wide.size());
    castToWire(wide.data(), WireType::f32, type, int64_t(wide.size()),
               narrow.data());
    std::vector<float> rounded(wide.size());
    castToWire(narrow.data(), type, WireType::f32, int64_t(wide.size()),
               rounded.data());
    EXPECT_EQ(sumOf(narrow.data(), type), sumOf(rounded.data(), WireType::f32));
  }
}

// The factor is 1 if the norm is small or clipping is off. A sum that is not
// finite is reported by its index, and may skip the step.
TEST_P(OwnKernelTest, clip) {
  double sums[2 * normDigits] = {}, norm = 0;
  for (int i = 0; i < 2; ++i) {
    SquareSum sum;
    sum.add(i ? 16 : 9);
    sum.carry();
    sum.write(sums + i * normDigits);
  }
  float scale = 0;
  int64_t failed = 7;
  double half = 0.5;
  auto clip = [&](double maxNorm, bool skips) {
    run(Clip{sums, 2, &half, maxNorm, skips, &scale, &norm, &failed});
  };
  clip(1, true);
  EXPECT_EQ(norm, 2.5);
  EXPECT_EQ(scale, float(1 / (2.5 + 1e-6) * 0.5));
  EXPECT_EQ(failed, -1);
  clip(0, true);
  EXPECT_EQ(scale, 0.5f);
  clip(5, false);
  EXPECT_EQ(scale, 0.5f);
  sums[normDigits] = std::numeric_limits<double>::infinity();
  clip(5, false);
  EXPECT_EQ(failed, 1);
  EXPECT_FALSE(std::isnan(scale));
  clip(5, true); // such a step is skipped
  EXPECT_EQ(failed, 1);
  EXPECT_TRUE(std::isnan(scale));
}

// More layouts than threads, of which each adds some. The sum has the bits of
// the host, and the first of several sums that are not finite is reported.
TEST_P(OwnKernelTest, clipOfManyLayouts) {
  constexpr int count = 600;
  std::vector<float> values = randomFloats(16 * count, 11);
  std::vector<double> sums(size_t(count) * normDigits);
  for (int i = 0; i < count; ++i) {
    SquareSum sum;
    sum.addSquares(values.data() + 16 * i, 16);
    sum.write(sums.data() + i * normDigits);
  }
  float scale = 0;
  double norm = 0;
  int64_t failed = 7;
  double expected = std::sqrt(sumOfSquares(sums.data(), count, failed));
  double half = 0.5;
  run(Clip{sums.data(), count, &half, 0, false, &scale, &norm, &failed});
  EXPECT_EQ(norm, expected * 0.5);
  EXPECT_EQ(failed, -1);
  sums[size_t(570) * normDigits] = std::numeric_limits<double>::quiet_NaN();
  sums[size_t(333) * normDigits] = std::numeric_limits<double>::infinity();
  run(Clip{sums.data(), count, &half, 0, false, &scale, &norm, &failed});
  EXPECT_EQ(failed, 333);
  EXPECT_FALSE(std::isfinite(norm));
}

// A microbatch's index on this rank follows from its number among all ranks'.
TEST_P(OwnKernelTest, reportLoss) {
  float loss = 3, valid = 0, losses[3] = {}, valids[3] = {};
  uint32_t random[4] = {1, 2, 2 * 4 + 3, 5};
  run(ReportLoss{&loss, &valid, random, 4, losses, valids});
  EXPECT_THAT(losses, ::testing::ElementsAre(0, 0, 3));
  EXPECT_THAT(valids, ::testing::ElementsAre(0, 0, 0));
  run(ReportLoss{&loss, nullptr, random, 4, losses, valids});
  EXPECT_EQ(valids[2], 1);
  // A metric has no divisor.
  loss = 5;
  run(ReportLoss{&loss, nullptr, random, 4, losses, nullptr});
  EXPECT_EQ(losses[2], 5);
}

// Gradients whose elements a hook has replaced are counted over microbatches.
TEST_P(OwnKernelTest, countZeroed) {
  float zeroed = 1;
  double sum = 2;
  run(CountZeroed{&zeroed, &sum});
  EXPECT_EQ(sum, 3);
  zeroed = 0;
  run(CountZeroed{&zeroed, &sum});
  EXPECT_EQ(sum, 3);
}

// A step takes the second list of numbers if the one before was skipped.
TEST_P(OwnKernelTest, takeNumbers) {
  uint64_t offered[] = {1, 2, 3, 4, 5, 6}, numbers[3] = {};
  int64_t skipped = -1;
  run(TakeNumbers{&skipped, offered, numbers, 3});
  EXPECT_THAT(numbers, ::testing::ElementsAre(1, 2, 3));
  skipped = 0;
  run(TakeNumbers{&skipped, offered, numbers, 3});
  EXPECT_THAT(numbers, ::testing::ElementsAre(4, 5, 6));
}

// The running average over ranks depends on their order.
TEST_P(OwnKernelTest, statisticsOfRanksInOrder) {
  std::vector<float> buffer = randomFloats(70, 7), all = randomFloats(140, 8);
  std::vector<float> expected = buffer;
  for (int rank = 0; rank < 2; ++rank)
    for (int i = 0; i < 70; ++i)
      expected[i] =
          float((1 - 0.1) * expected[i] + 0.1 * double(all[rank * 70 + i]));
  std::vector<float> averaged = buffer, mean = buffer;
  run(UpdateStatistics{buffer.data(), all.data(), 2, 70, 0.1});
  EXPECT_EQ(buffer, expected);
  // Their mean moves the average once.
  for (int i = 0; i < 70; ++i)
    mean[i] = float((1 - 0.1) * mean[i] +
                    0.1 * ((double(all[i]) + double(all[70 + i])) / 2));
  run(UpdateStatistics{averaged.data(), all.data(), 2, 70, 0.1, true});
  EXPECT_EQ(averaged, mean);
}

INSTANTIATE_TEST_SUITE_P(Grids, OwnKernelTest, someLaunches());

} // namespace
