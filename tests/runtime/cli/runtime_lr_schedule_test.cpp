// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Schedules of the learning rate. What torch.optim.lr_scheduler has is compared
// with the rates that PyTorch 2.14 gives at a rate of 0.5 over ten steps; the
// others with numbers worked out by hand.
#include "runtime/cli/lr_schedule.h"
#include "tests/runtime/data/runtime_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::HasSubstr;

namespace {

std::vector<double> rates(const std::string &text, int64_t steps = 10,
                          double rate = 0.5) {
  auto schedule = parseSchedule(text);
  EXPECT_TRUE(schedule) << schedule.error().message;
  std::vector<double> all;
  for (int64_t step = 0; schedule && step < steps; ++step)
    all.push_back(schedule->at(step, steps, rate));
  return all;
}

void expectRates(const std::string &text, std::vector<double> expected) {
  std::vector<double> got = rates(text, int64_t(expected.size()));
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-11) << text << " step " << i;
}

// Rates of the classes of torch.optim.lr_scheduler.
TEST(LrSchedule, IsPyTorchs) {
  // StepLR(3)
  expectRates("step,size=3",
              {0.5, 0.5, 0.5, 0.05, 0.05, 0.05, 0.005, 0.005, 0.005, 0.0005});
  // ExponentialLR(0.9)
  expectRates("exponential,gamma=0.9",
              {0.5, 0.45, 0.405, 0.3645, 0.32805, 0.295245, 0.2657205,
               0.23914845, 0.215233605, 0.1937102445});
  // PolynomialLR(10, 2) and (10)
  expectRates("polynomial,power=2",
              {0.5, 0.405, 0.32, 0.245, 0.18, 0.125, 0.08, 0.045, 0.02, 0.005});
  expectRates("polynomial",
              {0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05});
  // CosineAnnealingLR(10, 0.1)
  expectRates("cosine,min=0.1",
              {0.5, 0.490211303259, 0.461803398875, 0.417557050458,
               0.361803398875, 0.3, 0.238196601125, 0.182442949542,
               0.138196601125, 0.109788696741});
  // OneCycleLR(0.5, total_steps=10)
  expectRates("onecycle",
              {0.02, 0.26, 0.5, 0.475242316007, 0.405872826975, 0.305631010968,
               0.194370989032, 0.0941291730251, 0.0247596839933, 2e-06});
  // with pct_start=0.4, div_factor=10, final_div_factor=100, linear annealing
  expectRates(
      "onecycle,start=0.4,div=10,final=100,anneal=linear",
      {0.05, 0.2, 0.35, 0.5, 0.41675, 0.3335, 0.25025, 0.167, 0.08375, 0.0005});
}

// The rate rises to its full value, then decays to the minimum one step past
// the end.
TEST(LrSchedule, WarmsUpAndDecays) {
  auto cosine = parseSchedule("cosine,warmup=2,min=0.1");
  ASSERT_TRUE(cosine);
  EXPECT_DOUBLE_EQ(cosine->at(0, 10, 1), 0.5);
  EXPECT_DOUBLE_EQ(cosine->at(1, 10, 1), 1);
  EXPECT_DOUBLE_EQ(cosine->at(2, 10, 1), 1);
  EXPECT_DOUBLE_EQ(cosine->at(6, 10, 1), 0.55);
  EXPECT_DOUBLE_EQ(cosine->at(10, 10, 1), 0.1);
  EXPECT_DOUBLE_EQ(rates("linear", 4, 1)[3], 0.25);
  EXPECT_DOUBLE_EQ(LrSchedule().at(3, 4, 0.3), 0.3);
  // Steps of the schedule are counted from the end of the warmup.
  expectRates("step,size=2,gamma=0.5,warmup=2",
              {0.25, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125});
}

// Warmup, stable, decay: constant between the two ramps.
TEST(LrSchedule, IsStableUntilItDecays) {
  expectRates("wsd,warmup=2,decay=4,min=0.1",
              {0.25, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.4, 0.3, 0.2});
  // A tenth of the steps, and never more than those after the warmup.
  std::vector<double> tenth = rates("wsd", 100, 1);
  EXPECT_EQ(tenth[90], 1);
  EXPECT_DOUBLE_EQ(tenth[99], 0.1);
  expectRates("wsd,warmup=2,decay=9", {0.25, 0.5, 0.5, 0.25});
}

// Runs may have few steps, and every parameter at its bound.
TEST(LrSchedule, IsFiniteAtItsBounds) {
  for (const char *text : {"onecycle", "onecycle,start=0", "onecycle,start=1",
                           "onecycle,start=0.5", "wsd,warmup=9",
                           "cosine,warmup=9", "polynomial,power=9,warmup=9",
                           "exponential,gamma=2", "step,size=1,gamma=1e-300"})
    for (int64_t steps : {1, 2, 3, 9, 10})
      for (double rate : rates(text, steps)) {
        EXPECT_TRUE(std::isfinite(rate)) << text << " of " << steps;
        EXPECT_GE(rate, 0) << text << " of " << steps;
      }
}

// A rate of a file holds until the next line.
TEST(LrSchedule, IsReadFromAFile) {
  TemporaryFolder folder;
  auto read = [&](const std::string &text) {
    folder.write("rates", text);
    return "file:" + folder / "rates";
  };
  expectRates(read("# step rate\n0 0.1\n\n3  2e-1 # up\n4 0\n"),
              {0.1, 0.1, 0.1, 0.2, 0, 0});
  for (auto &[text, message] :
       {std::pair("1 0.1\n", "line 1: steps begin at 0"),
        std::pair("0 0.1\n2 1\n2 1\n", "line 3: steps begin at 0 and rise, but "
                                       "step 2 stands where 3 or a later one"),
        std::pair("0 -1\n", "is not a step and a rate of at least 0"),
        std::pair("0 nan\n", "is not a step and a rate of at least 0"),
        std::pair("0 1 2\n", "is not a step and a rate of at least 0"),
        std::pair("0\n", "is not a step and a rate of at least 0"),
        std::pair("# none\n", "has no line with a step and a rate")})
    EXPECT_THAT(parseSchedule(read(text)).error().message, HasSubstr(message));
  EXPECT_FALSE(parseSchedule("file:" + folder / "absent"));
  EXPECT_FALSE(parseSchedule("file:"));
}

// Keys of another kind would be ignored, and lengths have no default that fits.
TEST(LrSchedule, NamesWhatIsWrong) {
  for (auto &[text, message] :
       {std::pair("step", "the schedule 'step' needs 'size', as in "
                          "'step,size=100'"),
        std::pair("exponential", "needs 'gamma'"),
        std::pair("step,size=0",
                  "size '0' is not a whole number of at least 1"),
        std::pair("step,size=2,gamma=0", "gamma '0' is not a number above 0"),
        std::pair("constant,min=1", "'min' is not a part of the schedule "
                                    "'constant'"),
        std::pair("onecycle,warmup=3", "'warmup' is not a part"),
        std::pair("onecycle,start=1.5", "at most 1"),
        std::pair("onecycle,div=0.5",
                  "div '0.5' is not a number of at least 1"),
        std::pair("onecycle,anneal=sine", "neither 'cos' nor 'linear'"),
        std::pair("OneCycleLR", "did you mean 'onecycle'?"),
        std::pair("xyzzyxyzzy", "'onecycle', 'file:FILE'")}) {
    auto schedule = parseSchedule(text);
    ASSERT_FALSE(schedule) << text;
    EXPECT_THAT(schedule.error().message, HasSubstr(message));
  }
}

} // namespace
