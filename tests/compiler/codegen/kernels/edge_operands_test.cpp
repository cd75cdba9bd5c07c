// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Edges of ops whose operands are more than numbers of one type: integers that
// overflow, casts, lookups outside of a table, and losses of large logits. Each
// runs as host loops and as a grid, and is compared with what
// the op's description says. The edges of functions of one number are in
// edges_test.cpp.
#include "tests/compiler/codegen/kernels/kernel_harness.h"

#include "llvm/Support/FormatVariadic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::testing;

namespace {

// The parameter is the number of threads per block of a grid, or 0 for loops.
class EdgeOperandsTest : public ::testing::TestWithParam<int> {
protected:
  EdgeOperandsTest() { prepareContext(context); }

  MLIRContext context;
};
std::string nameOf(const ::testing::TestParamInfo<int> &info) {
  return info.param ? "Grid" : "Loops";
}
INSTANTIATE_TEST_SUITE_P(Targets, EdgeOperandsTest, ::testing::Values(0, 1),
                         nameOf);

// Runs the only kernel of `text` on operands given as numbers.
nn::ReferenceTensor runOn(MLIRContext &context, int threads,
                          const std::string &text,
                          const std::vector<std::vector<double>> &operands) {
  LoadedKernels loaded(context, text, "native", threads);
  func::FuncOp kernel = loaded.kernels().front();
  std::vector<Buffer> buffers;
  std::vector<void *> pointers;
  for (auto [type, numbers] : llvm::zip(kernel.getArgumentTypes(), operands)) {
    auto tensor = nn::ReferenceTensor::zeros(cast<RankedTensorType>(type));
    for (auto [i, number] : llvm::enumerate(numbers))
      if (tensor.isFloat())
        tensor.floats[i] = number;
      else
        tensor.ints[i] = int64_t(number);
    buffers.emplace_back(tensor.type()).fill(tensor);
  }
  auto result = cast<RankedTensorType>(kernel.getResultTypes()[0]);
  buffers.emplace_back(result);
  for (Buffer &buffer : buffers)
    pointers.push_back(buffer.data());
  loaded.run(kernel.getSymName(), 0, loaded.extent(kernel), pointers.data());
  return buffers.back().read(result);
}

// The smallest integer divided by -1 wraps, and by 0 everything gives 0.
TEST_P(EdgeOperandsTest, Division) {
  for (const char *element : {"i64", "i32"}) {
    double low = element == StringRef("i64") ? -0x1p63 : -0x1p31;
    std::vector<double> x = {low, low, 7, -7, 7, 0, low, -7, low},
                        y = {-1, 0, 0, -1, -2, -1, 1, 2, low};
    std::vector<double> quotients = {low, 0, 0, 7, -3, 0, low, -3, 1},
                        rests = {0, 0, 0, 0, -1, 0, 0, 1, 0};
    for (const char *op : {"div", "mod"}) {
      std::string type = llvm::formatv("tensor<9x{0}>", element);
      nn::ReferenceTensor z =
          runOn(context, GetParam(),
                llvm::formatv("func.func private @k(%x: {0}, %y: {0}) -> {0} "
                              "attributes {{nn.kernel} {{\n%z = nn.{1} %x, %y "
                              ": {0}\nreturn %z : {0} }",
                              type, op),
                {x, y});
      const auto &expected = op == StringRef("div") ? quotients : rests;
      for (size_t i = 0; i < x.size(); ++i)
        EXPECT_EQ(z.ints[i], int64_t(expected[i]))
            << x[i] << " " << op << " " << y[i] << " in " << element;
    }
  }
}

// A float that an integer type cannot hold becomes the nearest integer that it
// can, and NaN the smallest.
TEST_P(EdgeOperandsTest, Casts) {
  std::vector<double> x = {NAN,   INFINITY,     -INFINITY,    1e30,
                           -1e30, 2147483648.0, 300.5,        -1.5,
                           -0.5,  127,          -2147483648.0};
  for (auto [element, low, high] : {std::tuple("i64", -0x1p63, 0x1p63),
                                    std::tuple("i32", -0x1p31, 0x1p31 - 1),
                                    std::tuple("ui8", 0.0, 255.0)}) {
    nn::ReferenceTensor z = runOn(
        context, GetParam(),
        llvm::formatv("func.func private @k(%x: tensor<11xf32>) -> "
                      "tensor<11x{0}> attributes {{nn.kernel} {{\n%z = nn.cast "
                      "%x : tensor<11xf32> -> tensor<11x{0}>\nreturn %z : "
                      "tensor<11x{0}> }",
                      element),
        {x});
    for (size_t i = 0; i < x.size(); ++i) {
      double expected = std::isnan(x[i]) ? low : std::trunc(x[i]);
      int64_t integer = expected >= 0x1p63
                            ? INT64_MAX
                            : int64_t(std::clamp(expected, low, high));
      if (high < 0x1p63)
        integer = std::min(integer, int64_t(high));
      EXPECT_EQ(z.ints[i], integer) << x[i] << " as " << element;
    }
  }
}

// Negative ids count from the end; an id outside the table gives NaN.
TEST_P(EdgeOperandsTest, Lookups) {
  std::vector<double> ids = {0, 3, -1, -4, 4, -5, 0x1p62, -0x1p63},
                      table = {10, 11, 12, 13};
  nn::ReferenceTensor rows = runOn(
      context, GetParam(),
      R"(func.func private @k(%t: tensor<4x1xf32>, %i: tensor<8xi64>) -> tensor<8x1xf32> attributes {nn.kernel} {
        %z = nn.embedding %t, %i : tensor<4x1xf32>, tensor<8xi64> -> tensor<8x1xf32>
        return %z : tensor<8x1xf32> })",
      {table, ids});
  for (size_t i = 0; i < ids.size(); ++i) {
    double at = ids[i] < 0 ? ids[i] + 4 : ids[i];
    if (at >= 0 && at < 4)
      EXPECT_EQ(rows.floats[i], table[size_t(at)]) << "id " << ids[i];
    else
      EXPECT_TRUE(std::isnan(rows.floats[i])) << "id " << ids[i];
  }
  nn::ReferenceTensor whole = runOn(
      context, GetParam(),
      R"(func.func private @k(%t: tensor<4x1xi32>, %i: tensor<8xi64>) -> tensor<8x1xi32> attributes {nn.kernel} {
        %z = nn.embedding %t, %i : tensor<4x1xi32>, tensor<8xi64> -> tensor<8x1xi32>
        return %z : tensor<8x1xi32> })",
      {table, ids});
  EXPECT_EQ(whole.ints[2], 13);
  EXPECT_EQ(whole.ints[4], INT32_MIN);
  nn::ReferenceTensor taken = runOn(
      context, GetParam(),
      R"(func.func private @k(%t: tensor<3x4xf32>, %i: tensor<3x1xi64>) -> tensor<3x1xf32> attributes {nn.kernel} {
        %z = nn.take_along_axis %t, %i : tensor<3x4xf32>, tensor<3x1xi64> -> tensor<3x1xf32>
        return %z : tensor<3x1xf32> })",
      {{10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33}, {3, -1, 4}});
  EXPECT_EQ(taken.floats[0], 13);
  EXPECT_TRUE(std::isnan(taken.floats[1]) && std::isnan(taken.floats[2]));
}

