// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every nn op that kernels are made of, compiled as host loops and as grids of
// threads, against the reference interpreter: several shapes with tails, f32
// and bf16, and the outer range cut into pieces, which must not change a bit.
#include "tests/compiler/codegen/kernels/kernel_test.h"

#include "runtime/numeric/philox.h"

#include <cmath>
#include <cstring>

using namespace mlir;
using namespace fsdpc;

using namespace fsdpc::testing;

namespace {

// Tests for host loops only.
class LoopTest : public KernelTest {};

std::string nameOf(const ::testing::TestParamInfo<int> &info) {
  return info.param ? std::to_string(info.param) : "Loops";
}
INSTANTIATE_TEST_SUITE_P(Loops, KernelTest, ::testing::Values(0), nameOf);
INSTANTIATE_TEST_SUITE_P(Loops, LoopTest, ::testing::Values(0), nameOf);
INSTANTIATE_TEST_SUITE_P(Grid, KernelTest, ::testing::Values(1, 32, 128),
                         nameOf);

// Every unary op in every float type, on a length that no vector divides.
TEST_P(KernelTest, UnaryOps) {
  for (const char *op :
       {"neg", "abs", "exp", "tanh", "erf", "sigmoid", "relu", "sin", "cos",
        "atan", "floor", "round", "silu", "stop_gradient", "gelu erf",
        "gelu tanh", "expm1", "softplus"})
    for (const char *type : kFloats)
      if (hasCode(op, type))
        add(expand(
            R"((%x: tensor<3x17x$T>) -> tensor<3x17x$T> attributes {nn.kernel} {
        %y = nn.$O %x : tensor<3x17x$T>
        return %y : tensor<3x17x$T> })",
            {{"T", type}, {"O", op}}));
  for (const char *op : {"log", "log1p", "sqrt", "rsqrt"})
    for (const char *type : kFloats)
      add(expand(
          R"((%x: tensor<35x$T> {test.positive}) -> tensor<35x$T> attributes {nn.kernel} {
        %y = nn.$O %x : tensor<35x$T>
        return %y : tensor<35x$T> })",
          {{"T", type}, {"O", op}}));
  runAll();
}

// Every binary op and comparison, integers included.
TEST_P(KernelTest, BinaryOps) {
  for (const char *op :
       {"add", "sub", "mul", "div", "mod", "maximum", "minimum"})
    for (const char *type : {"f32", "bf16", "f64", "i64", "i32"})
      add(expand(
          R"((%x: tensor<67x$T>, %y: tensor<67x$T>) -> tensor<67x$T> attributes {nn.kernel} {
        %z = nn.$O %x, %y : tensor<67x$T>
        return %z : tensor<67x$T> })",
          {{"T", type}, {"O", op}}));
  for (const char *op : {"eq", "ne", "lt", "le", "gt", "ge"})
    for (const char *type : {"f32", "i64"})
      add(expand(R"((%x: tensor<67x$T>, %y: tensor<67x$T>, %a: tensor<67xi1>)
        -> (tensor<67xi1>, tensor<67x$T>) attributes {nn.kernel} {
        %c = nn.cmp $O %x, %y : tensor<67x$T> -> tensor<67xi1>
        %d = nn.and %c, %a : tensor<67xi1>
        %e = nn.not %d : tensor<67xi1>
        %s = nn.select %e, %x, %y : tensor<67xi1>, tensor<67x$T>
        return %e, %s : tensor<67xi1>, tensor<67x$T> })",
                 {{"T", type}, {"O", op}}));
  for (const char *op : {"gelu_grad erf", "gelu_grad tanh", "silu_grad"})
    for (const char *type : kFloats)
      if (hasCode(op, type))
        add(expand(
            R"((%x: tensor<5x33x$T>, %y: tensor<5x33x$T>) -> tensor<5x33x$T> attributes {nn.kernel} {
        %z = nn.$O %x, %y : tensor<5x33x$T>
        return %z : tensor<5x33x$T> })",
            {{"T", type}, {"O", op}}));
  for (const char *type : kFloats)
    add(expand(
        R"((%x: tensor<40x$T> {test.positive}, %y: tensor<40x$T>) -> tensor<40x$T> attributes {nn.kernel} {
      %z = nn.pow %x, %y : tensor<40x$T>
      return %z : tensor<40x$T> })",
        {{"T", type}}));
  runAll();
}

