// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The solvers: where each of them places the actions of a small problem, then
// properties over random problems, and the speed on a large one. Times and
// bytes of the small cases can be followed by hand (schedule_fixtures.h).

#include "schedule_fixtures.h"

#include <gmock/gmock.h>

using namespace fsdpc::schedule;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

constexpr Prefetch allModes[] = {Prefetch::None, Prefetch::Pre, Prefetch::Post,
                                 Prefetch::Auto};

Solved solveAs(Problem problem, Prefetch mode) {
  problem.options.prefetch = mode;
  return solve(problem);
}

const Solution *solution(const Solved &solved) {
  return std::get_if<Solution>(&solved);
}

// Formats a schedule: per action its position, kind and collective.
std::string show(const Problem &problem, const Schedule &schedule) {
  std::string text;
  for (const Action &action : schedule.actions) {
    const char *kind = action.kind == ActionKind::Start  ? "start "
                       : action.kind == ActionKind::Wait ? "wait "
                                                         : "free ";
    text += std::to_string(action.position) + ": " + kind +
            problem.collectives[action.collective].label + "\n";
  }
  return text;
}

// Without prefetching, every collective is exposed and memory is least.
TEST(None, StartsAndWaitsInOnePlace) {
  Problem problem = twoUnits();
  Solved solved = solveAs(problem, Prefetch::None);
  ASSERT_TRUE(solution(solved));
  EXPECT_EQ(show(problem, solution(solved)->schedule), "0: start gather a\n"
                                                       "0: wait gather a\n"
                                                       "2: free gather a\n"
                                                       "2: start reduce a\n"
                                                       "2: wait reduce a\n"
                                                       "2: start gather b\n"
                                                       "2: wait gather b\n"
                                                       "4: free gather b\n");
  EXPECT_EQ(solution(solved)->timeline.totalExposedUs, 45);
  EXPECT_EQ(solution(solved)->peakBytes, 140); // a and its gradient
}

// Pre: the next unit is gathered before this one computes, as FSDP's
// BACKWARD_PRE.
TEST(Pre, TheNextGatherStartsBeforeTheCompute) {
  Problem problem = twoUnits();
  Solved solved = solveAs(problem, Prefetch::Pre);
  ASSERT_TRUE(solution(solved));
  // The reduction ends at 50 and op 3 starts at 45. Its wait goes to the end,
  // where it exposes nothing.
  EXPECT_EQ(show(problem, solution(solved)->schedule), "0: start gather a\n"
                                                       "0: start gather b\n"
                                                       "0: wait gather a\n"
                                                       "2: free gather a\n"
                                                       "2: start reduce a\n"
                                                       "2: wait gather b\n"
                                                       "4: wait reduce a\n"
                                                       "4: free gather b\n");
  EXPECT_EQ(solution(solved)->timeline.totalExposedUs, 15);
  EXPECT_EQ(solution(solved)->peakBytes, 240);
}

// Post: the next unit is gathered after this one computes, as FSDP's
// BACKWARD_POST.
TEST(Post, TheNextGatherStartsAfterTheComputeBeforeFreeAndReduction) {
  Problem problem = twoUnits();
  Solved solved = solveAs(problem, Prefetch::Post);
  ASSERT_TRUE(solution(solved));
  EXPECT_EQ(show(problem, solution(solved)->schedule), "0: start gather a\n"
                                                       "0: wait gather a\n"
                                                       "2: free gather a\n"
                                                       "2: start reduce a\n"
                                                       "2: start gather b\n"
                                                       "2: wait gather b\n"
                                                       "4: wait reduce a\n"
                                                       "4: free gather b\n");
}

TEST(Post, StandsBetweenTheUnitsWhereOpsOfTheRootAre) {
  // Like twoUnits, with an op of the root after each unit: b starts at 2,
  // before a's free and reduction, and overlaps the root's op.
  Problem problem = twoUnits();
  problem.ops.assign(6, Op{10});
  problem.segments = {{0, 2, "a"}, {3, 5, "b"}};
  problem.collectives[1].latest = 3;
  problem.collectives[1].lastUse = 4;
  Solved solved = solveAs(problem, Prefetch::Post);
  ASSERT_TRUE(solution(solved));
  EXPECT_THAT(show(problem, solution(solved)->schedule),
              HasSubstr("2: start gather b\n"
                        "2: free gather a\n"
                        "2: start reduce a\n"));
  EXPECT_EQ(solution(solved)->timeline.exposedUs[1], 5);
  // With one live gather allowed, it goes between the free and the reduction.
  problem.options.limitAllGathers = 1;
  Solved limited = solveAs(problem, Prefetch::Post);
  ASSERT_TRUE(solution(limited));
  EXPECT_THAT(show(problem, solution(limited)->schedule),
              HasSubstr("2: free gather a\n"
                        "2: start gather b\n"
                        "2: start reduce a\n"));
}

