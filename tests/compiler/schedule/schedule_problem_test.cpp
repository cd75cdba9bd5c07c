// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The scheduling problem: what check() refuses, the timeline and live ranges of
// a schedule worked out by hand, and for every rule of verify() a schedule that
// breaks it.

#include "schedule_fixtures.h"

#include <cmath>
#include <functional>
#include <gmock/gmock.h>

using namespace fsdpc::schedule;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

constexpr ActionKind Start = ActionKind::Start, Wait = ActionKind::Wait,
                     Free = ActionKind::Free;

// A legal schedule of twoUnits: b is gathered during a, and a's gradient is
// reduced during b.
Schedule legal() {
  return {{{0, Start, 0},
           {0, Start, 1},
           {0, Wait, 0},
           {2, Free, 0},
           {2, Start, 2},
           {2, Wait, 1},
           {4, Wait, 2},
           {4, Free, 1}}};
}

TEST(ProblemCheck, AcceptsAWellFormedOne) {
  EXPECT_EQ(twoUnits().check(), "");
  EXPECT_EQ(training(3, 4, 1, 1).check(), "");
  EXPECT_EQ(Problem().check(), "");
}

// Every way in which a problem can be malformed has its message, and the
// solvers refuse it.
TEST(ProblemCheck, SaysWhatIsWrong) {
  struct Case {
    std::function<void(Problem &)> breakIt;
    const char *message;
  };
  const Case cases[] = {
      {[](Problem &p) { p.ops[1].durationUs = -1; }, "op 1 has a negative"},
      {[](Problem &p) { p.collectives[0].durationUs = std::nan(""); },
       "'gather a' has a negative"},
      {[](Problem &p) { p.collectives[0].buffers[0].bytes = -4; },
       "has -4 bytes"},
      {[](Problem &p) { p.collectives[0].buffers[0].alignment = 0; },
       "alignment 0"},
      {[](Problem &p) { p.collectives[1].earliest = 3; }, "window [3, 2]"},
      {[](Problem &p) { p.collectives[2].latest = 5; }, "window [2, 5]"},
      {[](Problem &p) { p.collectives[1].lastUse = 1; }, "last used at 1"},
      {[](Problem &p) { p.collectives[1].lastUse = 4; }, "last used at 4"},
      {[](Problem &p) { p.collectives[2].lastUse = 3; }, "have a last use"},
      {[](Problem &p) { p.collectives[2].buffers[0].definition = 2; },
       "first written by op 2"},
      {[](Problem &p) { p.tensors.push_back({8, 1, 2, 4, {}, "t"}); },
       "'t' is live from 2 to 4, outside of ops 0 to 3"},
      {[](Problem &p) { p.tensors.push_back({8, 1, 2, 1, {}, "t"}); },
       "'t' is live from 2 to 1"},
      {[](Problem &p) { p.segments[1].begin = 1; }, "segment 'b' [1, 4)"},
      {[](Problem &p) { p.segments[1].end = 5; }, "segment 'b' [2, 5)"},
      {[](Problem &p) { p.baseBytes = -1; }, "base bytes"},
      {[](Problem &p) { p.contention.ofCompute = -1; }, "slowdown of compute"},
      {[](Problem &p) { p.contention.ofCommunication = NAN; },
       "slowdown of communication"},
      {[](Problem &p) { p.options.limitAllGathers = -1; }, "live gathers"},
  };
  for (const Case &c : cases) {
    Problem problem = twoUnits();
    c.breakIt(problem);
    EXPECT_THAT(problem.check(), HasSubstr(c.message));
    EXPECT_TRUE(std::holds_alternative<Infeasible>(solve(problem)));
  }
}

// Collectives of one channel queue behind each other.
TEST(Timeline, OneChannelRunsInTheOrderOfStarts) {
  // Gather a runs from 0 to 15, and its wait stalls for 15. Gather b follows on
  // the same channel, from 15 to 30; op 2 is reached at 15 + 20 = 35, so
  // nothing is exposed. Reduce a runs from 35 to 50; the end is reached at 55.
  Timeline timeline = simulate(twoUnits(), legal());
  EXPECT_THAT(timeline.beginUs, ElementsAre(0, 15, 35));
  EXPECT_THAT(timeline.finishUs, ElementsAre(15, 30, 50));
  EXPECT_THAT(timeline.exposedUs, ElementsAre(15, 0, 0));
  EXPECT_THAT(timeline.reachUs, ElementsAre(0, 25, 35, 45, 55));
  EXPECT_EQ(timeline.stepUs, 55);
}

