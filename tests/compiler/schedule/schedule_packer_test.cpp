// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The packer: small cases whose offsets are explained by hand, then properties
// over random intervals. The lower bound of a packing is the most bytes alive
// at one position.

#include "compiler/schedule/exact_packer.h"
#include "compiler/schedule/live_profile.h"
#include "schedule_fixtures.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <random>

using namespace fsdpc::schedule;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

Interval interval(int64_t bytes, int begin, int end, std::string label = "") {
  Interval i;
  i.bytes = bytes;
  i.begin = begin;
  i.end = end;
  i.label = std::move(label);
  return i;
}

// Buffers whose live ranges do not meet share memory.
TEST(Packer, ReusesTheSpaceOfWhatEnded) {
  // a and b are never alive together and share offset 0; c is alive with both.
  std::vector<Interval> intervals = {interval(64, 0, 1), interval(64, 2, 3),
                                     interval(32, 0, 3)};
  Packing packing = pack(intervals);
  EXPECT_EQ(packing.peak, 96);
  EXPECT_EQ(packing.lowerBound, 96);
  // All that begin at 0: c lives longest and is placed lowest, and a and b go
  // above it.
  EXPECT_THAT(packing.offsets, ElementsAre(32, 32, 0));
}

// A buffer is still alive at its last position.
TEST(Packer, EndIsInclusive) {
  // Both are alive at position 1.
  Packing packing = pack({interval(8, 0, 1), interval(8, 1, 2)});
  EXPECT_EQ(packing.peak, 16);
}

// Nested live ranges stack perfectly.
TEST(Packer, NestedIntervalsReachTheLowerBound) {
  // Activations are freed in the reverse order of their creation.
  std::vector<Interval> intervals;
  for (int i = 0; i < 100; ++i)
    intervals.push_back(interval(100 + 7 * i, i, 300 - i));
  Packing packing = pack(intervals);
  EXPECT_EQ(verify(intervals, packing.offsets), "");
  EXPECT_EQ(packing.peak, packing.lowerBound);
}

// The packer knows the future, which an allocator does not.
TEST(Packer, FindsWhatAnAllocatorCannot) {
  // Placed in program order, a (4 bytes) is at 0 and b (4) at 4. When only b is
  // left, c (6) fits neither below nor above it within 10 bytes, and the arena
  // grows to 14. The optimum knows that c comes: c at 0, b above it, 10 bytes
  // in all.
  std::vector<Interval> intervals = {interval(4, 0, 1), interval(4, 1, 3),
                                     interval(6, 2, 5), interval(4, 4, 5)};
  Packing packing = pack(intervals);
  EXPECT_EQ(packing.peak, 10);
  EXPECT_EQ(verify(intervals, packing.offsets), "");
}

// Options that search for the optimum.
PackerOptions exactly() {
  PackerOptions options;
  options.exact = true;
  return options;
}

// Returns the arena's bytes if buffers are placed in the order of `key`, each
// as low as it fits.
template <typename Key>
int64_t firstFit(std::vector<Interval> intervals, Key key) {
  std::stable_sort(
      intervals.begin(), intervals.end(),
      [&](const Interval &a, const Interval &b) { return key(a) < key(b); });
  std::vector<Interval> placed;
  int64_t peak = 0;
  for (Interval &next : intervals) {
    std::vector<int64_t> bottoms = {0};
    for (const Interval &other : placed)
      bottoms.push_back(*other.fixedOffset + other.bytes);
    std::sort(bottoms.begin(), bottoms.end());
    for (int64_t bottom : bottoms) {
      next.fixedOffset = bottom;
      placed.push_back(next);
      if (pack(placed).error.empty())
        break;
      placed.pop_back();
    }
    peak = std::max(peak, *next.fixedOffset + next.bytes);
  }
  return peak;
}

// Exact search finds a packing that first fit misses in every common order.
TEST(Packer, FindsWhatNoFirstFitDoes) {
  // At position 4, d (2 bytes), c (1) and a (3) fill six bytes. Only the order
  // c, d, a from the bottom leaves room for b (3) above c earlier, and for f
  // (1) above b.
  std::vector<Interval> intervals = {interval(3, 4, 4), interval(3, 1, 2),
                                     interval(1, 2, 5), interval(2, 3, 5),
                                     interval(1, 5, 5), interval(1, 1, 3)};
  auto length = [](const Interval &i) { return i.begin - i.end; };
  EXPECT_GT(firstFit(intervals, [](auto &i) { return -i.bytes; }), 6);
  EXPECT_GT(firstFit(intervals, length), 6);
  EXPECT_GT(firstFit(intervals, [](auto &i) { return i.begin; }), 6);
  EXPECT_GT(firstFit(intervals, [](auto &i) { return -i.end; }), 6);
  EXPECT_GT(
      firstFit(intervals, [&](auto &i) { return (length(i) - 1) * i.bytes; }),
      6);
  Packing packing = pack(intervals, exactly());
  EXPECT_EQ(packing.peak, 6);
  EXPECT_EQ(verify(intervals, packing.offsets), "");
}