// Auto exposes only the first gather, which nothing can hide.
TEST(Auto, HidesWhatCanBeHidden) {
  Problem problem = twoUnits();
  Solved solved = solveAs(problem, Prefetch::Auto);
  ASSERT_TRUE(solution(solved));
  EXPECT_THAT(solution(solved)->timeline.exposedUs, ElementsAre(15, 0, 0));
}

// Overlap costs memory: the lower the cap, the more is exposed.
TEST(Auto, TheCapDecidesHowMuchOverlaps) {
  // 240 bytes hide everything except the first gather. With 200, b cannot be
  // alive beside a and a's gradient, and 15 µs of b are exposed at op 2.
  // Nothing fits in less than a and its gradient, 140.
  struct Case {
    int64_t cap;
    double exposed;
  };
  for (Case c : {Case{240, 15}, Case{200, 30}, Case{140, 30}}) {
    Problem problem = twoUnits();
    problem.options.memoryLimit = c.cap;
    Solved solved = solveAs(problem, Prefetch::Auto);
    ASSERT_TRUE(solution(solved)) << c.cap;
    EXPECT_EQ(solution(solved)->timeline.totalExposedUs, c.exposed) << c.cap;
    EXPECT_LE(solution(solved)->peakBytes, c.cap);
  }
}

// Among schedules that expose equally little, the one with less memory is
// taken.
TEST(Auto, MemoryBreaksTies) {
  // One gather that any of ten ops hides. Starting two ops ahead exposes as
  // little as starting at once, but only near the end is the large activation
  // gone.
  Problem problem;
  problem.ops.assign(10, Op{10});
  problem.collectives = {gather("w", 0, 9, 9, 15, 100)};
  problem.tensors = {{1000, 1, 0, 5, {}, "x"}};
  Solved solved = solveAs(problem, Prefetch::Auto);
  ASSERT_TRUE(solution(solved));
  EXPECT_EQ(solution(solved)->timeline.totalExposedUs, 0);
  EXPECT_EQ(solution(solved)->peakBytes, 1000);
  // As early as the peak permits, because durations are estimates.
  EXPECT_EQ(solution(solved)->schedule.actions[0].position, 6);
}

TEST(Solvers, TheLimitOfLiveGathersHolds) {
  Problem problem = training(6, 4, 10, 30);
  for (int limit : {1, 2, 3}) {
    problem.options.limitAllGathers = limit;
    for (Prefetch mode : allModes) {
      Solved solved = solveAs(problem, mode);
      ASSERT_TRUE(solution(solved));
      EXPECT_TRUE(verify(problem, solution(solved)->schedule).empty());
    }
  }
}

// Two gathers that are read at the same time cannot be kept to one.
TEST(Solvers, ALimitBelowWhatIsReadAtOnceIsInfeasible) {
  Problem problem = twoUnits();
  problem.collectives[0].lastUse = 3;
  problem.options.limitAllGathers = 1;
  for (Prefetch mode : allModes) {
    Solved solved = solveAs(problem, mode);
    ASSERT_FALSE(solution(solved));
    EXPECT_EQ(
        std::get<Infeasible>(solved).message,
        "the start of 'gather b' at 2 makes 2 gathers live, but the limit is "
        "1");
  }
}

// The message says what would have to shrink.
TEST(Solvers, ACapThatCannotBeMetNamesTheContributors) {
  Problem problem = twoUnits();
  problem.baseBytes = 1000;
  problem.options.memoryLimit = 1139;
  problem.tensors = {{30, 1, 0, 3, {}, "activations a"}};
  for (Prefetch mode : {Prefetch::None, Prefetch::Auto}) {
    Solved solved = solveAs(problem, mode);
    ASSERT_FALSE(solution(solved));
    const Infeasible &failed = std::get<Infeasible>(solved);
    EXPECT_EQ(failed.peakBytes, 1170);
    EXPECT_EQ(failed.capBytes, 1139);
    EXPECT_EQ(failed.message,
              "planned peak of 1170 bytes exceeds the memory limit of 1139 "
              "bytes (1000"
              " bytes outside the arena); largest in the arena: 'gather a' 100"
              " 'reduce a' 40 'activations a' 30");
  }
}