// The loss is as exact as the differences of logits are, however large the
// logits: a log-sum-exp of 1e4 alone would be off by 5e-4.
TEST_P(EdgeOperandsTest, LossesOfLargeLogits) {
  const double shifts[] = {0, 1e2, 1e4, -1e4, 1e6, 0x1p24};
  const double logits[] = {0, 1, 2, -3};
  std::vector<double> x, targets, ones(std::size(shifts), 1);
  for (double shift : shifts) {
    for (double logit : logits)
      x.push_back(shift + 4 * logit);
    targets.push_back(1);
  }
  nn::ReferenceTensor losses = runOn(
      context, GetParam(),
      R"(func.func private @k(%x: tensor<6x4xf32>, %t: tensor<6xi64>, %w: tensor<6xf32>) -> tensor<6xf32> attributes {nn.kernel} {
        %l, %dx = nn.cross_entropy_rows %x, %t, %w, %w : tensor<6x4xf32>, tensor<6xi64>, tensor<6xf32>
        return %l : tensor<6xf32> })",
      {x, targets, ones});
  double expected =
      std::log(std::exp(-4.0) + 1 + std::exp(4.0) + std::exp(-16.0));
  for (size_t i = 0; i < std::size(shifts); ++i)
    EXPECT_NEAR(losses.floats[i], expected, 4e-7 * expected)
        << "logits of " << shifts[i];
}

} // namespace
