// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The weights of microbatches: what the ops of their programs compute, that
// damaged programs are refused, and the factors that follow from weights.
#include "runtime/train/loss_weights.h"

#include <gtest/gtest.h>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

using Shape = std::vector<int64_t>;

WeightStep step(const char *op, std::vector<int32_t> operands, Shape shape,
                Shape numbers = {}, const char *kind = "",
                std::vector<double> values = {}) {
  return {op,   std::move(operands), std::move(shape), std::move(numbers),
          kind, std::move(values)};
}

// Labels of two sequences, of which those after the first count unless they are
// -100. Class weights are 1, 2, 4.
WeightProgram shiftedTargets() {
  return {
      {step("input", {}, {2, 3}, {}, "labels"),
       step("slice", {0}, {2, 2}, {0, 1, 1, 1}), step("reshape", {1}, {4, 1}),
       step("constant", {}, {4, 1}, {}, "", {-100}),
       step("cmp", {2, 3}, {4, 1}, {}, "eq"),
       step("constant", {}, {4, 1}, {}, "", {0}),
       step("select", {4, 5, 2}, {4, 1}),
       step("constant", {}, {1, 3}, {}, "", {1, 2, 4}),
       step("broadcast", {7}, {4, 3}), step("take_along_axis", {8, 6}, {4, 1}),
       step("select", {4, 5, 9}, {4, 1}),
       step("reduce", {10}, {1, 1}, {0, 1}, "sum"), step("reshape", {11}, {})}};
}

Manifest manifestOf(WeightProgram program) {
  Manifest manifest;
  Input labels;
  labels.name = "labels";
  labels.shape = {2, 3};
  labels.dtype = "i64";
  manifest.inputs = {labels};
  manifest.lossMean = "step";
  manifest.lossWeights = {{"w", 0, 0, false, {std::move(program)}}};
  return manifest;
}

double measure(const WeightProgram &program, std::vector<int64_t> labels) {
  Manifest manifest = manifestOf(program);
  LossWeights weights;
  EXPECT_TRUE(weights.open(manifest, 1, false));
  void *buffers[] = {labels.data()};
  weights.measure(0, 0, buffers);
  return weights.of(0, 0);
}

TEST(LossWeights, CountTargets) {
  EXPECT_EQ(measure(shiftedTargets(), {2, 0, 1, 2, -100, 2}), 1 + 2 + 4);
  EXPECT_EQ(measure(shiftedTargets(), {2, -100, -100, 2, -100, -100}), 0);
}

TEST(LossWeights, MoveElements) {
  // [[1, 2, 3], [4, 5, 6]] transposed, with a row of zeros before and behind,
  // then every row's largest element.
  WeightProgram program = {
      {step("input", {}, {2, 3}, {}, "labels"),
       step("transpose", {0}, {3, 2}, {1, 0}),
       step("pad", {1}, {5, 2}, {1, 0, 1, 1}),
       step("reduce", {2}, {5, 1}, {1}, "max"), step("iota", {}, {5, 1}, {0}),
       step("mul", {3, 4}, {5, 1}), step("concat", {5, 3}, {10, 1}, {0}),
       step("reduce", {6}, {1, 1}, {0}, "sum"), step("reshape", {7}, {})}};
  EXPECT_EQ(measure(program, {1, 2, 3, 4, 5, 6}),
            (4 * 1 + 5 * 2 + 6 * 3) + (4 + 5 + 6));
}

TEST(LossWeights, LookUpRows) {
  WeightProgram program = {
      {step("constant", {}, {3, 2}, {}, "", {1, 2, 3, 4, 5, 6}),
       step("input", {}, {2, 3}, {}, "labels"),
       step("embedding", {0, 1}, {2, 3, 2}),
       step("reduce", {2}, {1, 1, 1}, {0, 1, 2}, "sum"),
       step("reshape", {3}, {})}};
  EXPECT_EQ(measure(program, {0, 2, 2, 1, 0, 0}), 3 + 11 + 11 + 7 + 3 + 3);
}

// Class weights may be looked up by what is left of a division, and quotients
// of integers are truncated.
TEST(LossWeights, ComputeElements) {
  WeightProgram program = {
      {step("input", {}, {2, 3}, {}, "labels"),
       step("constant", {}, {2, 3}, {}, "", {3}), step("mod", {0, 1}, {2, 3}),
       step("div", {0, 1}, {2, 3}, {}, "i"), step("pow", {2, 3}, {2, 3}),
       step("sqrt", {4}, {2, 3}), step("reduce", {5}, {1, 1}, {0, 1}, "sum"),
       step("reshape", {6}, {})}};
  EXPECT_EQ(measure(program, {8, 16, 6, 0, 1, 13}), 2 + 1 + 0 + 1 + 1 + 1);
  // The remainder of -4 is 2, and its quotient -1.
  program.steps[4].op = "add";
  program.steps[5].op = "copy";
  EXPECT_EQ(measure(program, {8, -4, 0, 0, 0, 0}), (2 + 2) + (2 - 1));
}

