// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tests how good the solvers are: against the lower bound on problems of real
// models, and against the best of all schedules on problems that are small
// enough to try them all.
#include "compiler/schedule/bound.h"
#include "compiler/schedule/problem_json.h"
#include "tests/compiler/schedule/schedule_fixtures.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>

namespace fsdpc::schedule {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

Solved solveAs(Problem problem, Prefetch mode) {
  problem.options.prefetch = mode;
  return solve(problem);
}

// The exposed time, or infinity if there is no schedule.
double exposedBy(const Problem &problem, Prefetch mode) {
  Solved solved = solveAs(problem, mode);
  auto *found = std::get_if<Solution>(&solved);
  return found ? found->timeline.totalExposedUs : infinite;
}

int64_t peakOf(const Problem &problem, Prefetch mode) {
  Solved solved = solveAs(problem, mode);
  return std::get<Solution>(solved).peakBytes;
}

std::string textOf(const std::filesystem::path &path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Problems survive the way through JSON.
TEST(ProblemJson, GivesBackTheProblem) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Problem problem = randomProblem(seed);
    std::string text = toJson(problem);
    Result<Problem> again = problemFromJson(text);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(toJson(*again), text);
    EXPECT_EQ(exposedBy(problem, Prefetch::Auto),
              exposedBy(*again, Prefetch::Auto));
  }
}

// A malformed problem is refused.
TEST(ProblemJson, RefusesOtherTexts) {
  EXPECT_FALSE(problemFromJson(""));
  EXPECT_FALSE(problemFromJson("{\"base_bytes\": 1}"));
  std::string text = toJson(twoUnits());
  EXPECT_FALSE(problemFromJson(text.substr(0, text.size() / 2)));
  Problem problem = twoUnits();
  problem.collectives[0].latest = 1000;
  Result<Problem> refused = problemFromJson(toJson(problem));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("window"), std::string::npos);
}

// By hand: the first gather is needed at once, and the reduction ends 5 µs
// after the last op that could hide it.
TEST(Bound, OfTwoUnits) {
  Problem problem = twoUnits();
  EXPECT_EQ(leastLostUs(problem), 15);
  // Where a collective beside an op costs as much as alone, hiding one of the
  // three gains nothing.
  problem.contention = {1, 1};
  EXPECT_EQ(leastLostUs(problem), 45);
  problem.contention = {};
  // Without room for both, the second gather must wait for the first unit.
  problem.options.memoryLimit = 150;
  EXPECT_EQ(leastLostUs(problem), 30);
}

class RealProblems : public testing::TestWithParam<const char *> {};

// Under caps from the least that fits to twice of what `pre` takes more, `auto`
// is never worse than a rule, never worse than under a smaller cap, and close
// to the bound, which it meets without a cap.
TEST_P(RealProblems, AreSolvedCloseToTheBound) {
  std::filesystem::path folder = FSDPC_SCHEDULE_PROBLEMS;
  Result<Problem> read =
      problemFromJson(textOf(folder / (std::string(GetParam()) + ".json")));
  ASSERT_TRUE(read) << read.error().message;
  Problem problem = std::move(*read);
  EXPECT_LE(exposedBy(problem, Prefetch::Auto), 1.001 * leastLostUs(problem));
  int64_t least = peakOf(problem, Prefetch::None);
  int64_t most = peakOf(problem, Prefetch::Pre);
  double smaller = infinite;
  for (double share : {0.0, 0.1, 0.25, 0.5, 1.0, 2.0}) {
    problem.options.memoryLimit = least + int64_t(share * double(most - least));
    double exposed = exposedBy(problem, Prefetch::Auto);
    EXPECT_LE(exposed, 1.06 * leastLostUs(problem)) << share;
    EXPECT_LE(exposed, smaller + 1e-6) << share;
    smaller = exposed;
    for (Prefetch rule : {Prefetch::None, Prefetch::Post, Prefetch::Pre})
      EXPECT_LE(exposed, exposedBy(problem, rule) + 1e-6) << share;
  }
}

INSTANTIATE_TEST_SUITE_P(, RealProblems,
                         testing::Values("gpt_124m_host", "gpt_124m_host_bf16",
                                         "gpt_7b_host", "gpt_7b_h100_nodes"));

// Where communication takes the cores of compute, overlapping costs as much as
// it hides, or more. `auto` knows, and overlaps less than where it is free; its
// step is then no longer than that of any rule, and shorter than that of a
// schedule for a machine without contention.
TEST(Contention, IsCountedByTheSolver) {
  std::filesystem::path folder = FSDPC_SCHEDULE_PROBLEMS;
  Result<Problem> read = problemFromJson(textOf(folder / "gpt_124m_host.json"));
  ASSERT_TRUE(read) << read.error().message;
  Problem problem = std::move(*read);
  Schedule unaware =
      std::get<Solution>(solveAs(problem, Prefetch::Auto)).schedule;
  problem.contention = {1, 1.3};
  EXPECT_EQ(toJson(*problemFromJson(toJson(problem))), toJson(problem));
  auto lost = [&](Prefetch mode) {
    return std::get<Solution>(solveAs(problem, mode)).timeline.lostUs();
  };
  double best = lost(Prefetch::Auto);
  for (Prefetch rule : {Prefetch::None, Prefetch::Post, Prefetch::Pre})
    EXPECT_LE(best, lost(rule) + 1e-6);
  EXPECT_GE(simulate(problem, unaware).lostUs(), 1.1 * best);
  EXPECT_LE(leastLostUs(problem), best + 1e-6);
}