// Every pair of element types.
TEST_P(KernelTest, Casts) {
  const char *const types[] = {"f32", "bf16", "f64", "i64", "i32", "i1", "ui8"};
  for (const char *from : types)
    for (const char *to : types)
      if (std::string(from) != to)
        add(expand(
            R"((%x: tensor<19x$F> {test.bound = 2}) -> tensor<19x$T> attributes {nn.kernel} {
          %y = nn.cast %x : tensor<19x$F> -> tensor<19x$T>
          return %y : tensor<19x$T> })",
            {{"F", from}, {"T", to}}));
  runAll();
}

TEST_P(KernelTest, LongElementwise) {
  // More than one block of the range, with a tail.
  for (const char *type : {"f32", "bf16"})
    add(expand(
        R"((%x: tensor<7x1499x$T>, %b: tensor<1499x$T>) -> (tensor<7x1499x$T>, tensor<7x1499x$T>) attributes {nn.kernel} {
      %0 = nn.broadcast %b : tensor<1499x$T> -> tensor<7x1499x$T>
      %h = nn.add %x, %0 : tensor<7x1499x$T>
      %y = nn.gelu tanh %h : tensor<7x1499x$T>
      return %h, %y : tensor<7x1499x$T>, tensor<7x1499x$T> })",
        {{"T", type}}));
  add(R"((%x: tensor<3x4099xf32>) -> tensor<3x4099xf32> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<3x4099xf32>
    return %y : tensor<3x4099xf32> })");
  add(R"((%x: tensor<3x5000xf32>, %z: tensor<3x5001xf32>) -> tensor<3x10001xf32> attributes {nn.kernel} {
    %y = nn.concat %x, %z {axis = 1} : (tensor<3x5000xf32>, tensor<3x5001xf32>) -> tensor<3x10001xf32>
    return %y : tensor<3x10001xf32> })");
  runAll();
}

