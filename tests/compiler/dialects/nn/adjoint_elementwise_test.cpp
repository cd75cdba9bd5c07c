// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adjoints of elementwise ops against central differences (adjoint_test.h):
// with each operand alone, and with the same value as both. Ops with a
// restricted domain get positive arguments.
#include "tests/compiler/dialects/nn/adjoint_test.h"

#include "gtest/gtest.h"

namespace fsdpc::test {

class UnaryAdjoint : public testing::TestWithParam<const char *> {};

TEST_P(UnaryAdjoint, MatchesCentralDifferences) {
  forSeeds([](Shapes &s, unsigned seed) {
    std::string type = tensor(s.shape());
    checkAdjoint("%x: " + type + " {test.positive}",
                 std::string("%y = nn.") + GetParam() + " %x : " + type, type,
                 seed);
  });
}

// Ops that are defined for positive arguments only.
INSTANTIATE_TEST_SUITE_P(Positive, UnaryAdjoint,
                         testing::Values("log", "log1p", "sqrt", "rsqrt"));

class SignedUnaryAdjoint : public testing::TestWithParam<const char *> {};

TEST_P(SignedUnaryAdjoint, MatchesCentralDifferences) {
  forSeeds([](Shapes &s, unsigned seed) {
    std::string type = tensor(s.shape());
    checkAdjoint("%x: " + type,
                 std::string("%y = nn.") + GetParam() + " %x : " + type, type,
                 seed);
  });
}

INSTANTIATE_TEST_SUITE_P(Signed, SignedUnaryAdjoint,
                         testing::Values("neg", "abs", "exp", "tanh", "erf",
                                         "sigmoid", "relu", "sin", "cos",
                                         "atan", "floor", "round", "silu",
                                         "gelu erf", "gelu tanh", "expm1",
                                         "softplus"));

class BinaryAdjoint : public testing::TestWithParam<const char *> {};

TEST_P(BinaryAdjoint, MatchesCentralDifferences) {
  forSeeds([](Shapes &s, unsigned seed) {
    std::string type = tensor(s.shape());
    std::string op = std::string("%y = nn.") + GetParam();
    std::string both = "%a: " + type + ", %b: " + type + " {test.positive}";
    checkAdjoint(both, op + " %a, %b : " + type, type, seed);
    // A gradient for one operand only, and the same value as both operands.
    checkAdjoint("%a: " + type + " {test.fixed}, %b: " + type +
                     " {test.positive}",
                 op + " %a, %b : " + type, type, seed);
    checkAdjoint("%a: " + type + " {test.positive}", op + " %a, %a : " + type,
                 type, seed);
  });
}

// Without mod, which jumps at x mod x and has a test of its own. x / x is
// constant, and maximum and minimum tie.
INSTANTIATE_TEST_SUITE_P(All, BinaryAdjoint,
                         testing::Values("add", "sub", "mul", "div", "maximum",
                                         "minimum"));

TEST(Adjoint, Mod) {
  forSeeds([](Shapes &s, unsigned seed) {
    std::string type = tensor({s.size(), s.size(7)});
    checkAdjoint("%a: " + type + ", %b: " + type + " {test.positive}",
                 "%y = nn.mod %a, %b : " + type, type, seed);
  });
}

// Constant exponents have formulas of their own, for 0 and 1 in particular.
TEST(Adjoint, PowWithConstantExponent) {
  for (const char *exponent : {"2.0", "3.0", "0.5", "1.0", "0.0", "-1.5"})
    forSeeds([&](Shapes &s, unsigned seed) {
      std::string type = tensor({s.size(), s.size(7)});
      checkAdjoint("%x: " + type + " {test.positive}",
                   std::string("%e = nn.constant dense<") + exponent +
                       "> : tensor<f64>\n  %p = nn.broadcast %e : "
                       "tensor<f64> -> " +
                       type + "\n  %y = nn.pow %x, %p : " + type,
                   type, seed);
    });
}

TEST(Adjoint, PowWithTensorExponent) {
  forSeeds([](Shapes &s, unsigned seed) {
    std::string type = tensor(s.shape());
    checkAdjoint("%x: " + type + " {test.positive}, %p: " + type,
                 "%y = nn.pow %x, %p : " + type, type, seed);
  });
}

// The condition has no gradient, and each branch that of the elements it gave.
TEST(Adjoint, Select) {
  forSeeds([](Shapes &s, unsigned seed) {
    int64_t rows = s.size(), columns = s.size(7);
    std::string type = tensor({rows, columns}),
                bits = tensor({rows, columns}, "i1");
    checkAdjoint("%c: " + bits + ", %a: " + type + ", %b: " + type,
                 "%y = nn.select %c, %a, %b : " + bits + ", " + type, type,
                 seed);
  });
}

// The mask depends on the random key alone, so both evaluations have the same.
TEST(Adjoint, Dropout) {
  forSeeds([](Shapes &s, unsigned seed) {
    std::string type = tensor(s.shape());
    checkAdjoint("%x: " + type + ", %r: tensor<4xi32> {test.bound = 1000}",
                 "%y = nn.dropout %x, %r {ratio = 0.3 : f64, op = 7 : i64} : " +
                     type + ", tensor<4xi32>",
                 type, seed);
  });
}

// f64 allows only a cast to itself; narrower types round.
TEST(Adjoint, Cast) {
  forSeeds([](Shapes &s, unsigned seed) {
    std::string type = tensor({s.size()});
    checkAdjoint("%x: " + type, "%y = nn.cast %x : " + type + " -> " + type,
                 type, seed);
  });
}

} // namespace fsdpc::test