// The most bytes alive at once is only a lower bound; here it cannot be
// reached.
TEST(Packer, KnowsThatTheLowerBoundIsOutOfReach) {
  // In six bytes, d and e (3 bytes each) take half each at position 0, and so
  // do b and c (3 each) at 6. At 2, a (2) and h (1) share the half that d
  // leaves; at 4, a and g (1) share the half that c leaves. Then h and g would
  // be the same byte, but both are alive at 3.
  std::vector<Interval> intervals = {interval(2, 2, 4), interval(3, 6, 6),
                                     interval(3, 4, 6), interval(3, 0, 2),
                                     interval(3, 0, 0), interval(1, 3, 3),
                                     interval(1, 3, 4), interval(1, 2, 3)};
  EXPECT_TRUE(packWithin(intervals, 6, {}).impossible);
  EXPECT_EQ(verify(intervals, packWithin(intervals, 7, {}).offsets), "");
  Packing packing = pack(intervals, exactly());
  EXPECT_EQ(packing.lowerBound, 6);
  EXPECT_EQ(packing.peak, 7);
}

// The pattern of sharded training: two alternating buffers for gathered units,
// beside activations that live long.
TEST(Packer, AlternatesLargeBuffersOfOverlappingLives) {
  // Each gathered unit is alive together with the next, so two places suffice
  // for all, but only if the saved activations (1 to 3) leave both free to the
  // end.
  std::vector<Interval> intervals;
  for (int unit = 0; unit < 8; ++unit) {
    intervals.push_back(interval(1000 + unit % 3, 4 * unit, 4 * unit + 5));
    intervals.push_back(interval(1 + unit % 3, 4 * unit + 2, 60 - unit));
  }
  Packing packing = pack(intervals, exactly());
  EXPECT_LE(packing.peak, 1.01 * double(packing.lowerBound));
}

// Alignment costs as little as possible.
TEST(Packer, AlignsOffsets) {
  Interval odd = interval(10, 0, 2), wide = interval(128, 0, 2);
  odd.alignment = 4;
  wide.alignment = 128;
  Packing packing = pack({odd, wide});
  // The wide one at 0 and the odd one directly above take 138 bytes; the
  // reverse would take 256.
  EXPECT_THAT(packing.offsets, ElementsAre(128, 0));
  EXPECT_EQ(packing.peak, 138);
}

// Fixed offsets come from edited dumps.
TEST(Packer, NeverMovesAFixedOffset) {
  // The fixed one leaves [0, 16) free, where the 16-byte one fits exactly. The
  // larger one must go above it.
  Interval fixed = interval(8, 0, 9);
  fixed.fixedOffset = 16;
  std::vector<Interval> intervals = {fixed, interval(16, 1, 2),
                                     interval(32, 1, 2)};
  Packing packing = pack(intervals);
  EXPECT_THAT(packing.offsets, ElementsAre(16, 0, 24));
  EXPECT_EQ(packing.peak, 56);
}

// Both buffers are named.
TEST(Packer, RefusesFixedOffsetsThatCollide) {
  Interval a = interval(8, 0, 5, "saved.x"), b = interval(8, 3, 7, "saved.y");
  a.fixedOffset = 0;
  b.fixedOffset = 4;
  Packing packing = pack({a, b});
  EXPECT_THAT(packing.error, HasSubstr("'saved.x'"));
  EXPECT_THAT(packing.error, HasSubstr("'saved.y'"));
  EXPECT_TRUE(packing.offsets.empty());
}

TEST(Packer, RefusesIllFormedIntervals) {
  EXPECT_THAT(pack({interval(8, 5, 3, "x")}).error, HasSubstr("malformed"));
  EXPECT_THAT(pack({interval(-8, 3, 5, "x")}).error, HasSubstr("malformed"));
}

// No intervals, or none with bytes.
TEST(Packer, NothingToPack) {
  EXPECT_EQ(pack({}).peak, 0);
  Packing packing = pack({interval(0, 0, 5), interval(0, 0, 5)});
  EXPECT_EQ(packing.peak, 0);
  EXPECT_EQ(packing.error, "");
}

// The message has sizes, live ranges and offsets of both.
TEST(PackerVerify, NamesTheTwoThatOverlap) {
  std::vector<Interval> intervals = {
      interval(8, 0, 5, "a"), interval(8, 0, 5, "b"), interval(8, 5, 6, "c")};
  EXPECT_EQ(verify(intervals, {0, 8, 16}), "");
  EXPECT_EQ(verify(intervals, {0, 8, 12}),
            "'b' (8 bytes, positions 0 to 5) at offset 8 overlaps 'c' (8 bytes,"
            " positions 5 to 6) at offset 12");
}