// Ops that only move elements: a kernel turns them into index arithmetic.
TEST_P(KernelTest, Moves) {
  for (const char *type : {"f32", "bf16", "i1"}) {
    std::vector<std::pair<std::string, std::string>> t = {{"T", type}};
    add(expand(
        R"((%x: tensor<2x20x48x$T>) -> tensor<2x4x20x12x$T> attributes {nn.kernel} {
      %0 = nn.reshape %x : tensor<2x20x48x$T> -> tensor<2x20x4x12x$T>
      %1 = nn.transpose %0 [0, 2, 1, 3] : tensor<2x20x4x12x$T> -> tensor<2x4x20x12x$T>
      return %1 : tensor<2x4x20x12x$T> })",
        t));
    add(expand(
        R"((%x: tensor<40x144x$T>) -> tensor<8x20x12x$T> attributes {nn.kernel} {
      %s = nn.slice %x [0, 48] by [1, 1] : tensor<40x144x$T> -> tensor<40x48x$T>
      %0 = nn.reshape %s : tensor<40x48x$T> -> tensor<2x20x4x12x$T>
      %1 = nn.transpose %0 [0, 2, 1, 3] : tensor<2x20x4x12x$T> -> tensor<2x4x20x12x$T>
      %2 = nn.reshape %1 : tensor<2x4x20x12x$T> -> tensor<8x20x12x$T>
      return %2 : tensor<8x20x12x$T> })",
        t));
    add(expand(
        R"((%x: tensor<33x21x$T>) -> tensor<21x33x$T> attributes {nn.kernel} {
      %1 = nn.transpose %x [1, 0] : tensor<33x21x$T> -> tensor<21x33x$T>
      return %1 : tensor<21x33x$T> })",
        t));
    add(expand(
        R"((%x: tensor<9x40x$T>) -> tensor<3x19x$T> attributes {nn.kernel} {
      %1 = nn.slice %x [8, 1] by [-3, 2] : tensor<9x40x$T> -> tensor<3x19x$T>
      return %1 : tensor<3x19x$T> })",
        t));
    add(expand(
        R"((%x: tensor<3x19x$T>) -> tensor<9x40x$T> attributes {nn.kernel} {
      %1 = nn.pad %x [8, 1] by [-3, 2] : tensor<3x19x$T> -> tensor<9x40x$T>
      return %1 : tensor<9x40x$T> })",
        t));
    add(expand(
        R"((%x: tensor<3x19x$T>) -> tensor<5x40x$T> attributes {nn.kernel} {
      %1 = nn.pad %x [1, 7] by [1, 1] : tensor<3x19x$T> -> tensor<5x40x$T>
      return %1 : tensor<5x40x$T> })",
        t));
    add(expand(
        R"((%x: tensor<5x16x$T>, %y: tensor<5x3x$T>, %z: tensor<5x29x$T>) -> tensor<5x48x$T> attributes {nn.kernel} {
      %1 = nn.concat %x, %y, %z {axis = 1} : (tensor<5x16x$T>, tensor<5x3x$T>, tensor<5x29x$T>) -> tensor<5x48x$T>
      return %1 : tensor<5x48x$T> })",
        t));
    add(expand(
        R"((%x: tensor<2x17x$T>, %y: tensor<3x17x$T>) -> tensor<5x17x$T> attributes {nn.kernel} {
      %1 = nn.concat %x, %y {axis = 0} : (tensor<2x17x$T>, tensor<3x17x$T>) -> tensor<5x17x$T>
      return %1 : tensor<5x17x$T> })",
        t));
    // Merges heads back into rows, three of them side by side.
    add(expand(
        R"((%q: tensor<2x4x5x12x$T>, %k: tensor<2x4x5x12x$T>) -> tensor<10x96x$T> attributes {nn.kernel} {
      %0 = nn.transpose %q [0, 2, 1, 3] : tensor<2x4x5x12x$T> -> tensor<2x5x4x12x$T>
      %1 = nn.reshape %0 : tensor<2x5x4x12x$T> -> tensor<10x48x$T>
      %2 = nn.transpose %k [0, 2, 1, 3] : tensor<2x4x5x12x$T> -> tensor<2x5x4x12x$T>
      %3 = nn.reshape %2 : tensor<2x5x4x12x$T> -> tensor<10x48x$T>
      %4 = nn.concat %1, %3 {axis = 1} : (tensor<10x48x$T>, tensor<10x48x$T>) -> tensor<10x96x$T>
      return %4 : tensor<10x96x$T> })",
        t));
    add(expand(
        R"((%t: tensor<11x36x$T>, %i: tensor<2x7xi64> {test.bound = 22, test.low = -11}) -> tensor<2x7x36x$T> attributes {nn.kernel} {
      %j = nn.constant dense<11> : tensor<2x7xi64>
      %m = nn.mod %i, %j : tensor<2x7xi64>
      %1 = nn.embedding %t, %m : tensor<11x36x$T>, tensor<2x7xi64> -> tensor<2x7x36x$T>
      return %1 : tensor<2x7x36x$T> })",
        t));
    add(expand(
        R"((%x: tensor<6x33x$T>, %i: tensor<6x1xi64> {test.bound = 40, test.low = -3}) -> tensor<6x1x$T> attributes {nn.kernel} {
      %1 = nn.take_along_axis %x, %i : tensor<6x33x$T>, tensor<6x1xi64> -> tensor<6x1x$T>
      return %1 : tensor<6x1x$T> })",
        t));
  }
  for (const char *type : {"f32", "bf16", "i64", "i32"})
    for (const char *axis : {"0", "1"})
      add(expand(
          R"((%x: tensor<6x33x$T> {test.bound = 5}) -> tensor<6x33x$T> attributes {nn.kernel} {
        %1 = nn.iota {axis = $A} : tensor<6x33x$T>
        %2 = nn.add %x, %1 : tensor<6x33x$T>
        return %2 : tensor<6x33x$T> })",
          {{"T", type}, {"A", axis}}));
  runAll();
}

// Reads two elements of the row for each one it writes.
TEST_P(KernelTest, Rotary) {
  for (const char *type : {"f32", "bf16"})
    for (const char *form : {"", "{transposed}"})
      add(expand(
          R"((%x: tensor<2x3x7x24x$T>, %c: tensor<1x1x7x24x$T>, %s: tensor<1x1x7x24x$T>) -> tensor<2x3x7x24x$T> attributes {nn.kernel} {
        %y = nn.rotary %x, %c, %s $F : tensor<2x3x7x24x$T>, tensor<1x1x7x24x$T>, tensor<1x1x7x24x$T>
        return %y : tensor<2x3x7x24x$T> })",
          {{"T", type}, {"F", form}}));
  runAll();
}

