// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers at the edges: each function of one number, and each composite that
// the importer builds of them, on some 3000 points from -1e4 to 1e4, dense
// around 0 and where exp over- and underflows, with denormals, zeros, the
// largest numbers, infinities and NaN. Values and gradients of f32 and bf16
// kernels, as host loops and as grids, are compared with the same function in
// long double. The largest error of each is printed in ulp, and has a limit.
//
// A result below 2e-38, next to the smallest normal number, may be 0. The error
// of a derivative that is computed as a difference (1 - y² and y · (1 - y), as
// PyTorch computes them) is counted in ulp of 1 where the derivative is
// smaller.
#include "tests/compiler/codegen/kernels/edges_test.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::testing;

namespace {

using Function = Real (*)(Real);

struct Case {
  const char *name;
  // From %x to %y, with the constants %zero, %half, %one; $T is the type.
  const char *body;
  Function value, slope;
  Limits limits;
  // Errors of smaller values, and of smaller derivatives, are counted in ulp of
  // this number.
  double scale = 0, slopeScale = 0;
  bool isPeriodic = false;
};

Real sigmoid(Real x) { return 1 / (1 + std::exp(-x)); }
Real softplus(Real x) {
  return std::log1p(std::exp(-std::abs(x))) + (x < 0 ? 0 : x);
}
Real normal(Real x) { return std::erfc(-x * std::sqrt(Real(0.5))) / 2; }
Real density(Real x) {
  return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(Real(-1)));
}
const Real kRoot = std::sqrt(2 / std::acos(Real(-1)));
Real tanhGate(Real x) {
  return sigmoid(2 * kRoot * (x + Real(0.044715) * x * x * x));
}
Real cube(Real x) { return x * x * x; }

#define FN(EXPRESSION) [](Real x) -> Real { return EXPRESSION; }
#define UNARY(OP) "%y = nn." OP " %x : $T"

