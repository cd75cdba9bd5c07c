// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Generators, permutations, conversions and schedules: the parts of the runtime
// whose exact values are documented. Users may rely on them, and another
// version of the program must reproduce a run.
#include "runtime/checkpoint/loss_scaler.h"
#include "runtime/cli/command_line.h"
#include "runtime/data/weights.h"
#include "runtime/numeric/dtype.h"
#include "runtime/numeric/init_values.h"
#include "runtime/numeric/shuffle.h"
#include "runtime/train/stragglers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <vector>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

// Known answers that the authors of Philox publish with Random123.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, ~uint64_t(0)),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                   0x299f31d0a4093822),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Counts around powers of four, where the network has spare values to skip.
TEST(Shuffle, IsAPermutationOfEachEpoch) {
  for (uint64_t count : {1, 2, 3, 16, 17, 1000}) {
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < count; ++i)
      seen.insert(shuffled(i, count, 5, 42));
    EXPECT_EQ(seen.size(), count);
    EXPECT_EQ(*seen.rbegin(), count - 1);
  }
}

// Orders of different epochs and seeds, and the identity, hardly coincide.
TEST(Shuffle, DiffersByEpochAndSeed) {
  int same = 0;
  for (uint64_t i = 0; i < 1000; ++i)
    same += (shuffled(i, 1000, 0, 1) == shuffled(i, 1000, 1, 1)) +
            (shuffled(i, 1000, 0, 1) == shuffled(i, 1000, 0, 2)) +
            (shuffled(i, 1000, 0, 1) == i);
  EXPECT_LT(same, 20); // by chance about one in a thousand, three times
}

// Adds the same step `count` times, and counts how often a rank is named.
int named(Stragglers &stragglers, int rank, int count,
          const std::vector<double> &elapsed,
          const std::vector<double> &processor) {
  int found = 0;
  for (int step = 0; step < count; ++step) {
    stragglers.add({elapsed, processor});
    found += stragglers.turnedSlow(rank);
  }
  return found;
}

// A rank is named once when most of its last 20 steps were slow, and again
// after it has recovered. With two ranks, the slower one is compared with the
// faster one.
TEST(Stragglers, AreNamedOnce) {
  Stragglers stragglers;
  auto steps = [&](int count, const std::vector<double> &elapsed) {
    return named(stragglers, 1, count, elapsed, {0, 0});
  };
  EXPECT_EQ(steps(19, {100, 131}), 0);
  EXPECT_EQ(steps(1, {100, 131}), 1);
  EXPECT_EQ(steps(100, {100, 131}), 0);
  EXPECT_EQ(steps(5, {100, 100}), 0); // not recovered by a few good steps
  EXPECT_EQ(steps(20, {100, 131}), 0);
  EXPECT_EQ(steps(20, {100, 120}), 0); // nor by better ones
  EXPECT_EQ(steps(20, {100, 131}), 0);
  EXPECT_EQ(steps(20, {100, 110}), 0);
  EXPECT_EQ(steps(20, {100, 131}), 1);
  EXPECT_EQ(steps(20, {100, 110}), 0);
  EXPECT_EQ(steps(40, {100, 124}), 0); // not 1.25 times
  EXPECT_EQ(steps(40, {1, 10}), 0);    // less than 10 ms a step is noise
}

// The median of five is not moved by the slow ones, and two may be slow.
TEST(Stragglers, AreComparedWithTheMedian) {
  Stragglers stragglers;
  const std::vector<double> elapsed = {100, 500, 110, 90, 400};
  const std::vector<double> unknown(5, 0);
  for (size_t step = 0; step < Stragglers::window; ++step)
    stragglers.add({elapsed, unknown});
  EXPECT_TRUE(stragglers.turnedSlow(1));
  EXPECT_TRUE(stragglers.turnedSlow(4));
  EXPECT_FALSE(stragglers.turnedSlow(2));
  EXPECT_EQ(stragglers.verdictOn(1).own, 500);
  EXPECT_EQ(stragglers.verdictOn(1).median, 110);
  EXPECT_FALSE(stragglers.verdictOn(1).isProcessorTime);
}