// A word of Philox serves four elements, counted over the whole tensor.
TEST_P(KernelTest, Dropout) {
  // Lanes in groups of four, and rows whose length is not a multiple of four.
  for (const char *type : {"f32", "bf16"})
    for (const char *n : {"1", "17", "64", "250"})
      add(expand(
          R"((%x: tensor<3x$Nx$T>, %r: tensor<4xi32>) -> tensor<3x$Nx$T> attributes {nn.kernel} {
        %y = nn.dropout %x, %r {ratio = 0.25 : f64, op = 3} : tensor<3x$Nx$T>, tensor<4xi32>
        return %y : tensor<3x$Nx$T> })",
          {{"T", type}, {"N", n}}));
  // Together with a broadcast, which needs loops over rows.
  add(R"((%x: tensor<3x37xf32>, %b: tensor<37xf32>, %r: tensor<4xi32>) -> tensor<3x37xf32> attributes {nn.kernel} {
    %0 = nn.broadcast %b : tensor<37xf32> -> tensor<3x37xf32>
    %1 = nn.add %x, %0 : tensor<3x37xf32>
    %y = nn.dropout %1, %r {ratio = 0.1 : f64, op = 0} : tensor<3x37xf32>, tensor<4xi32>
    return %y : tensor<3x37xf32> })");
  runAll();
}

// Alone, and as the noise of rows.
TEST_P(KernelTest, Uniform) {
  for (const char *n : {"1", "17", "64", "250"}) {
    add(expand(
        R"((%r: tensor<4xi32>) -> tensor<3x$Nxf32> attributes {nn.kernel} {
        %y = nn.uniform %r {op = 3} : tensor<4xi32> -> tensor<3x$Nxf32>
        return %y : tensor<3x$Nxf32> })",
        {{"N", n}}));
    add(expand(
        R"((%x: tensor<3x$Nxf32>, %r: tensor<4xi32>) -> tensor<3x1xf32> attributes {nn.kernel} {
        %u = nn.uniform %r {op = 5} : tensor<4xi32> -> tensor<3x$Nxf32>
        %0 = nn.mul %x, %u : tensor<3x$Nxf32>
        %y = nn.reduce sum %0 [1] : tensor<3x$Nxf32> -> tensor<3x1xf32>
        return %y : tensor<3x1xf32> })",
        {{"N", n}}));
  }
  runAll();
}

// Random words and floats of several sizes; 0 has no digits to lose.
TEST_P(KernelTest, RoundStochastic) {
  for (const char *factor : {"0.0", "1.0", "1.0e-39", "1.0e38"})
    add(expand(
        R"((%x: tensor<4099xf32>, %w: tensor<4099xi32>) -> tensor<4099xf32> attributes {nn.kernel} {
      %f = nn.constant dense<$F> : tensor<4099xf32>
      %0 = nn.mul %x, %f : tensor<4099xf32>
      %y = nn.round_stochastic %0, %w : tensor<4099xf32>, tensor<4099xi32>
      return %y : tensor<4099xf32> })",
        {{"F", factor}}));
  runAll();
}

// Rows of the table that several tokens share, with a padding row and added to
// an earlier gradient.
TEST_P(KernelTest, EmbeddingGrad) {
  for (const char *type : {"f32", "bf16", "f16"})
    for (const char *n : {"1", "24", "65", "130"})
      for (const char *padding : {"", "{padding_index = 2}"})
        add(expand(
            R"((%g: tensor<2x9x$Nx$T>, %i: tensor<2x9xi64> {test.bound = 6}) -> tensor<6x$Nx$T> attributes {nn.kernel} {
          %y = nn.embedding_grad %g, %i $P : tensor<2x9x$Nx$T>, tensor<2x9xi64> -> tensor<6x$Nx$T>
          return %y : tensor<6x$Nx$T> })",
            {{"T", type}, {"N", n}, {"P", padding}}));
  for (const char *type : {"f32", "bf16", "f16"})
    for (const char *count : {"1", "9", "256"})
      add(expand(
          R"((%g: tensor<$Cx40x$T>, %i: tensor<$Cxi64> {test.bound = 6}, %a: tensor<6x40x$T>) -> tensor<6x40x$T> attributes {nn.kernel} {
        %y = nn.embedding_grad %g, %i accumulate %a : tensor<$Cx40x$T>, tensor<$Cxi64>, accumulate tensor<6x40x$T> -> tensor<6x40x$T>
        return %y : tensor<6x40x$T> })",
          {{"T", type}, {"C", count}}));
  runAll();
}