// The check of plans, whoever wrote them, looks at what the packer promises.
TEST(PackerVerify, ChecksAlignmentAndFixedOffsets) {
  Interval a = interval(8, 0, 5, "a");
  a.alignment = 64;
  EXPECT_THAT(verify({a}, {32}), HasSubstr("expected a multiple of 64"));
  a.fixedOffset = 64;
  EXPECT_THAT(verify({a}, {128}), HasSubstr("fixed offset 64"));
  EXPECT_THAT(verify({a}, {}), HasSubstr("0 offsets given for 1 intervals"));
}

// Random live ranges: mostly short, and some that span a large part of the
// program, like temporaries and saved activations.
std::vector<Interval> randomIntervals(std::mt19937 &random, int count) {
  auto below = [&](int n) { return static_cast<int>(random() % n); };
  std::vector<Interval> intervals;
  for (int i = 0; i < count; ++i) {
    int begin = below(count);
    int length = below(4) ? below(8) : below(count);
    Interval next = interval(1 + below(1 << (4 + below(12))), begin,
                             std::min(begin + length, count - 1));
    next.alignment = 1 << below(8);
    intervals.push_back(next);
  }
  return intervals;
}

// Random intervals, first free and then with half of the offsets fixed.
TEST(PackerProperties, NoOverlapAndNotBelowTheBound) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<Interval> intervals = randomIntervals(random, 1 + seed);
    PackerOptions options;
    options.work = 1'000'000;
    Packing packing = pack(intervals, options);
    ASSERT_EQ(verify(intervals, packing.offsets), "") << "seed " << seed;
    ASSERT_GE(packing.peak, packing.lowerBound) << "seed " << seed;
    // A packing is itself a set of legal fixed offsets.
    for (size_t i = 0; i < intervals.size(); i += 2)
      intervals[i].fixedOffset = packing.offsets[i];
    Packing again = pack(intervals, options);
    ASSERT_EQ(again.error, "") << "seed " << seed;
    ASSERT_EQ(verify(intervals, again.offsets), "") << "seed " << seed;
  }
}

TEST(PackerProperties, SmallCasesAreOptimal) {
  // If the search ends within its budget, the order of the input does not
  // affect the peak.
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    std::vector<Interval> intervals = randomIntervals(random, 7);
    PackerOptions exact = exactly();
    exact.gap = 0;
    Packing packing = pack(intervals, exact);
    std::shuffle(intervals.begin(), intervals.end(), random);
    EXPECT_EQ(pack(intervals, exact).peak, packing.peak) << "seed " << seed;
  }
}

TEST(PackerProperties, TenThousandIntervalsInUnderASecond) {
  std::mt19937 random(1);
  std::vector<Interval> intervals = randomIntervals(random, 10'000);
  Stopwatch stopwatch;
  Packing packing = pack(intervals);
  double seconds = stopwatch.seconds();
  EXPECT_EQ(verify(intervals, packing.offsets), "");
  EXPECT_LT(seconds, 1.0 * stopwatch.slack);
  RecordProperty("seconds", std::to_string(seconds));
  RecordProperty(
      "gap", std::to_string(double(packing.peak) / double(packing.lowerBound)));
}

// The tree's answers are those of an array, also for ranges that are empty or
// extend past the last position.
TEST(LiveProfile, AnswersAsAnArray) {
  std::mt19937 random(1);
  auto upTo = [&](int most) { return int(random() % (most + 1)); };
  for (int positions : {1, 2, 7, 16, 33}) {
    LiveProfile profile(positions);
    std::vector<int64_t> values(positions, 0);
    for (int step = 0; step < 500; ++step) {
      int begin = upTo(positions), end = begin + upTo(positions + 1 - begin);
      int64_t added = upTo(40) - 15, bytes = upTo(60), budget = upTo(150);
      profile.add(begin, end, added);
      for (int p = begin; p < std::min(end, positions); ++p)
        values[p] += added;

      begin = upTo(positions);
      end = begin + upTo(positions + 1 - begin);
      int last = std::min(end, positions), limit = begin;
      while (limit < last && values[limit] + bytes <= budget)
        ++limit;
      EXPECT_EQ(profile.furthest(begin, end, bytes, budget),
                limit < last ? limit : end);
      int above = last - 1;
      while (above >= begin && values[above] <= budget)
        --above;
      EXPECT_EQ(profile.lastAbove(begin, end, budget),
                std::max(above, begin - 1));
      EXPECT_EQ(profile.max(begin, end),
                begin < last ? *std::max_element(values.begin() + begin,
                                                 values.begin() + last)
                             : 0);
    }
  }
}

} // namespace