// The least peak is a limit that is kept, also where only an exact packing
// keeps it; and never more than what a solver takes that packs quickly.
TEST(Solvers, TheLeastPeakIsKept) {
  int hard = 0; // limits that only an exact packing keeps
  for (unsigned seed = 0; seed < 60; ++seed) {
    Problem problem = randomProblem(seed);
    problem.options = {};
    int64_t least = leastPeak(problem);
    EXPECT_LE(least, solution(solveAs(problem, Prefetch::None))->peakBytes);
    problem.options.memoryLimit = least;
    for (Prefetch mode : {Prefetch::None, Prefetch::Auto}) {
      problem.options.prefetch = mode;
      Solved solved = solveHard(problem);
      ASSERT_TRUE(solution(solved)) << "seed " << seed;
      EXPECT_LE(solution(solved)->peakBytes, least);
      EXPECT_TRUE(verify(problem, solution(solved)->schedule).empty());
      Solved quick = solve(problem);
      hard += !solution(quick);
    }
  }
  EXPECT_GT(hard, 0);
}

// A wait may be late if its buffer keeps nothing else from being placed.
TEST(Solvers, LateWaitsCostNoMemory) {
  // The reduction ends long before the end, and nothing else needs its bytes:
  // the wait goes to the end.
  Problem problem = twoUnits();
  problem.ops.resize(20, Op{10});
  problem.collectives[2].latest = 20;
  Solved solved = solveAs(problem, Prefetch::Auto);
  ASSERT_TRUE(solution(solved));
  EXPECT_EQ(solution(solved)->schedule.actions.back(),
            (Action{20, ActionKind::Wait, 2}));
}

// Nearly all of a training step's communication is hidden.
TEST(Auto, HidesATrainingStepBehindItsCompute) {
  // Eight units have 16 gathers of 30 µs and 8 reductions of 45 µs: 840 µs on
  // one channel, beside 640 µs of ops. At least the difference is exposed.
  Problem problem = training(8, 4, 10, 30);
  auto exposed = [&](Prefetch mode) {
    return solution(solveAs(problem, mode))->timeline.totalExposedUs;
  };
  EXPECT_EQ(exposed(Prefetch::None), 840);
  EXPECT_GE(exposed(Prefetch::Auto), 200);
  EXPECT_LE(exposed(Prefetch::Auto), 300);
}

// Under the tightest cap, collectives away from the peak still overlap.
TEST(Auto, OverlapsAwayFromThePeakUnderTheTightestCap) {
  // In as many bytes as synchronous collectives need, all overlap that the rest
  // of the step has room for is still possible.
  Problem problem = training(50, 10, 10, 75);
  Solved none = solveAs(problem, Prefetch::None);
  problem.options.memoryLimit = solution(none)->peakBytes;
  EXPECT_FALSE(solution(solveAs(problem, Prefetch::Pre)));
  Solved automatic = solveAs(problem, Prefetch::Auto);
  ASSERT_TRUE(solution(automatic));
  EXPECT_LT(solution(automatic)->timeline.totalExposedUs,
            solution(none)->timeline.totalExposedUs / 2);
}

// Over a ladder of caps, a step is never longer than under a smaller cap by
// more than what a packing gains by chance.
TEST(Auto, MoreMemoryIsNotSlower) {
  constexpr int caps = 30;
  constexpr double chance = 0.005;
  for (double gatherUs : {75, 150}) {
    Problem problem = training(24, 6, 10, gatherUs);
    int64_t least = solution(solveAs(problem, Prefetch::None))->peakBytes;
    int64_t most = solution(solveAs(problem, Prefetch::Pre))->peakBytes;
    double best = std::numeric_limits<double>::infinity(), first = 0;
    for (int i = 0; i <= caps; ++i) {
      problem.options.memoryLimit = least + (most - least) * i * 3 / (2 * caps);
      Solved solved = solveAs(problem, Prefetch::Auto);
      ASSERT_TRUE(solution(solved)) << gatherUs << ", cap " << i;
      double us = solution(solved)->timeline.stepUs;
      EXPECT_LE(us, (1 + chance) * best) << gatherUs << ", cap " << i;
      best = std::min(best, us);
      first = i == 0 ? us : first;
    }
    EXPECT_LT(best, first) << "the caps make no difference";
  }
}