// AdamW over a range of a shard, cut anywhere, with a bf16 copy.
TEST_P(KernelTest, Optimizer) {
  text = R"(
module {
  func.func private @adamw(%p: f32, %g: f32, %m: f32, %v: f32, %lr: f64, %step: f64, %decay: f64) -> (f32, f32, f32)
      attributes {nn.compute = bf16, nn.kernel, nn.optimizer} {
    %one = arith.constant 1.0 : f64
    %b1 = arith.constant 0.9 : f64
    %p1 = math.powf %b1, %step : f64
    %c1 = arith.subf %one, %p1 : f64
    %s = arith.divf %lr, %c1 : f64
    %s32 = arith.truncf %s : f64 to f32
    %d = arith.mulf %lr, %decay : f64
    %d1 = arith.subf %one, %d : f64
    %d32 = arith.truncf %d1 : f64 to f32
    %b = arith.constant 0.9 : f32
    %c = arith.constant 0.1 : f32
    %e = arith.constant 1.0e-8 : f32
    %0 = arith.mulf %m, %b : f32
    %1 = arith.mulf %g, %c : f32
    %m1 = arith.addf %0, %1 : f32
    %2 = arith.mulf %g, %g : f32
    %v1 = arith.addf %v, %2 : f32
    %3 = math.sqrt %v1 : f32
    %4 = arith.addf %3, %e : f32
    %5 = arith.divf %m1, %4 : f32
    %6 = arith.mulf %5, %s32 : f32
    %7 = arith.mulf %p, %d32 : f32
    %8 = arith.subf %7, %6 : f32
    return %8, %m1, %v1 : f32, f32, f32
  }
})";
  LoadedKernels loaded(context, text, "native", GetParam());
  constexpr int n = 103, room = 104; // buffers are aligned
  float scale = 0.5f;
  double numbers[4] = {0.01, 3, 0.1, 0};
  auto run = [&](std::vector<int64_t> cuts) {
    std::vector<float> state(4 * room);
    std::vector<uint16_t> copy(n);
    for (int i = 0; i < 4 * n; ++i)
      state[i / n * room + i % n] =
          std::sin(1.0f + i) + (i >= 3 * n ? 1.5f : 0);
    std::vector<void *> buffers;
    for (int i = 0; i < 4; ++i)
      buffers.push_back(state.data() + i * room);
    buffers.push_back(copy.data());
    buffers.push_back(&scale);
    int64_t pieces = cuts.size() - 1;
    if (!GetParam()) {
      buffers.push_back(numbers);
      for (int64_t i = 0; i < pieces; ++i)
        loaded.run("adamw", cuts[i], cuts[i + 1], buffers.data());
      return std::pair(state, copy);
    }
    // A grid has one block per segment, which names the member whose rates
    // apply.
    std::vector<int64_t> segments;
    for (int64_t i = 0; i < pieces; ++i)
      segments.insert(segments.end(), {cuts[i], cuts[i + 1], i});
    std::vector<double> rates;
    for (int64_t i = 0; i < pieces; ++i)
      rates.insert(rates.end(), std::begin(numbers), std::end(numbers));
    buffers.push_back(segments.data());
    buffers.push_back(rates.data());
    loaded.run("adamw", 0, pieces, buffers.data());
    return std::pair(state, copy);
  };
  auto [state, copy] = run({0, n});
  EXPECT_EQ(run({0, 5, 40, 42, n}), std::pair(state, copy));
  for (int i = 0; i < n; ++i) {
    float p = std::sin(1.0f + i), g = std::sin(1.0f + n + i) * scale,
          m = std::sin(1.0f + 2 * n + i), v = std::sin(1.0f + 3 * n + i) + 1.5f;
    float m1 = 0.9f * m + 0.1f * g, v1 = v + g * g;
    float p1 =
        p * float(1 - 0.01 * 0.1) -
        m1 / (std::sqrt(v1) + 1e-8f) * float(0.01 / (1 - std::pow(0.9, 3)));
    EXPECT_NEAR(state[i], p1, 1e-6);
    EXPECT_NEAR(state[2 * room + i], m1, 1e-6);
    EXPECT_NEAR(state[3 * room + i], v1, 1e-6);
    uint32_t word = uint32_t(copy[i]) << 16;
    float narrow;
    std::memcpy(&narrow, &word, 4);
    EXPECT_NEAR(narrow, p1, std::abs(p1) / 256);
  }
}

