// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference interpreter against values worked out by hand, or by PyTorch if
// a comment says so. Adjoint tests cannot replace this: they use the
// interpreter on both sides, so a consistent error would pass them.
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/nn/reference/Reference.h"
#include "runtime/abi/weight_ops.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "gmock/gmock.h"

#include <cmath>

using namespace mlir;
using testing::ElementsAre;
using testing::Pointwise;

namespace fsdpc::test {

class Reference : public testing::Test {
protected:
  Reference() { context.loadDialect<nn::NNDialect, func::FuncDialect>(); }

  // Returns the first result of the body's last op, which has the given type.
  // `others` is placed before the function.
  nn::ReferenceTensor evaluate(const std::string &body, const std::string &type,
                               const std::string &others = "") {
    module = parseSourceString<ModuleOp>(others + "func.func @f() -> " + type +
                                             " {\n" + body +
                                             "\nreturn %y : " + type + "\n}",
                                         &context);
    EXPECT_TRUE(module) << body;
    auto results =
        nn::evaluateFunction(module->lookupSymbol<func::FuncOp>("f"), {});
    EXPECT_TRUE(succeeded(results)) << body;
    return results->front();
  }

  std::vector<double> floats(const std::string &body, const std::string &type,
                             const std::string &others = "") {
    return evaluate(body, type, others).floats;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

static auto near(std::vector<double> values) {
  return Pointwise(testing::DoubleNear(1e-6), values);
}

// Arithmetic is exact, and the result is rounded once.
TEST_F(Reference, RoundsOnceToTheResultsType) {
  // 1 + 2⁻⁸ is halfway between two bf16 values and rounds to the even one; f32
  // holds it exactly.
  EXPECT_THAT(floats("%x = nn.constant dense<1.00390625> : tensor<1xf32>\n"
                     "%y = nn.cast %x : tensor<1xf32> -> tensor<1xbf16>",
                     "tensor<1xbf16>"),
              ElementsAre(1.0));
  EXPECT_THAT(floats("%x = nn.constant dense<1.0> : tensor<1xf32>\n"
                     "%z = nn.constant dense<5.9604645e-8> : tensor<1xf32>\n"
                     "%y = nn.add %x, %z : tensor<1xf32>",
                     "tensor<1xf32>"),
              ElementsAre(1.0));
}

// Up to the upper half of the word: 1 + 2⁻⁸ is halfway between two numbers of
// bf16, and 2⁻¹³⁴ between 0 and the least one.
TEST_F(Reference, RoundStochasticTakesOneOfTwoNeighbours) {
  auto rounded = [&](const std::string &values, const std::string &words) {
    return floats("%x = nn.constant dense<" + values +
                      "> : tensor<4xf32>\n%w = nn.constant dense<" + words +
                      "> : tensor<4xi32>\n%y = nn.round_stochastic %x, %w : "
                      "tensor<4xf32>, tensor<4xi32>",
                  "tensor<4xf32>");
  };
  EXPECT_THAT(rounded("[1.00390625, 1.00390625, -1.00390625, 1.0]",
                      "[0x7FFFFFFF, 0x80000000, 0x80000000, 0xFFFFFFFF]"),
              ElementsAre(1.0, 1.0078125, -1.0078125, 1.0));
  EXPECT_THAT(rounded("[0x00008000, 0x00008000, 0x7F7F8000, 0x7F800000]",
                      "[0x7FFF0000, 0x80000000, 0x80000000, 0xFFFF0000]"),
              ElementsAre(0.0, 0x1p-133, INFINITY, INFINITY));
}

// 127 + 1 is -128 in i8; constants keep what an attribute holds.
TEST_F(Reference, WrapsIntegersAndKeepsAttributes) {
  auto value = evaluate("%x = nn.constant dense<[127, -128]> : tensor<2xi8>\n"
                        "%one = nn.constant dense<1> : tensor<2xi8>\n"
                        "%y = nn.add %x, %one : tensor<2xi8>",
                        "tensor<2xi8>");
  EXPECT_THAT(value.ints, ElementsAre(-128, -127));
  auto again = nn::ReferenceTensor::fromAttr(value.toAttr());
  ASSERT_TRUE(succeeded(again));
  EXPECT_EQ(again->ints, value.ints);
}

// As Python's %, not as C's.
TEST_F(Reference, ModHasTheSignOfTheDivisor) {
  EXPECT_THAT(evaluate("%x = nn.constant dense<[-7, 7, -6]> : tensor<3xi64>\n"
                       "%n = nn.constant dense<[3, -3, 3]> : tensor<3xi64>\n"
                       "%y = nn.mod %x, %n : tensor<3xi64>",
                       "tensor<3xi64>")
                  .ints,
              ElementsAre(2, -2, 0));
}

// Both forms, with values of torch.nn.functional.gelu.
TEST_F(Reference, Gelu) { // PyTorch
  std::string x = "%x = nn.constant dense<[-1.0, 0.5]> : tensor<2xf64>\n";
  EXPECT_THAT(
      floats(x + "%y = nn.gelu erf %x : tensor<2xf64>", "tensor<2xf64>"),
      near({-0.15865525, 0.34573123}));
  EXPECT_THAT(
      floats(x + "%y = nn.gelu tanh %x : tensor<2xf64>", "tensor<2xf64>"),
      near({-0.15880801, 0.34571401}));
}

// A negative stride reads backwards from the offset.
TEST_F(Reference, SliceWithNegativeStride) {
  EXPECT_THAT(floats("%x = nn.constant dense<[0.0, 1.0, 2.0, 3.0]> : "
                     "tensor<4xf64>\n"
                     "%y = nn.slice %x [3] by [-2] : tensor<4xf64> -> "
                     "tensor<2xf64>",
                     "tensor<2xf64>"),
              ElementsAre(3, 1));
}

TEST_F(Reference, EmbeddingCountsNegativeIdsFromTheEnd) {
  EXPECT_THAT(
      floats("%t = nn.constant dense<[[1.0], [2.0], [3.0]]> : "
             "tensor<3x1xf64>\n"
             "%i = nn.constant dense<[-1, 0]> : tensor<2xi64>\n"
             "%y = nn.embedding %t, %i : tensor<3x1xf64>, tensor<2xi64> "
             "-> tensor<2x1xf64>",
             "tensor<2x1xf64>"),
      ElementsAre(3, 1));
}

TEST_F(Reference, EmbeddingGradLeavesThePaddingRow) {
  EXPECT_THAT(
      floats("%g = nn.constant dense<[[1.0], [2.0], [4.0]]> : "
             "tensor<3x1xf64>\n"
             "%i = nn.constant dense<[1, 0, 1]> : tensor<3xi64>\n"
             "%y = nn.embedding_grad %g, %i {padding_index = 0 : i64} : "
             "tensor<3x1xf64>, tensor<3xi64> -> tensor<2x1xf64>",
             "tensor<2x1xf64>"),
      ElementsAre(0, 5));
}

TEST_F(Reference, RotaryRotatesHalves) {
  // Rotates by 90°: (x0, x1) becomes (-x1, x0); transposed, the other way.
  std::string x = "%x = nn.constant dense<[[[[1.0, 2.0]]]]> : "
                  "tensor<1x1x1x2xf64>\n"
                  "%c = nn.constant dense<0.0> : tensor<1x1x1x2xf64>\n"
                  "%s = nn.constant dense<1.0> : tensor<1x1x1x2xf64>\n";
  std::string types = " : tensor<1x1x1x2xf64>, tensor<1x1x1x2xf64>, "
                      "tensor<1x1x1x2xf64>";
  EXPECT_THAT(
      floats(x + "%y = nn.rotary %x, %c, %s" + types, "tensor<1x1x1x2xf64>"),
      ElementsAre(-2, 1));
  EXPECT_THAT(floats(x + "%y = nn.rotary %x, %c, %s {transposed}" + types,
                     "tensor<1x1x1x2xf64>"),
              ElementsAre(2, -1));
}

// With more keys than queries, the first query already sees some keys.
TEST_F(Reference, CausalAttentionAlignsTheLastRowWithTheLastKey) {
  // Equal scores: each row is the mean of the values that it sees. The first of
  // two rows sees two of three keys.
  EXPECT_THAT(
      floats("%q = nn.constant dense<0.0> : tensor<1x1x2x1xf64>\n"
             "%k = nn.constant dense<1.0> : tensor<1x1x3x1xf64>\n"
             "%v = nn.constant dense<[[[[1.0], [3.0], [8.0]]]]> : "
             "tensor<1x1x3x1xf64>\n"
             "%y, %l = nn.attention %q, %k, %v {causal, scale = 1.0 : f64} : "
             "tensor<1x1x2x1xf64>, tensor<1x1x3x1xf64>, tensor<1x1x3x1xf64> -> "
             "tensor<1x1x2x1xf64>, tensor<1x1x2xf64>",
             "tensor<1x1x2x1xf64>"),
      near({2, 4}));
}

// A row whose mask hides every key gives 0, not NaN.
TEST_F(Reference, AttentionWithoutAnyKeyIsZero) {
  EXPECT_THAT(
      floats(
          "%q = nn.constant dense<1.0> : tensor<1x1x1x1xf64>\n"
          "%m = nn.constant dense<false> : tensor<1x1x1x1xi1>\n"
          "%y, %l = nn.attention %q, %q, %q mask %m {scale = 1.0 : f64} : "
          "tensor<1x1x1x1xf64>, tensor<1x1x1x1xf64>, tensor<1x1x1x1xf64>, "
          "mask tensor<1x1x1x1xi1> -> tensor<1x1x1x1xf64>, tensor<1x1x1xf64>",
          "tensor<1x1x1x1xf64>"),
      ElementsAre(0));
}

// A finite number that hides all keys of a row leaves equal weights, although
// the log-sum-exp is so large that it does not show how many they are.
TEST_F(Reference, AttentionHiddenByAFiniteNumberIsTheMean) {
  std::string row = "tensor<1x1x1x1xf64>", rows = "tensor<1x1x2x1xf64>",
              masked = " mask %m {scale = 1.0 : f64} : ",
              mask = ", mask tensor<1x1x1x2xf64> -> ",
              inputs = row + ", " + rows + ", " + rows;
  std::string constants =
      "%q = nn.constant dense<1.0> : " + row +
      "\n%k = nn.constant dense<2.0> : " + rows +
      "\n%v = nn.constant dense<[[[[1.0], [3.0]]]]> : " + rows +
      "\n%m = nn.constant dense<-1.0e300> : "
      "tensor<1x1x1x2xf64>\n";
  auto forward = [&](std::string result) {
    return constants + result + ", %l = nn.attention %q, %k, %v" + masked +
           inputs + mask + row + ", tensor<1x1x1xf64>\n";
  };
  EXPECT_THAT(floats(forward("%y"), row), ElementsAre(2));
  // The cotangent of %v.
  EXPECT_THAT(floats(forward("%o") +
                         "%dq, %dk, %y = nn.attention_grad %q, %q, "
                         "%k, %v, %o, %l" +
                         masked + row + ", " + inputs + ", " + row +
                         ", tensor<1x1x1xf64>" + mask + row + ", " + rows +
                         ", " + rows,
                     rows),
              ElementsAre(0.5, 0.5));
}

// A NaN among the scores makes the row NaN, also where all scores are NaN, and
// is the maximum of a window; of several the first.
TEST_F(Reference, NanPropagates) {
  std::string q = "%q = nn.constant dense<1.0> : tensor<1x1x1x1xf64>\n",
              types = " {scale = 1.0 : f64} : tensor<1x1x1x1xf64>, "
                      "tensor<1x1x2x1xf64>, tensor<1x1x2x1xf64> -> "
                      "tensor<1x1x1x1xf64>, tensor<1x1x1xf64>";
  for (const char *key : {"dense<0x7FF8000000000000>",
                          "dense<[[[[1.0], [0x7FF8000000000000]]]]>"})
    EXPECT_THAT(floats(q + "%k = nn.constant " + key +
                           " : tensor<1x1x2x1xf64>\n"
                           "%v = nn.constant dense<1.0> : tensor<1x1x2x1xf64>\n"
                           "%y, %l = nn.attention %q, %k, %v" +
                           types,
                       "tensor<1x1x1x1xf64>"),
                ElementsAre(testing::IsNan()));
  std::string x = "%x = nn.constant dense<[[[[1.0, 0x7FF8000000000000, 2.0, "
                  "0x7FF8000000000000]]]]> : tensor<1x1x1x4xf64>\n",
              window = "kernel = array<i64: 1, 4>, pads = array<i64: 0, 0, 0, "
                       "0>, strides = array<i64: 1, 1>} : tensor<1x1x1x4xf64> "
                       "-> tensor<1x1x1x1xf64>, tensor<1x1x1x1xi32>";
  EXPECT_THAT(
      floats(x + "%y, %i = nn.max_pool2d %x {" + window, "tensor<1x1x1x1xf64>"),
      ElementsAre(testing::IsNan()));
  EXPECT_THAT(evaluate(x + "%m, %y = nn.max_pool2d %x {" + window,
                       "tensor<1x1x1x1xi32>")
                  .ints,
              ElementsAre(1));
}

// Ignored rows count neither in the sum nor in the mean's divisor.
TEST_F(Reference, CrossEntropyIgnoresRows) {
  // Two classes with equal logits: log 2 per row. One of three rows is ignored.
  std::string x = "%x = nn.constant dense<1.0> : tensor<3x2xf64>\n"
                  "%t = nn.constant dense<[0, -100, 1]> : tensor<3xi64>\n";
  std::string types = " %x, %t {ignore_index = -100 : i64} : tensor<3x2xf64>, "
                      "tensor<3xi64> -> tensor<f64>, tensor<3xf64>, "
                      "tensor<f64>";
  EXPECT_THAT(
      floats(x + "%y, %l, %v = nn.cross_entropy mean" + types, "tensor<f64>"),
      near({std::log(2)}));
  EXPECT_THAT(
      floats(x + "%y, %l, %v = nn.cross_entropy sum" + types, "tensor<f64>"),
      near({2 * std::log(2)}));
  EXPECT_THAT(
      floats(x + "%z, %l, %y = nn.cross_entropy mean" + types, "tensor<f64>"),
      ElementsAre(2));
}

TEST_F(Reference, ConvolutionInGroups) {
  // Each filter sees only the channel of its group.
  EXPECT_THAT(
      floats(
          "%x = nn.constant dense<[[[[1.0, 2.0]], [[10.0, 20.0]]]]> : "
          "tensor<1x2x1x2xf64>\n"
          "%f = nn.constant dense<[[[[1.0, 2.0]]], [[[3.0, 4.0]]]]> : "
          "tensor<2x1x1x2xf64>\n"
          "%y = nn.conv2d %x, %f {dilations = array<i64: 1, 1>, groups = 2 : "
          "i64, pads = array<i64: 0, 1, 0, 0>, strides = array<i64: 1, 1>} : "
          "tensor<1x2x1x2xf64>, tensor<2x1x1x2xf64> -> tensor<1x2x1x2xf64>",
          "tensor<1x2x1x2xf64>"),
      ElementsAre(2, 5, 40, 110));
}

// Padding never wins a maximum, and counts in an average only if asked to.
TEST_F(Reference, PoolingLeavesOutPadding) {
  std::string x = "%x = nn.constant dense<[[[[-3.0, -1.0, -1.0]]]]> : "
                  "tensor<1x1x1x3xf64>\n";
  std::string window = "kernel = array<i64: 1, 2>, pads = array<i64: 0, 1, 0, "
                       "0>, strides = array<i64: 1, 1>} : tensor<1x1x1x3xf64> "
                       "-> tensor<1x1x1x3xf64>";
  EXPECT_THAT(floats(x + "%y, %i = nn.max_pool2d %x {" + window +
                         ", tensor<1x1x1x3xi32>",
                     "tensor<1x1x1x3xf64>"),
              ElementsAre(-3, -1, -1));
  // The index is within the window, and the first of equal values wins.
  EXPECT_THAT(evaluate(x + "%m, %y = nn.max_pool2d %x {" + window +
                           ", tensor<1x1x1x3xi32>",
                       "tensor<1x1x1x3xi32>")
                  .ints,
              ElementsAre(1, 1, 0));
  EXPECT_THAT(
      floats(x + "%y = nn.avg_pool2d %x {" + window, "tensor<1x1x1x3xf64>"),
      ElementsAre(-3, -2, -1));
  EXPECT_THAT(floats(x + "%y = nn.avg_pool2d %x {count_padding, " + window,
                     "tensor<1x1x1x3xf64>"),
              ElementsAre(-1.5, -2, -1));
}

TEST_F(Reference, DropoutFollowsPhilox) {
  // Counter and key 0 give 6627e8d5 e169c58d bc57ac4c 9b00dbd8 (the known
  // answers of Random123): 0.40, 0.88, 0.74, 0.61 of the range.
  EXPECT_THAT(
      floats("%x = nn.constant dense<1.0> : tensor<4xf64>\n"
             "%r = nn.constant dense<0> : tensor<4xi32>\n"
             "%y = nn.dropout %x, %r {op = 0 : i64, ratio = 0.75 : f64} "
             ": tensor<4xf64>, tensor<4xi32>",
             "tensor<4xf64>"),
      ElementsAre(0, 4, 0, 0));
}

// The same words: odd multiples of 2⁻²⁴.
TEST_F(Reference, UniformFollowsPhilox) {
  auto odd = [](uint32_t word) { return ((word >> 8) | 1) * 0x1p-24; };
  EXPECT_THAT(floats("%r = nn.constant dense<0> : tensor<4xi32>\n"
                     "%y = nn.uniform %r {op = 0 : i64} "
                     ": tensor<4xi32> -> tensor<5xf32>",
                     "tensor<5xf32>"),
              ElementsAre(odd(0x6627e8d5), odd(0xe169c58d), odd(0xbc57ac4c),
                          odd(0x9b00dbd8),
                          testing::AllOf(testing::Gt(0), testing::Lt(1))));
}

TEST_F(Reference, LaunchEvaluatesTheKernel) {
  EXPECT_THAT(
      floats("%x = nn.constant dense<3.0> : tensor<1xf64>\n"
             "%y = nn.launch @square(%x) : (tensor<1xf64>) -> tensor<1xf64>",
             "tensor<1xf64>",
             "func.func private @square(%x: tensor<1xf64>) -> tensor<1xf64> "
             "attributes {nn.kernel} {\n%0 = nn.mul %x, %x : tensor<1xf64>\n"
             "return %0 : tensor<1xf64>\n}\n"),
      ElementsAre(9));
}

// The runtime computes the weights of losses by formulas of its own.
class WeightOps : public Reference {
protected:
  // Compares the op with `expected`, the formula's value of each element.
  void check(const std::string &name, bool isBinary,
             const std::vector<double> &expected) {
    bool isLogical =
        name == "not" || name == "and" || name == "or" || name == "xor";
    std::string type = isLogical ? "tensor<4xi1>" : "tensor<4xf64>";
    std::string body = "%a = nn.constant dense<[" + list(left, isLogical) +
                       "]> : " + type + "\n%b = nn.constant dense<[" +
                       list(right, isLogical) + "]> : " + type + "\n%y = nn." +
                       name + " %a" + (isBinary ? ", %b" : "") + " : " + type;
    nn::ReferenceTensor value = evaluate(body, type);
    for (size_t i = 0; i < expected.size(); ++i) {
      double actual = isLogical ? double(value.ints[i]) : value.floats[i];
      bool isSame = actual == expected[i] ||
                    (std::isnan(actual) && std::isnan(expected[i])) ||
                    std::abs(actual - expected[i]) <= 1e-12;
      EXPECT_TRUE(isSame) << name << " of element " << i << ": " << actual
                          << ", " << expected[i];
    }
  }

  static std::string list(const std::vector<double> &values, bool isLogical) {
    std::string text;
    for (double value : values)
      text +=
          (text.empty() ? "" : ", ") +
          (isLogical ? value != 0 ? "true" : "false" : std::to_string(value));
    return text;
  }

  std::vector<double> left = {-1.5, 0, 2.5, 0}, right = {0.5, 0, 3, 0.75};
};

#define EXPECT_UNARY(name, value)                                              \
  {                                                                            \
    std::vector<double> values;                                                \
    for (double x : left)                                                      \
      values.push_back(value);                                                 \
    check(name, false, values);                                                \
  }
#define EXPECT_BINARY(name, field, value)                                      \
  {                                                                            \
    std::vector<double> values;                                                \
    for (auto [x, y] : llvm::zip_equal(left, right))                           \
      values.push_back(value);                                                 \
    check(name, true, values);                                                 \
  }
TEST_F(WeightOps, AreThoseOfTheDialect) {
  FSDPC_WEIGHT_UNARY_OPS(EXPECT_UNARY)
  FSDPC_WEIGHT_BINARY_OPS(EXPECT_BINARY)
  for (const WeightOp &op : weightOps)
    EXPECT_TRUE(
        op.name == "input" ||
        RegisteredOperationName::lookup("nn." + std::string(op.name), &context))
        << op.name;
}

} // namespace fsdpc::test
