// Generators, permutations, conversions and schedules: the parts of the runtime
// whose exact values are documented. Users may rely on them, and another
// version of the program must reproduce a run.
#include "runtime/core/command_line.h"
#include "runtime/core/dtype.h"
#include "runtime/core/init_rule.h"
#include "runtime/core/loss_scaler.h"
#include "runtime/core/shuffle.h"
#include "runtime/core/stragglers.h"
#include "runtime/core/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

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

// As torch.amp.GradScaler: a skipped step starts the count of good ones anew,
// and the scale never grows past f32.
// A rank is named once when it has been slow for 20 steps in a row, and again
// after it has recovered. Of two ranks the slower one is compared with the
// faster one.
TEST(Stragglers, AreNamedOnce) {
  Stragglers stragglers;
  auto steps = [&](int count, const std::vector<double> &milliseconds) {
    int named = 0;
    for (int step = 0; step < count; ++step) {
      stragglers.add(milliseconds);
      named += stragglers.turnedSlow(1);
      EXPECT_FALSE(stragglers.turnedSlow(0));
    }
    return named;
  };
  EXPECT_EQ(steps(19, {100, 131}), 0);
  EXPECT_EQ(steps(1, {100, 129}), 0); // not 1.3 times
  EXPECT_EQ(steps(19, {100, 131}), 0);
  EXPECT_EQ(steps(1, {100, 131}), 1);
  EXPECT_EQ(steps(100, {100, 131}), 0);
  EXPECT_EQ(steps(1, {100, 100}), 0);
  EXPECT_EQ(steps(20, {100, 131}), 1);
  // Less than 10 ms a step is noise.
  EXPECT_EQ(steps(40, {1, 10}), 0);
}

// The median of three is not moved by the slow one, and two may be slow.
TEST(Stragglers, AreComparedWithTheMedian) {
  Stragglers stragglers;
  for (int step = 0; step < 20; ++step)
    stragglers.add({100, 500, 110, 90, 400});
  EXPECT_EQ(stragglers.median(), 110);
  EXPECT_TRUE(stragglers.turnedSlow(1));
  EXPECT_TRUE(stragglers.turnedSlow(4));
  EXPECT_FALSE(stragglers.turnedSlow(2));
}

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

// Anything after a valid rule, and numbers that are not finite, are errors.
TEST(InitRule, RefusesOtherText) {
  for (const char *text : {"norml(0,1)", "normal(0)", "normal(0,1)x", "", "one",
                           "uniform(a,b)", "normal(0,inf)", "normal(0,1e39)"})
    EXPECT_FALSE(parseInitRule(text)) << text;
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