// An optimizer of bf16 parameters, with the words that fsdp.optimizer defines.
class RoundingOptimizer : public LoopTest {
protected:
  // Runs a step of p - lr on the elements from `first` of a parameter, in
  // pieces, and returns the new parameter.
  std::vector<uint16_t> run(std::vector<uint16_t> parameter, double lr,
                            int64_t step, int64_t first = 0,
                            std::vector<int64_t> cuts = {}) {
    text = R"(
module {
  func.func private @rounded(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %word: i32) -> f32
      attributes {nn.kernel, nn.optimizer} {
    %l = arith.truncf %lr : f64 to f32
    %d = arith.mulf %l, %g : f32
    %n = arith.subf %p, %d : f32
    %r = nn.round_stochastic %n, %word : f32, i32
    return %r : f32
  }
})";
    if (!loaded)
      loaded = std::make_unique<LoadedKernels>(context, text);
    std::vector<float> gradient(parameter.size(), 2);
    float scale = 0.5f;
    double numbers[4] = {lr, double(step), 0, 0};
    int64_t key[4] = {seed, stream, step, first};
    void *buffers[] = {parameter.data(), gradient.data(), key, &scale, numbers};
    cuts.insert(cuts.begin(), 0);
    cuts.push_back(int64_t(parameter.size()));
    for (size_t i = 0; i + 1 < cuts.size(); ++i)
      loaded->run("rounded", cuts[i], cuts[i + 1], buffers);
    return parameter;
  }
  static uint16_t bitsOf(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return uint16_t(bits >> 16);
  }

  static constexpr int64_t seed = (int64_t(3) << 32) + 5,
                           stream = int64_t((uint64_t(1) << 63) + 77);
  std::unique_ptr<LoadedKernels> loaded;
};
INSTANTIATE_TEST_SUITE_P(Loops, RoundingOptimizer, ::testing::Values(0),
                         nameOf);

// 1 less 2⁻¹² is one of the neighbours 1 and 1 - 2⁻⁸, the latter once in 16.
TEST_P(RoundingOptimizer, TheMeanIsTheValue) {
  constexpr int elements = 4099, steps = 16;
  const uint16_t above = bitsOf(1), below = bitsOf(1 - 0x1p-8f);
  int lower = 0;
  for (int step = 0; step < steps; ++step)
    for (uint16_t value :
         run(std::vector<uint16_t>(elements, above), 0x1p-12, step)) {
      ASSERT_TRUE(value == above || value == below) << value;
      lower += value == below;
    }
  double expected = elements * steps / 16.0;
  EXPECT_NEAR(lower, expected, 5 * std::sqrt(expected));
}

// A word of Philox for each place in the parameter, whatever part of it a call
// has and however that is cut.
TEST_P(RoundingOptimizer, WordsFollowFromThePlaceAlone) {
  constexpr int elements = 403, first = 48;
  const std::vector<uint16_t> ones(elements, bitsOf(1));
  std::vector<uint16_t> whole = run(ones, 0x1p-9, 9);
  EXPECT_EQ(run(ones, 0x1p-9, 9, 0, {16, 208, 400}), whole);
  EXPECT_EQ(run({ones.begin() + first, ones.end()}, 0x1p-9, 9, first),
            std::vector<uint16_t>(whole.begin() + first, whole.end()));
  EXPECT_NE(run(ones, 0x1p-9, 10), whole);
  for (int i = 0; i < elements; ++i) {
    uint32_t word = runtime::philox({uint32_t(i / 4), uint32_t(stream),
                                     uint32_t(uint64_t(stream) >> 32), 9},
                                    uint64_t(seed))[size_t(i % 4)];
    // 1 - 2⁻⁹ is halfway, and down is towards 0: up where the upper 16 bits
    // reach 32768.
    EXPECT_EQ(whole[size_t(i)], bitsOf(word >> 31 ? 1 : 1 - 0x1p-8f)) << i;
  }
}