// Four ranks share two processors fairly, and rank 2 has 1.3 times the work of
// the others. They end after two units of time, and it has then 0.3 left, which
// it does alone: 2.3 units, 1.15 times theirs. Only processor time shows it.
TEST(Stragglers, AreFoundWhereRanksShareProcessors) {
  Stragglers stragglers;
  EXPECT_EQ(
      named(stragglers, 2, 50, {200, 200, 230, 200}, {100, 100, 130, 100}), 1);
  EXPECT_TRUE(stragglers.verdictOn(2).isProcessorTime);
  EXPECT_EQ(stragglers.verdictOn(2).own, 130);
}

// Other load slows all ranks in turn, by up to three times as much as rank 1 is
// slow itself. No step in a row of 20 would name it; the median of them does,
// and names nobody else.
TEST(Stragglers, AreFoundAmongRanksThatAreAllSlow) {
  Stragglers stragglers;
  std::mt19937 random(5);
  std::uniform_real_distribution<double> load(1, 1.6);
  std::vector<int> found(4);
  for (int step = 0; step < 50; ++step) {
    std::vector<double> elapsed(4);
    for (int rank = 0; rank < 4; ++rank)
      elapsed[size_t(rank)] = (rank == 1 ? 130 : 100) * 3 * load(random);
    stragglers.add({elapsed, {0, 0, 0, 0}});
    for (int rank = 0; rank < 4; ++rank)
      found[size_t(rank)] += stragglers.turnedSlow(rank);
  }
  EXPECT_GE(found[1], 1);
  EXPECT_EQ(found[0] + found[2] + found[3], 0);
}

// As torch.amp.GradScaler: a skipped step starts the count of good ones anew,
// and the scale never grows past f32.
TEST(LossScaler, BacksOffAndGrows) {
  LossScaler scaler({8, 2, 0.5, 2});
  auto step = [&](bool finite) {
    scaler.update(finite);
    return scaler.scale();
  };
  EXPECT_EQ(step(false), 4);
  EXPECT_EQ(step(true), 4);
  EXPECT_EQ(step(false), 2);
  EXPECT_EQ(step(true), 2);
  EXPECT_EQ(step(true), 4);
  EXPECT_EQ(step(true), 4);
  EXPECT_EQ(step(true), 8);
  EXPECT_EQ(scaler.skipped(), 2);
  LossScaler large({0x1p127, 2, 0.5, 1});
  large.update(true);
  EXPECT_EQ(large.scale(), 0x1p127f);
}

TEST(LossScaler, IsConstantOrOff) {
  LossScaler constant({1024, 2, 0.5, 0}), off(LossScale{});
  for (LossScaler *scaler : {&constant, &off})
    scaler->update(true);
  EXPECT_EQ(constant.scale(), 1024);
  EXPECT_EQ(off.scale(), 1);
  EXPECT_FALSE(off.isOn());
  // A step that --on-nonfinite leaves out is counted.
  constant.update(false);
  EXPECT_EQ(constant.scale(), 1024);
  EXPECT_EQ(constant.skipped(), 1);
}

// Ties go to even; infinity and NaN survive.
TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(toBf16(1.0f), 0x3f80);
  EXPECT_EQ(toBf16(1.0f + 0x1p-8f), 0x3f80); // halfway: to even
  EXPECT_EQ(toBf16(1.0f + 0x3p-8f), 0x3f82);
  EXPECT_EQ(toBf16(INFINITY), 0x7f80);
  EXPECT_TRUE(std::isnan(fromBf16(toBf16(NAN))));
}

// Normal and subnormal values, the largest, and infinity.
TEST(F16, Widens) {
  EXPECT_EQ(fromF16(0x3c00), 1.0f);
  EXPECT_EQ(fromF16(0xc000), -2.0f);
  EXPECT_EQ(fromF16(0x0001), 0x1p-24f);
  EXPECT_EQ(fromF16(0x7bff), 65504.0f);
  EXPECT_TRUE(std::isinf(fromF16(0x7c00)));
}

// Only conversions that keep every value happen silently, and f64 to f32.
TEST(Dtype, IntegersWidenAndNothingNarrows) {
  EXPECT_TRUE(converts("u8", "i64"));
  EXPECT_TRUE(converts("u32", "i64"));
  EXPECT_TRUE(converts("i16", "i32"));
  EXPECT_FALSE(converts("u64", "i64"));
  EXPECT_FALSE(converts("i64", "i32"));
  EXPECT_FALSE(converts("i8", "u16"));
  EXPECT_FALSE(converts("f32", "i64"));
  EXPECT_FALSE(converts("i64", "f32"));
  EXPECT_TRUE(converts("f64", "f32"));
  uint16_t source[2] = {7, 65535};
  int64_t wide[2];
  convert(source, "u16", wide, "i64", 2);
  EXPECT_EQ(wide[1], 65535);
}