const Case kCases[] = {
    {"exp", UNARY("exp"), FN(std::exp(x)), FN(std::exp(x)), {2, 1, 2, 1}},
    {"log", UNARY("log"), FN(std::log(x)), FN(1 / x), {2, 1, 1, 1}},
    {"expm1", UNARY("expm1"), FN(std::expm1(x)), FN(std::exp(x)), {2, 1, 2, 1}},
    {"log1p", UNARY("log1p"), FN(std::log1p(x)), FN(1 / (1 + x)), {3, 1, 2, 2}},
    {"sqrt",
     UNARY("sqrt"),
     FN(std::sqrt(x)),
     FN(Real(0.5) / std::sqrt(x)),
     {1, 1, 2, 2}},
    {"tanh",
     UNARY("tanh"),
     FN(std::tanh(x)),
     FN(1 / square(std::cosh(x))),
     {4, 1, 4, 3},
     0,
     1},
    {"erf",
     UNARY("erf"),
     FN(std::erf(x)),
     FN(2 / std::sqrt(std::acos(Real(-1))) * std::exp(-x * x)),
     {4, 1, 20, 20}},
    {"sigmoid",
     UNARY("sigmoid"),
     FN(sigmoid(x)),
     FN(sigmoid(x) * sigmoid(-x)),
     {4, 1, 4, 2},
     0,
     1},
    {"softplus", UNARY("softplus"), softplus, sigmoid, {4, 1, 4, 1}},
    {"log sigmoid",
     R"(%n = nn.neg %x : $T
        %s = nn.softplus %n : $T
        %y = nn.neg %s : $T)",
     FN(-softplus(-x)),
     FN(sigmoid(-x)),
     {4, 1, 4, 1}},
    {"silu",
     UNARY("silu"),
     FN(x * sigmoid(x)),
     FN(sigmoid(x) * (1 + x * sigmoid(-x))),
     {4, 1, 10, 1},
     1e-30,
     1},
    {"gelu erf",
     UNARY("gelu erf"),
     FN(x * normal(x)),
     FN(std::isinf(x) ? Real(x > 0) : normal(x) + x * density(x)),
     {4, 1, 4, 1},
     1,
     1},
    {"gelu tanh",
     UNARY("gelu tanh"),
     FN(x * tanhGate(x)),
     FN(std::abs(x) > 50
            ? Real(x > 0)
            : tanhGate(x) + 2 * x * tanhGate(x) * tanhGate(-x) * kRoot *
                                (1 + 3 * Real(0.044715) * x * x)),
     {4, 1, 24, 1},
     1,
     1},
    {"elu",
     R"(%c = nn.cmp gt %x, %zero : $T -> $B
        %m = nn.select %c, %zero, %x : $B, $T
        %e = nn.expm1 %m : $T
        %y = nn.select %c, %x, %e : $B, $T)",
     FN(x > 0 ? x : std::expm1(x)),
     FN(x > 0 ? 1 : std::exp(x)),
     {2, 1, 2, 1}},
    {"selu",
     R"(%k = nn.constant dense<1.05070102214813232421875> : $T
        %q = nn.constant dense<1.758099340847375> : $T
        %c = nn.cmp gt %x, %zero : $T -> $B
        %l = nn.mul %x, %k : $T
        %m = nn.select %c, %zero, %x : $B, $T
        %e = nn.expm1 %m : $T
        %n = nn.mul %e, %q : $T
        %y = nn.select %c, %l, %n : $B, $T)",
     FN(x > 0 ? Real(1.05070102214813232421875) * x
              : Real(1.758099340847375) * std::expm1(x)),
     FN(x > 0 ? Real(1.05070102214813232421875)
              : Real(1.758099340847375) * std::exp(x)),
     {3, 2, 3, 2}},
    // With alpha 1/2.
    {"celu",
     R"(%t = nn.div %x, %half : $T
        %c = nn.cmp gt %x, %zero : $T -> $B
        %m = nn.select %c, %zero, %t : $B, $T
        %e = nn.expm1 %m : $T
        %n = nn.mul %e, %half : $T
        %y = nn.select %c, %x, %n : $B, $T)",
     FN(x > 0 ? x : std::expm1(2 * x) / 2),
     FN(x > 0 ? 1 : std::exp(2 * x)),
     {2, 1, 2, 1}},
    {"softsign",
     R"(%a = nn.abs %x : $T
        %d = nn.add %a, %one : $T
        %y = nn.div %x, %d : $T)",
     FN(x / (1 + std::abs(x))),
     FN(std::isinf(x) ? NAN : 1 / square(1 + std::abs(x))), // as in PyTorch
     {2, 2, 2, 2},
     0,
     1},
    // The derivative jumps at -3 and 3, where its halves are averaged; in bf16
    // also next to 3, where the ramp rounds to 1.
    {"hard swish",
     R"(%k = nn.constant dense<0.16666666666666666> : $T
        %top = nn.constant dense<1.0> : $T
        %l = nn.mul %x, %k : $T
        %o = nn.add %l, %half : $T
        %p = nn.maximum %o, %zero : $T
        %m = nn.minimum %p, %top : $T
        %y = nn.mul %x, %m : $T)",
     FN(std::isinf(x) ? (x > 0 ? x : NAN)
                      : x * std::clamp(x / 6 + Real(0.5), Real(0), Real(1))),
     FN(std::abs(x) == 3 ? x / 4 + Real(0.5)
        : x < -3         ? 0
        : x > 3          ? 1
                         : x / 3 + Real(0.5)),
     {2, 2, 2, 40},
     1,
     1},
    {"mish",
     R"(%s = nn.softplus %x : $T
        %t = nn.tanh %s : $T
        %y = nn.mul %x, %t : $T)",
     FN(x * std::tanh(softplus(x))),
     FN(std::tanh(softplus(x)) +
        x * sigmoid(x) / square(std::cosh(softplus(x)))),
     {8, 3, 16, 3},
     1e-29,
     1},
    // Binary cross-entropy with logits, of target 1/2.
    {"bce with logits",
     R"(%n = nn.neg %x : $T
        %a = nn.softplus %n : $T
        %b = nn.softplus %x : $T
        %c = nn.mul %half, %a : $T
        %d = nn.mul %half, %b : $T
        %y = nn.add %c, %d : $T)",
     FN(softplus(x) / 2 + softplus(-x) / 2),
     FN(std::tanh(x / 2) / 2),
     {4, 2, 4, 2},
     0,
     1},
    {"sin",
     UNARY("sin"),
     FN(std::sin(x)),
     FN(std::cos(x)),
     {1, 1, 1, 1},
     1,
     1,
     true},
    {"cos",
     UNARY("cos"),
     FN(std::cos(x)),
     FN(-std::sin(x)),
     {1, 1, 1, 1},
     1,
     1,
     true},
    {"atan",
     UNARY("atan"),
     FN(std::atan(x)),
     FN(1 / (1 + x * x)),
     {2, 1, 4, 3}},
    {"rsqrt",
     UNARY("rsqrt"),
     FN(1 / std::sqrt(x)),
     FN(cube(1 / std::sqrt(x)) / -2),
     {2, 1, 5, 3}},
    {"pow 2.5",
     R"(%p = nn.constant dense<2.5> : $T
        %y = nn.pow %x, %p : $T)",
     FN(std::pow(x, Real(2.5))),
     FN(Real(2.5) * std::pow(x, Real(1.5))),
     {1, 1, 2, 2}},
};