TEST_P(RoundingOptimizer, WhatBf16HoldsStays) {
  std::vector<uint16_t> all;
  for (uint32_t bits = 0; bits < 65536; ++bits)
    if (bool isNan = (bits & 0x7f80) == 0x7f80 && (bits & 0x7f) != 0; !isNan)
      all.push_back(uint16_t(bits));
  EXPECT_EQ(run(all, 0, 3), all);
  for (uint16_t bits : run({0x7f81, 0xffff, 0x7fc0}, 0, 3))
    EXPECT_GT(bits & 0x7fff, 0x7f80) << "a NaN became " << bits;
}

// The largest error of the polynomials over their whole range.
TEST_P(KernelTest, MathAccuracy) {
  const char *const names[] = {"exp", "log", "tanh", "erf"};
  for (const char *op : names)
    add(expand(
        R"((%x: tensor<65536xf32>) -> tensor<65536xf32> attributes {nn.kernel} {
      %y = nn.$O %x : tensor<65536xf32>
      return %y : tensor<65536xf32> })",
        {{"O", op}}));
  LoadedKernels loaded(context, text, "native", GetParam());
  double (*const exact[])(double) = {std::exp, std::log, std::tanh, std::erf};
  const std::pair<double, double> ranges[] = {
      {-86.8, 88.7}, {1e-37, 50}, {-10, 10}, {-5, 5}};
  for (int k = 0; k < 4; ++k) {
    std::vector<float> x(65536 + 16), y(65536 + 16);
    auto [low, high] = ranges[k];
    for (int i = 0; i < 65536; ++i)
      x[i] = low + (high - low) * i / 65535;
    void *buffers[] = {x.data(), y.data()};
    auto kernel = loaded.kernels()[k];
    loaded.run(kernel.getSymName(), 0, loaded.extent(kernel), buffers);
    double worst = 0;
    for (int i = 0; i < 65536; ++i) {
      double e = exact[k](x[i]);
      if (e != 0)
        worst = std::max(worst, std::abs(y[i] - e) / std::abs(e));
    }
    std::printf("%s: largest relative error %.2g\n", names[k], worst);
    EXPECT_LT(worst, 2.7e-7) << names[k]; // 4.5 units of 2⁻²⁴

    const float special[] = {0.0f,  -0.0f,  INFINITY, -INFINITY, NAN,
                             -1.0f, 1e-40f, 100.0f,   -120.0f};
    std::copy(std::begin(special), std::end(special), x.begin());
    loaded.run(kernel.getSymName(), 0, 1, buffers);
    for (int i = 0; i < 9; ++i) {
      double e = static_cast<float>(exact[k](special[i]));
      if (std::isnan(e))
        EXPECT_TRUE(std::isnan(y[i])) << names[k] << " of " << special[i];
      else if (std::isinf(e))
        EXPECT_EQ(y[i], e) << names[k] << " of " << special[i];
      else
        EXPECT_NEAR(y[i], e, 1e-6 * std::abs(e) + 1e-37)
            << names[k] << " of " << special[i];
    }
  }
}

// Processors without AVX-512 have other vector widths and round to bf16 with
// integer code.
TEST_P(LoopTest, Avx2) {
  for (const char *type : {"f32", "bf16", "f16"}) {
    std::vector<std::pair<std::string, std::string>> t = {{"T", type}};
    add(expand(
        R"((%x: tensor<5x133x$T>, %w: tensor<133x$T>) -> (tensor<5x133x$T>, tensor<5xf32>) attributes {nn.kernel} {
      %y:2 = nn.rms_norm %x weight %w {epsilon = 1.0e-6 : f64} : tensor<5x133x$T>, weight tensor<133x$T> -> tensor<5x133x$T>, tensor<5xf32>
      return %y#0, %y#1 : tensor<5x133x$T>, tensor<5xf32> })",
        t));
    add(expand(
        R"((%x: tensor<5x133x$T>) -> tensor<5x133x$T> attributes {nn.kernel} {
      %y = nn.gelu erf %x : tensor<5x133x$T>
      %z = nn.tanh %y : tensor<5x133x$T>
      return %z : tensor<5x133x$T> })",
        t));
    add(expand(
        R"((%x: tensor<33x133x$T>) -> tensor<1x133x$T> attributes {nn.kernel} {
      %y = nn.reduce sum %x [0] : tensor<33x133x$T> -> tensor<1x133x$T>
      return %y : tensor<1x133x$T> })",
        t));
  }
  runAll("x86-64-v3");
}

} // namespace