// On another channel, gather b starts at once.
TEST(Timeline, ChannelsAreIndependent) {
  Problem problem = twoUnits();
  problem.collectives[1].channel = 1;
  EXPECT_THAT(simulate(problem, legal()).beginUs, ElementsAre(0, 0, 35));
}

// An op takes longer while a channel is busy, and only then.
TEST(Timeline, CollectivesSlowOpsDown) {
  // By half: gather b is under way from 15 to 30, so op 0, which begins at 15,
  // takes until 30 with all of its 10 µs slowed to 15. Ops 1 and 2 run freely
  // until 40 and 50, but the reduction begins at 40: op 2 ends at 55, and op 3
  // ends at 65.
  Problem problem = twoUnits();
  problem.contention.ofCompute = 0.5;
  Timeline timeline = simulate(problem, legal());
  EXPECT_THAT(timeline.reachUs, ElementsAre(0, 30, 40, 55, 65));
  EXPECT_EQ(timeline.slowedUs, 10);
  EXPECT_EQ(timeline.totalExposedUs, 15);
  EXPECT_EQ(timeline.lostUs(), 25);
  EXPECT_EQ(timeline.stepUs, 65);
  // A part of an op: 30 µs of collective slow 20 µs of a 100 µs op.
  problem.ops[0].durationUs = 100;
  problem.collectives[1].durationUs = 30;
  EXPECT_EQ(simulate(problem, legal()).reachUs[1], 15 + 100 + 10);
}

// Collectives take longer while ops run, and only then.
TEST(Timeline, OpsSlowCollectivesDown) {
  // Twice as long, and ops by half. Gather a is waited for at once and takes
  // 15 µs. Gather b then has 15 µs to go, for which it takes 30 beside ops, in
  // which these do 20 µs of work: ops 0 and 1, until 45. The same is true of
  // the reduction, which starts there, and ops 2 and 3.
  Problem problem = twoUnits();
  problem.contention = {0.5, 1};
  Timeline timeline = simulate(problem, legal());
  EXPECT_THAT(timeline.reachUs, ElementsAre(0, 30, 45, 60, 75));
  EXPECT_THAT(timeline.beginUs, ElementsAre(0, 15, 45));
  EXPECT_THAT(timeline.finishUs, ElementsAre(15, 45, 75));
  EXPECT_EQ(timeline.totalExposedUs, 15);
  EXPECT_EQ(timeline.slowedUs, 20);
  EXPECT_EQ(timeline.stepUs, 75);
}

// Live ranges count positions in the merged order of ops and actions, since an
// action may free memory between two ops.
TEST(LiveIntervals, CountOpsAndActionsTogether) {
  // The merged order: starts of a and b and wait a at 0 to 2; ops 0 and 1 at 3
  // and 4; free a at 5; start of the reduction at 6; wait b at 7; ops 2 and 3
  // at 8 and 9; wait of the reduction at 10; free b at 11.
  Problem problem = twoUnits();
  problem.tensors.push_back({64, 1, 1, 2, {}, "x"});
  auto intervals = liveIntervals(problem, legal());
  auto life = [&](size_t i) {
    return std::pair(intervals[i].begin, intervals[i].end);
  };
  EXPECT_EQ(life(0), std::pair(4, 8));  // x: ops 1 to 2
  EXPECT_EQ(life(1), std::pair(0, 5));  // gather a: start to free
  EXPECT_EQ(life(2), std::pair(1, 11)); // gather b
  EXPECT_EQ(life(3), std::pair(4, 10)); // gradient: definition to wait
}

// A gather without a last use is never freed.
TEST(LiveIntervals, APersistentGatherLivesToTheEnd) {
  Problem problem = twoUnits();
  problem.collectives = {problem.collectives[0]};
  problem.collectives[0].lastUse = std::nullopt;
  auto intervals = liveIntervals(problem, {{{0, Start, 0}, {0, Wait, 0}}});
  EXPECT_EQ(intervals[0].begin, 0);
  EXPECT_EQ(intervals[0].end, 6); // after four ops and two actions
}

TEST(Verify, AcceptsALegalSchedule) {
  EXPECT_TRUE(verify(twoUnits(), legal()).empty());
}

// Returns the rule that the edited schedule breaks, and the message.
std::pair<std::string, std::string> firstViolation(const Problem &problem,
                                                   const Schedule &schedule) {
  std::vector<Violation> violations = verify(problem, schedule);
  if (violations.empty())
    return {};
  return {violations[0].rule, violations[0].message};
}