std::vector<double> points() {
  std::vector<double> result;
  auto both = [&](double x) {
    result.push_back(x);
    result.push_back(-x);
  };
  for (double x : {0.0, double(INFINITY), 3.4028234663852886e38, 1e38, 1e30,
                   1e20, 0x1p-126, 0x1p-149, 0x1.8p-130})
    both(x);
  result.push_back(NAN);
  for (double x = 1e-44; x < 2e4; x *= 1.2)
    both(x);
  for (int i = 1; i <= 500; ++i) {
    both(20.0 * i);
    both(0.01 * i);
  }
  for (double center : {17.0, 88.0, 104.0})
    for (int i = -32; i <= 32; ++i)
      both(center + i / 16.0);
  return result;
}

std::string nameOf(const ::testing::TestParamInfo<int> &info) {
  return info.param ? "Grid" : "Loops";
}
INSTANTIATE_TEST_SUITE_P(Targets, EdgesTest, ::testing::Values(0, 1), nameOf);

// Each function and its derivative at points(), where naive formulas cancel or
// overflow.
TEST_P(EdgesTest, Functions) {
  std::vector<double> all = points();
  std::string text;
  for (const char *element : {"f32", "bf16"})
    for (auto [i, each] : llvm::enumerate(kCases)) {
      std::string type = llvm::formatv("tensor<{0}x{1}>", all.size(), element);
      std::string bits = llvm::formatv("tensor<{0}xi1>", all.size());
      std::string body = each.body;
      body = R"(%zero = nn.constant dense<0.0> : $T
        %half = nn.constant dense<0.5> : $T
        %one = nn.constant dense<1.0> : $T
        )" + body;
      text += llvm::formatv("func.func private @{0}{1}(%x: {2}) -> {2} "
                            "attributes {{nn.kernel} {{\n{3}\nreturn %y : "
                            "{2} }\n",
                            element, i, type,
                            replaced(replaced(body, "$T", type), "$B", bits));
    }
  std::printf("%-16s %-5s %28s %28s\n", "", "", "value: ulp at x",
              "derivative: ulp at x");
  std::vector<Computed> results = compute(text, all);
  ASSERT_EQ(results.size(), 2 * std::size(kCases));
  for (const auto &[number, isBf16, x, y, dx] : results) {
    const Case &each = kCases[number];
    Worst value, derivative;
    int digits = isBf16 ? 8 : 24;
    for (size_t i = 0; i < all.size(); ++i) {
      double at = x.floats[i];
      // Grids give NaN for angles that they cannot reduce.
      if (GetParam() && each.isPeriodic && std::isnan(y.floats[i]) &&
          std::abs(at) > 0x1p50)
        continue;
      value.take(errorOf(y.floats[i], each.value(at), digits, each.scale), at,
                 y.floats[i]);
      derivative.take(
          errorOf(dx.floats[i], each.slope(at), digits, each.slopeScale, 3), at,
          dx.floats[i]);
    }
    report(each.name, isBf16, each.limits, " at ", value, derivative);
  }
}

} // namespace