// A rank that computes only its shard gets the same values.
TEST(InitRule, DoesNotDependOnWhereItIsCut) {
  InitRule rule = *parseInitRule("normal(0,0.02)");
  std::vector<float> whole(1000), part(400);
  applyInitRule(rule, "h.0.w", 3, 0, 1000, whole.data());
  applyInitRule(rule, "h.0.w", 3, 333, 400, part.data());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 333));
}

// Mean and variance over 10⁵ values.
TEST(InitRule, HasItsMoments) {
  InitRule rule = *parseInitRule("normal(1,2)");
  std::vector<float> values(100000);
  applyInitRule(rule, "w", 0, 0, 100000, values.data());
  double sum = 0, squares = 0;
  for (float value : values) {
    sum += value;
    squares += (value - 1.0) * (value - 1.0);
  }
  EXPECT_NEAR(sum / 1e5, 1, 0.02);
  EXPECT_NEAR(squares / 1e5, 4, 0.08);
  rule = *parseInitRule("uniform(-1,3)");
  applyInitRule(rule, "w", 0, 0, 100000, values.data());
  sum = 0;
  for (float value : values) {
    ASSERT_GE(value, -1);
    ASSERT_LE(value, 3);
    sum += value;
  }
  EXPECT_NEAR(sum / 1e5, 1, 0.02);
}

// Anything after a valid rule, numbers that are not finite, and too few or too
// many are errors.
TEST(InitRule, RefusesOtherText) {
  for (const char *text :
       {"norml(0,1)", "normal(0)", "normal(0,1)x", "", "one", "uniform(a,b)",
        " normal(0,1)", "normal(0,inf)", "normal(0,1e39)", "normal(0,1,2)",
        "zeros()", "(", "normal(", "normal(0,1", "constant",
        "trunc_normal(0,1,2,-2)", "trunc_normal(0,0)", "xavier_uniform(1,2)",
        "orthogonal(x)"})
    EXPECT_FALSE(parseInitRule(text)) << text;
  EXPECT_EQ(parseInitRule("normal( 0 , 1 )")->numbers[1], 1);
}

// The scales that torch.nn.init computes from the shape: a linear layer, and a
// convolution whose window counts on both sides.
TEST(InitRule, ScalesAsTorch) {
  auto shaped = [](const char *text, const std::vector<int64_t> &shape) {
    return *ruleForShape(*parseInitRule(text), shape);
  };
  InitRule rule = shaped("kaiming_uniform(2.23606797749979)", {5, 7});
  EXPECT_EQ(rule.kind, InitRule::uniform); // torch.nn.Linear's own
  EXPECT_NEAR(rule.numbers[0], -1 / std::sqrt(7.0), 1e-15);
  EXPECT_NEAR(rule.numbers[1], 1 / std::sqrt(7.0), 1e-15);
  rule = shaped("kaiming_normal", {8, 3, 2, 2});
  EXPECT_EQ(rule.kind, InitRule::normal);
  EXPECT_NEAR(rule.numbers[1], std::sqrt(2.0 / 12), 1e-15);
  rule = shaped("xavier_uniform(2)", {8, 3, 2, 2});
  EXPECT_NEAR(rule.numbers[1], 2 * std::sqrt(6.0 / (12 + 32)), 1e-15);
  rule = shaped("xavier_normal", {4, 6});
  EXPECT_NEAR(rule.numbers[1], std::sqrt(2.0 / 10), 1e-15);
  for (const char *text : {"xavier_normal", "kaiming_uniform", "orthogonal"})
    for (const std::vector<int64_t> &shape :
         std::vector<std::vector<int64_t>>{{}, {3}, {0, 3}, {1 << 13, 1 << 13}})
      EXPECT_EQ(bool(ruleForShape(*parseInitRule(text), shape)),
                shape == std::vector<int64_t>({1 << 13, 1 << 13}) &&
                    std::string(text) != "orthogonal");
}