// A legal schedule with one edit each.
TEST(Verify, EachRuleHasAScheduleThatBreaksIt) {
  struct Case {
    const char *rule, *message;
    std::function<void(std::vector<Action> &)> breakIt;
  };
  const Case cases[] = {
      {"complete", "'gather a' is never started",
       [](auto &a) { a.erase(a.begin()); }},
      {"complete", "'gather a' is never waited for",
       [](auto &a) { a.erase(a.begin() + 2); }},
      {"complete", "'gather b' is never freed", [](auto &a) { a.pop_back(); }},
      {"complete", "'gather b' is waited for more than once",
       [](auto &a) { a.insert(a.end() - 1, Action{4, Wait, 1}); }},
      {"complete", "'reduce a' is freed, but has no buffer",
       [](auto &a) { a.push_back({4, Free, 2}); }},
      {"complete", "refers to collective 7",
       [](auto &a) { a.push_back({4, Start, 7}); }},
      {"order", "'gather b' is at 1, after an action at 2",
       [](auto &a) { a[5].position = 1; }},
      {"order", "'gather b' is at 5", [](auto &a) { a[7].position = 5; }},
      {"start-window",
       "'reduce a' starts at 0, before its source is ready at 2",
       [](auto &a) {
         a.erase(a.begin() + 4);
         a.insert(a.begin(), Action{0, Start, 2});
       }},
      {"wait-after-start", "'gather a' is waited for at 0, before its start",
       [](auto &a) { std::swap(a[0], a[2]); }},
      {"wait-before-use",
       "'gather b' is waited for at 3, after its first use at 2",
       [](auto &a) { a[5].position = 3; }},
      {"free-after-use", "'gather a' is freed at 0, but is used until op 1",
       [](auto &a) { a[3].position = 0; }},
  };
  for (const Case &c : cases) {
    Schedule schedule = legal();
    c.breakIt(schedule.actions);
    auto [rule, message] = firstViolation(twoUnits(), schedule);
    EXPECT_EQ(rule, c.rule);
    EXPECT_THAT(message, HasSubstr(c.message));
  }
}

// The limit on live gathers (FSDP's limit_all_gathers).
TEST(Verify, LiveGathers) {
  Problem problem = twoUnits();
  problem.options.limitAllGathers = 1;
  std::vector<Violation> violations = verify(problem, legal());
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].rule, "live-gathers");
  EXPECT_EQ(violations[0].message, "the start of 'gather b' at 0 makes 2 "
                                   "gathers live, but the limit is 1");
  EXPECT_THAT(violations[0].collectives, ElementsAre(0, 1));
}

TEST(Verify, MemoryCap) {
  // At op 1 both gathered buffers and the gradient are alive: 240 bytes, and 10
  // outside the arena.
  Problem problem = twoUnits();
  problem.baseBytes = 10;
  problem.options.memoryLimit = 250;
  EXPECT_TRUE(verify(problem, legal()).empty());
  problem.options.memoryLimit = 249;
  auto [rule, message] = firstViolation(problem, legal());
  EXPECT_EQ(rule, "memory-cap");
  EXPECT_EQ(message,
            "planned peak of 250 bytes exceeds the limit of 249 bytes; "
            "largest: 'gather a' 100 "
            "'gather b' 100 'reduce a' 40");
}

// Ranks compare this hash: communicators need the same order of starts, while
// waits and frees are each rank's own business.
TEST(HashStarts, DependsOnTheOrderOfStartsOnly) {
  Problem problem = twoUnits();
  Schedule later = legal();
  std::swap(later.actions[6], later.actions[7]); // a wait and a free
  EXPECT_EQ(hashStarts(problem, legal()), hashStarts(problem, later));
  Schedule swapped = legal();
  std::swap(swapped.actions[0], swapped.actions[1]);
  EXPECT_NE(hashStarts(problem, legal()), hashStarts(problem, swapped));
}

// Buffers with the same label are reported together, and only those alive at
// the peak.
TEST(Contributors, AddUpByLabel) {
  std::vector<Interval> intervals = {{10, 1, 0, 1, {}, "small"},
                                     {30, 1, 0, 1, {}, "acts"},
                                     {30, 1, 0, 1, {}, "acts"},
                                     {50, 1, 0, 1, {}, "head"},
                                     {90, 1, 2, 2, {}, "not at the peak"}};
  auto largest = largestContributors(intervals, 2);
  ASSERT_EQ(largest.size(), 2u);
  EXPECT_EQ(largest[0].label, "acts");
  EXPECT_EQ(largest[0].bytes, 60);
  EXPECT_EQ(largest[1].label, "head");
}

} // namespace