class RandomProblems : public testing::TestWithParam<int> {};

// Solves in every mode under one cap. Checks verify, the cap, determinism, and
// that auto exposes no more than the other modes.
void checkProperties(const Problem &problem, unsigned seed) {
  double least = std::numeric_limits<double>::infinity();
  bool feasible = false;
  for (Prefetch mode : allModes) {
    Solved solved = solveAs(problem, mode), again = solveAs(problem, mode);
    const Solution *found = solution(solved);
    ASSERT_EQ(found != nullptr, solution(again) != nullptr);
    // Auto is feasible whenever another mode is, and exposes no more.
    if (mode == Prefetch::Auto && feasible) {
      ASSERT_TRUE(found) << "seed " << seed;
      ASSERT_LE(found->timeline.totalExposedUs, least + 1e-3)
          << "seed " << seed;
    }
    if (!found) {
      const Infeasible &failed = std::get<Infeasible>(solved);
      ASSERT_TRUE(problem.options.memoryLimit ||
                  problem.options.limitAllGathers)
          << failed.message;
      ASSERT_GE(failed.peakBytes, failed.capBytes);
      continue;
    }
    feasible = true;
    least = std::min(least, found->timeline.totalExposedUs);
    ASSERT_EQ(found->schedule.actions, solution(again)->schedule.actions);
    ASSERT_EQ(found->packing.offsets, solution(again)->packing.offsets);
    std::vector<Violation> violations = verify(problem, found->schedule);
    ASSERT_TRUE(violations.empty())
        << "seed " << seed << ": " << violations[0].rule << ": "
        << violations[0].message;
    ASSERT_EQ(
        verify(liveIntervals(problem, found->schedule), found->packing.offsets),
        "");
    ASSERT_EQ(found->peakBytes, problem.baseBytes + found->packing.peak);
    ASSERT_LE(found->peakBytes,
              problem.options.memoryLimit.value_or(found->peakBytes));
  }
}

TEST_P(RandomProblems, HoldTheProperties) {
  for (unsigned i = 0; i < 20; ++i) {
    unsigned seed = unsigned(GetParam()) * 20 + i;
    Problem problem = randomProblem(seed);
    ASSERT_EQ(problem.check(), "") << "seed " << seed;
    checkProperties(problem, seed);
    Solved free = solveAs(problem, Prefetch::Auto);
    Solved none = solveAs(problem, Prefetch::None);
    // Caps between the least and the most that it needs, and below.
    int64_t low = solution(none)->peakBytes, high = solution(free)->peakBytes;
    for (int64_t cap : {low - 1, low, (low + high) / 2, high}) {
      problem.options.memoryLimit = std::max<int64_t>(cap, 0);
      checkProperties(problem, seed);
    }
    problem.options.limitAllGathers = 1 + int(seed % 3);
    checkProperties(problem, seed);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomProblems, testing::Range(0, 10));

// Solving must not dominate the time of a compile.
TEST(Solvers, AModelOf200UnitsTakesAFewSeconds) {
  // 200 units, 10⁴ ops, 5000 saved activations, and room for one, two or three
  // more gathers than the minimum.
  Problem problem = training(200, 25, 10, 150);
  int64_t least = solution(solveAs(problem, Prefetch::None))->peakBytes;
  for (int64_t room : {1'500'000, 3'000'000, 5'000'000}) {
    problem.options.memoryLimit = least + room;
    Solved pre = solveAs(problem, Prefetch::Pre);
    Stopwatch stopwatch;
    Solved automatic = solveAs(problem, Prefetch::Auto);
    double seconds = stopwatch.seconds();
    ASSERT_TRUE(solution(pre) && solution(automatic));
    EXPECT_LE(solution(automatic)->timeline.totalExposedUs,
              solution(pre)->timeline.totalExposedUs);
    EXPECT_LT(seconds, 4 * stopwatch.slack);
    RecordProperty("seconds" + std::to_string(room), std::to_string(seconds));
  }
}

} // namespace