// Within the ends, by the quantiles of the law: the median, and the share below
// one deviation, also far out in a tail.
TEST(InitRule, TruncatesTheNormalLaw) {
  std::vector<float> values(100000);
  auto law = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  struct {
    const char *text;
    double mean, deviation, low, high;
  } cases[] = {{"trunc_normal(0,1)", 0, 1, -2, 2},
               {"trunc_normal(1,2,-1,9)", 1, 2, -1, 9},
               {"trunc_normal(0,1,5,6)", 0, 1, 5, 6},
               {"trunc_normal(0,0.02)", 0, 0.02, -2, 2}};
  for (auto [text, mean, deviation, low, high] : cases) {
    applyInitRule(*parseInitRule(text), "w", 0, 0, 100000, values.data());
    double from = law((low - mean) / deviation),
           share = law((high - mean) / deviation) - from;
    double middle = mean + deviation * 0.7;
    if (middle < low)
      middle = low + 0.1;
    int64_t below = 0;
    for (float value : values) {
      ASSERT_GE(value, float(low)) << text;
      ASSERT_LE(value, float(high)) << text;
      below += value < middle;
    }
    EXPECT_NEAR(double(below) / 1e5,
                (law((middle - mean) / deviation) - from) / share, 0.005)
        << text;
  }
}

// Rows are orthogonal, or columns if there are fewer of them, and of length
// `gain`. A parameter that is read in pieces has the values of a whole one.
TEST(InitRule, MakesOrthogonalRowsOrColumns) {
  InitRule rule = *parseInitRule("orthogonal(3)");
  for (std::vector<int64_t> shape :
       std::vector<std::vector<int64_t>>{{4, 4}, {3, 2, 5}, {7, 3}}) {
    std::vector<float> values = orthogonalValues(rule, "w", 1, shape);
    int64_t rows = shape[0], columns = int64_t(values.size()) / rows;
    bool isHigh = rows > columns;
    int64_t count = std::min(rows, columns), length = std::max(rows, columns);
    auto at = [&](int64_t i, int64_t k) {
      return double(values[size_t(isHigh ? k * columns + i : i * columns + k)]);
    };
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < count; ++j) {
        double product = 0;
        for (int64_t k = 0; k < length; ++k)
          product += at(i, k) * at(j, k);
        EXPECT_NEAR(product, i == j ? 9 : 0, 1e-5);
      }
  }
  Member member;
  member.name = "w";
  member.shape = {7, 3};
  member.elements = 21;
  member.source.kind = "rule";
  member.source.rule = "orthogonal(3)";
  Manifest manifest;
  manifest.layouts.resize(1);
  manifest.layouts[0].members = {member};
  fsdpc_program program = {};
  Weights weights;
  Options options;
  options.seed = 1;
  ASSERT_TRUE(weights.open(manifest, program, options));
  std::vector<float> values(21);
  ASSERT_TRUE(weights.readParameter(member, 0, 8, values.data()));
  ASSERT_TRUE(weights.readParameter(member, 8, 13, values.data() + 8));
  EXPECT_EQ(values, orthogonalValues(rule, "w", 1, member.shape));
}

// A buffer of ones holds the number 1 in each type, not its integer.
TEST(InitRule, OnesOfEveryType) {
  Manifest manifest;
  for (const char *dtype : {"f32", "f64", "bf16", "f16", "i64", "u8", "i1"}) {
    Buffer buffer;
    buffer.name = buffer.dtype = dtype;
    buffer.shape = {3};
    buffer.source.kind = "rule";
    buffer.source.rule = "ones";
    manifest.buffers.push_back(buffer);
  }
  fsdpc_program program = {};
  Weights weights;
  ASSERT_TRUE(weights.open(manifest, program, Options()));
  for (const Buffer &buffer : manifest.buffers) {
    int64_t value[3] = {};
    ASSERT_TRUE(weights.readBuffer(buffer, value)) << buffer.name;
    if (isFloat(buffer.dtype) && buffer.dtype != "f64") {
      float number[3];
      convert(value, buffer.dtype, number, "f32", 3);
      EXPECT_EQ(number[2], 1) << buffer.name;
    } else if (buffer.dtype == "f64") {
      double number;
      std::memcpy(&number, &value[2], sizeof number);
      EXPECT_EQ(number, 1);
    } else {
      int64_t bytes = buffer.dtype == "i64" ? 8 : 1;
      EXPECT_EQ(reinterpret_cast<char *>(value)[2 * bytes], 1) << buffer.name;
    }
  }
}

} // namespace