// A problem of few ops and collectives, with tensors that leave little room.
Problem smallProblem(unsigned seed) {
  std::mt19937 random(seed);
  auto between = [&](int low, int high) {
    return low + static_cast<int>(random() % (high - low + 1));
  };
  Problem problem;
  int n = 5;
  for (int p = 0; p < n; ++p)
    problem.ops.push_back({double(between(1, 20))});
  // One draw per statement: compilers evaluate arguments in different orders.
  for (int i = 0; i < 3; ++i) {
    int use = between(0, n - 1);
    int last = between(use, n - 1), us = between(5, 30);
    int bytes = between(1, 8) * 10;
    problem.collectives.push_back(
        gather("g" + std::to_string(i), 0, use, last, us, bytes));
  }
  int ready = between(1, n - 1);
  int definition = between(0, ready - 1), us = between(5, 30);
  int bytes = between(1, 8) * 10;
  problem.collectives.push_back(reduce("r", definition, ready, n, us, bytes));
  problem.collectives.back().channel = between(0, 1);
  for (int i = 0; i < 2; ++i) {
    Tensor tensor;
    tensor.bytes = between(1, 10) * 10;
    tensor.alignment = 1;
    tensor.begin = between(0, n - 1);
    tensor.end = between(tensor.begin, n - 1);
    problem.tensors.push_back(tensor);
  }
  return problem;
}

// Tries all places of starts and waits. Within a gap, what frees memory comes
// first, then starts in the order of the collectives' list or against it.
double leastOfAll(const Problem &problem) {
  size_t count = problem.collectives.size();
  std::vector<int> start(count), wait(count);
  double least = infinite;
  auto tryOne = [&](bool backwards) {
    std::vector<std::pair<int, Action>> actions; // by phase within a gap
    for (size_t i = 0; i < count; ++i) {
      const Collective &c = problem.collectives[i];
      int id = int(i), order = backwards ? int(count - i) : int(i);
      bool isReduce = c.kind == CollectiveKind::Reduce;
      bool late = isReduce && wait[i] > start[i];
      actions.push_back({10 + order, {start[i], ActionKind::Start, id}});
      actions.push_back({late ? 0 : 20, {wait[i], ActionKind::Wait, id}});
      if (c.lastUse)
        actions.push_back({1, {*c.lastUse + 1, ActionKind::Free, id}});
    }
    std::stable_sort(actions.begin(), actions.end(),
                     [](const auto &a, const auto &b) {
                       return std::pair(a.second.position, a.first) <
                              std::pair(b.second.position, b.first);
                     });
    Schedule schedule;
    for (const auto &[phase, action] : actions)
      schedule.actions.push_back(action);
    double lost = simulate(problem, schedule).lostUs();
    if (lost >= least)
      return;
    Solved solved = evaluate(problem, std::move(schedule));
    if (std::get_if<Solution>(&solved))
      least = lost;
  };
  std::function<void(size_t)> place = [&](size_t i) {
    if (i == count) {
      tryOne(false);
      tryOne(true);
      return;
    }
    const Collective &c = problem.collectives[i];
    bool isReduce = c.kind == CollectiveKind::Reduce;
    for (start[i] = c.earliest; start[i] <= c.latest; ++start[i])
      for (wait[i] = isReduce ? start[i] : c.latest; wait[i] <= c.latest;
           ++wait[i])
        place(i + 1);
  };
  place(0);
  return least;
}

// The bound is one where ops and collectives slow each other down, too.
TEST(SmallProblems, LoseNoLessThanTheBoundBesideContention) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    Problem problem = smallProblem(seed);
    problem.contention = {seed % 4 * 0.5, seed % 3 * 0.7};
    double all = leastOfAll(problem);
    EXPECT_LE(leastLostUs(problem), all + 1e-6) << "seed " << seed;
    problem.options.memoryLimit = peakOf(problem, Prefetch::None);
    EXPECT_LE(leastLostUs(problem), leastOfAll(problem) + 1e-6)
        << "seed " << seed;
  }
}

// The bound is one, and `auto` is close to the best of all schedules.
TEST(SmallProblems, AreSolvedCloseToTheBestOfAll) {
  int optimal = 0, tried = 0;
  double sum = 0, best = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    Problem problem = smallProblem(seed);
    int64_t least = peakOf(problem, Prefetch::None);
    int64_t most = peakOf(problem, Prefetch::Auto);
    for (int64_t cap : {least, (least + most) / 2, most}) {
      problem.options.memoryLimit = cap;
      double exposed = exposedBy(problem, Prefetch::Auto);
      double all = std::min(leastOfAll(problem), exposed);
      EXPECT_LE(leastLostUs(problem), all + 1e-6) << "seed " << seed;
      ++tried;
      optimal += exposed <= all + 1e-6;
      sum += exposed;
      best += all;
    }
  }
  RecordProperty("optimal", optimal);
  RecordProperty("ratio", std::to_string(sum / best));
  EXPECT_GE(optimal, tried * 95 / 100);
  EXPECT_LE(sum, 1.02 * best);
}

} // namespace
} // namespace fsdpc::schedule