// Anything that would make a run touch other memory.
TEST(LossWeights, RefuseDamage) {
  auto opens = [](size_t number, auto change) {
    WeightProgram program = shiftedTargets();
    change(program.steps[number]);
    Manifest manifest = manifestOf(program);
    return bool(LossWeights().open(manifest, 1, false));
  };
  EXPECT_TRUE(opens(0, [](WeightStep &) {}));
  EXPECT_FALSE(opens(0, [](WeightStep &s) { s.shape = {2, 4}; }));
  EXPECT_FALSE(opens(0, [](WeightStep &s) { s.kind = "ids"; }));
  EXPECT_FALSE(opens(1, [](WeightStep &s) { s.numbers[1] = 2; }));
  EXPECT_FALSE(opens(1, [](WeightStep &s) { s.numbers[3] = -2; }));
  EXPECT_FALSE(opens(1, [](WeightStep &s) { s.operands = {1}; }));
  EXPECT_FALSE(opens(2, [](WeightStep &s) { s.shape = {5, 1}; }));
  EXPECT_FALSE(opens(4, [](WeightStep &s) { s.kind = "near"; }));
  EXPECT_FALSE(opens(6, [](WeightStep &s) { s.operands.pop_back(); }));
  EXPECT_FALSE(opens(7, [](WeightStep &s) { s.values.pop_back(); }));
  EXPECT_FALSE(opens(8, [](WeightStep &s) { s.shape = {4, 4}; }));
  EXPECT_FALSE(opens(9, [](WeightStep &s) { s.shape = {3, 1}; }));
  EXPECT_FALSE(opens(11, [](WeightStep &s) { s.numbers = {1}; }));
  EXPECT_FALSE(opens(12, [](WeightStep &s) { s.op = "sort"; }));
}

TEST(LossWeights, RefuseMoreThanTheProgramHasPlacesFor) {
  Manifest manifest = manifestOf(shiftedTargets());
  manifest.lossWeights.resize(mostLossWeights, manifest.lossWeights[0]);
  EXPECT_TRUE(LossWeights().open(manifest, 1, false));
  manifest.lossWeights.push_back(manifest.lossWeights[0]);
  EXPECT_FALSE(LossWeights().open(manifest, 1, false));
}

std::vector<float> factorsOf(std::vector<double> weights, double atLeast = 0,
                             double plus = 0, bool perMicrobatch = false) {
  Manifest manifest = manifestOf(shiftedTargets());
  manifest.lossWeights[0].atLeast = atLeast;
  manifest.lossWeights[0].plus = plus;
  manifest.lossWeights[0].perMicrobatch = perMicrobatch;
  LossWeights of;
  EXPECT_TRUE(of.open(manifest, int64_t(weights.size()), false));
  of.combine(int64_t(weights.size()), 1, 0,
             [&](int64_t j, size_t) { return weights[size_t(j)]; });
  std::vector<float> factors(weights.size());
  for (size_t k = 0; k < weights.size(); ++k)
    of.write(int64_t(k), &factors[k]);
  return factors;
}

TEST(LossWeights, SumsOfNothingHaveNoDivisor) {
  LossWeight weight;
  WeightSum sum(weight);
  sum.add(0);
  EXPECT_EQ(sum.divisor(), 0);
  EXPECT_EQ(sum.factorOf(0), 0);
  weight.plus = 1;
  EXPECT_EQ(sum.divisor(), 1);
  EXPECT_EQ(sum.factorOf(0), 1);
}

TEST(LossWeights, Factors) {
  // The program divides by 1 where a microbatch's weights add up to 0.
  EXPECT_EQ(factorsOf({4, 2, 0, 2}), (std::vector<float>{2, 1, 0.5, 1}));
  // Three times 0.1 is not what their sum is rounded to.
  EXPECT_EQ(factorsOf({0.1, 0.1, 0.1}), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(factorsOf({0, 0}), (std::vector<float>{0, 0}));
  // The divisor of the step is clamped as that of a microbatch is.
  EXPECT_EQ(factorsOf({3, 0}, 1), (std::vector<float>{2, 2.f / 3}));
  // Bounds and what is added count once a step, also with equal weights.
  EXPECT_EQ(factorsOf({3, 3}, 1), (std::vector<float>{1, 1}));
  EXPECT_EQ(factorsOf({1, 1}, 4), (std::vector<float>{2, 2}));
  EXPECT_EQ(factorsOf({3, 3}, 0, 2), (std::vector<float>{1.25, 1.25}));
  // Those of a mean grow with the number of microbatches.
  EXPECT_EQ(factorsOf({1, 1}, 4, 0, true), (std::vector<float>{1, 1}));
  EXPECT_EQ(factorsOf({1, 5}, 4, 0, true), (std::vector<float>{1, 1.25}));
  EXPECT_EQ(factorsOf({6, 0}, 1, 1, true), (std::vector<float>{1.75, 0.5}));
  // Weights of classes may be negative, and so may their sums.
  EXPECT_EQ(factorsOf({-3, 1}), (std::vector<float>{3, -1}));
  EXPECT_EQ(factorsOf({-3, -1}), (std::vector<float>{1.5, 0.5}));
}

} // namespace
