// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Many ranks: equal ones are the timeline itself, bit for bit, and unequal ones
// are as slow as arithmetic by hand says.
#include "compiler/schedule/cluster.h"
#include "tests/compiler/schedule/schedule_fixtures.h"

#include <gtest/gtest.h>

namespace fsdpc::schedule {
namespace {

Schedule solved(const Problem &problem) {
  Solved found = solveNone(problem);
  return std::get<Solution>(std::move(found)).schedule;
}

TEST(Cluster, EqualRanksAreTheTimeline) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    Problem problem = randomProblem(seed);
    problem.contention = {seed % 3 * 0.1, seed % 4 * 0.2};
    Solved found = solveAuto(problem);
    auto *solution = std::get_if<Solution>(&found);
    if (!solution)
      continue;
    Timeline alone = simulate(problem, solution->schedule);
    for (int ranks : {1, 2, 64, 16384}) {
      ClusterTimeline all =
          simulateCluster(problem, solution->schedule, ranks, {});
      EXPECT_EQ(all.stepUs, alone.stepUs);
      EXPECT_EQ(all.exposedUs, alone.exposedUs);
    }
    // The same walk with a rank each: a jitter too small to change a bit.
    Unevenness tiny;
    tiny.jitter = 1e-30;
    ClusterTimeline each =
        simulateCluster(problem, solution->schedule, 8, tiny);
    EXPECT_EQ(each.stepUs, alone.stepUs);
    EXPECT_NEAR(each.meanExposedUs, alone.totalExposedUs, 1e-9);
  }
}

// Two units of 2 × 10 µs. Rank 0 or 1 takes twice as long: each gather of 15 µs
// begins when the slow rank starts it.
//
//   slow  gather a 0–15, ops 15–55, gather b 55–70, ops 70–110
//   fast                 ops 15–35, waits 35–70,    ops 70–90
TEST(Cluster, TheSlowestRankDelaysAll) {
  Problem problem = twoUnits();
  problem.collectives.pop_back();
  Unevenness one;
  one.stragglers = 1;
  one.straggling = 1;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    one.seed = seed;
    ClusterTimeline both = simulateCluster(problem, solved(problem), 2, one);
    EXPECT_DOUBLE_EQ(both.stepUs, 110);
    EXPECT_DOUBLE_EQ(both.exposedUs[0], 15);
    EXPECT_DOUBLE_EQ(both.exposedUs[1], (15 + 35) / 2.0);
    EXPECT_DOUBLE_EQ(both.mostExposedUs, 15 + 35);
  }
}

// A fetch from a rank's own disk waits for no other rank. A gather behind it on
// the channel waits for the fetches of all ranks. Both start after one op.
//
//   slow  op 0–20, fetch 20–35, op 20–40,             gather 35–50
//   fast  op 0–10, fetch 10–25, op 10–20, waits 20–25, gather 35–50
TEST(Cluster, LocalCopiesWaitForNobody) {
  Problem problem = twoUnits();
  problem.collectives.pop_back();
  problem.collectives[0].isLocal = true;
  Schedule schedule;
  for (ActionKind kind : {ActionKind::Start, ActionKind::Wait})
    for (int id : {0, 1})
      schedule.actions.push_back({kind == ActionKind::Start ? 1 : 2, kind, id});
  Unevenness one;
  one.stragglers = 1;
  one.straggling = 1;
  ClusterTimeline both = simulateCluster(problem, schedule, 2, one);
  EXPECT_DOUBLE_EQ(both.exposedUs[0], (0 + 5) / 2.0);
  EXPECT_DOUBLE_EQ(both.exposedUs[1], (10 + 25) / 2.0);
}

TEST(Cluster, SeedsRepeatAndDiffer) {
  Problem problem = training(4, 6, 10, 20);
  Schedule schedule = solved(problem);
  Unevenness uneven;
  uneven.jitter = 0.1;
  double alone = simulate(problem, schedule).stepUs;
  double first = simulateCluster(problem, schedule, 64, uneven).stepUs;
  EXPECT_EQ(first, simulateCluster(problem, schedule, 64, uneven).stepUs);
  // The maximum of 64 ranks at each collective is above the mean.
  EXPECT_GT(first, alone);
  uneven.seed = 1;
  EXPECT_NE(first, simulateCluster(problem, schedule, 64, uneven).stepUs);
  // More ranks wait for a slower slowest one.
  EXPECT_GT(simulateCluster(problem, schedule, 4096, uneven).stepUs,
            simulateCluster(problem, schedule, 4, uneven).stepUs);
}

} // namespace
} // namespace fsdpc::schedule
