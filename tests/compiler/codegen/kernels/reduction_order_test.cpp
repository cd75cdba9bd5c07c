// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rule of ReductionOrder.h: an op has the same bits in every kernel. Each
// test reduces one value in several kernels, beside little and much other work,
// beside conditions and addresses that would cut the loop elsewhere, and beside
// other templates' sums, as host loops and as grids of threads.
#include "tests/compiler/codegen/kernels/kernel_harness.h"

#include "llvm/Support/FormatVariadic.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::testing;

namespace {

// The parameter is the number of threads per block of a grid, or 0 for loops.
class OrderTest : public ::testing::TestWithParam<int> {
protected:
  OrderTest() { prepareContext(context); }

  // `body` is the text after the function's name. Result 0 is the reduction of
  // the same value in all kernels of a test.
  void add(const std::string &body) {
    text += llvm::formatv("func.func private @k{0}{1}\n", count++, body);
  }

  // Returns result 0 of a kernel on the operands that all kernels begin with.
  Buffer firstResult(LoadedKernels &loaded, func::FuncOp kernel) {
    std::vector<Buffer> buffers;
    uint64_t state = 7;
    for (Type type : kernel.getArgumentTypes()) {
      auto tensor = cast<RankedTensorType>(type);
      nn::ReferenceTensor values = randomTensor(tensor, 0, state);
      values.round();
      buffers.emplace_back(tensor).fill(values);
    }
    for (Type type : kernel.getResultTypes())
      buffers.emplace_back(cast<RankedTensorType>(type));
    std::vector<void *> pointers;
    for (Buffer &buffer : buffers)
      pointers.push_back(buffer.data());
    loaded.run(kernel.getSymName(), 0, loaded.extent(kernel), pointers.data());
    return buffers[kernel.getNumArguments()];
  }

  void runAll(const std::string &cpu = "native") {
    LoadedKernels loaded(context, text, cpu, GetParam());
    std::vector<func::FuncOp> kernels = loaded.kernels();
    ASSERT_EQ(size_t(count), kernels.size());
    Buffer expected = firstResult(loaded, kernels.front());
    for (func::FuncOp kernel : kernels) {
      EXPECT_EQ("", checkKernel(loaded, kernel));
      EXPECT_TRUE(firstResult(loaded, kernel) == expected)
          << kernel.getSymName().str() << " has other bits";
    }
  }

  MLIRContext context;
  std::string text;
  int count = 0;
};

std::string nameOf(const ::testing::TestParamInfo<int> &info) {
  return info.param ? std::to_string(info.param) : "Loops";
}
// Tests for host loops only.
class LoopOrderTest : public OrderTest {};

INSTANTIATE_TEST_SUITE_P(Loops, OrderTest, ::testing::Values(0), nameOf);
INSTANTIATE_TEST_SUITE_P(Loops, LoopOrderTest, ::testing::Values(0), nameOf);
INSTANTIATE_TEST_SUITE_P(Grid, OrderTest, ::testing::Values(1, 128), nameOf);

// A row beside cheap ops, costly ops, and several other reductions.
void addRows(llvm::function_ref<void(const std::string &)> add,
             const std::string &columns) {
  auto kernel = [&](std::string results, std::string body) {
    std::string row = "tensor<6x" + columns + "xf32>";
    std::string all = "(%x: $R) -> (tensor<6x1xf32>" + results +
                      R"() attributes {nn.kernel} {
      %s = nn.reduce sum %x [1] : $R -> tensor<6x1xf32>
)" + body + "}";
    for (size_t at; (at = all.find("$R")) != std::string::npos;)
      all.replace(at, 2, row);
    add(all);
  };
  kernel("", "return %s : tensor<6x1xf32>");
  kernel(", $R", R"(
      %y = nn.exp %x : $R
      return %s, %y : tensor<6x1xf32>, $R)");
  kernel(", $R, tensor<6x1xf32>", R"(
      %a = nn.erf %x : $R
      %b = nn.tanh %a : $R
      %c = nn.exp %b : $R
      %y = nn.erf %c : $R
      %t = nn.reduce sum %y [1] : $R -> tensor<6x1xf32>
      return %s, %y, %t : tensor<6x1xf32>, $R, tensor<6x1xf32>)");
  kernel(", tensor<6x1xf32>, tensor<6x1xf32>, tensor<6x1xf32>", R"(
      %y = nn.mul %x, %x : $R
      %a = nn.reduce max %x [1] : $R -> tensor<6x1xf32>
      %b = nn.reduce sum %y [1] : $R -> tensor<6x1xf32>
      %c = nn.reduce min %y [1] : $R -> tensor<6x1xf32>
      return %s, %a, %b, %c : tensor<6x1xf32>, tensor<6x1xf32>, tensor<6x1xf32>, tensor<6x1xf32>)");
}

// A length that no vector divides.
TEST_P(OrderTest, Short) {
  addRows([&](const std::string &body) { add(body); }, "83");
  runAll();
}

// Long enough for several parts (ReductionOrder.h) with a tail.
TEST_P(OrderTest, Long) {
  addRows([&](const std::string &body) { add(body); }, "260");
  runAll();
}

// Fewer lanes per vector, hence other parts.
TEST_P(LoopOrderTest, LongAvx2) {
  addRows([&](const std::string &body) { add(body); }, "260");
  runAll("x86-64-v3");
}

// Rows of 12 · 20 elements: a bias that repeats every 20 elements makes
// addresses that are linear in 20 lanes only, and a concat changes its source
// at elements that no vector ends at.
TEST_P(OrderTest, Addresses) {
  add(R"((%x: tensor<5x12x20xf32>) -> tensor<5x1x1xf32> attributes {nn.kernel} {
    %s = nn.reduce sum %x [1, 2] : tensor<5x12x20xf32> -> tensor<5x1x1xf32>
    return %s : tensor<5x1x1xf32> })");
  add(R"((%x: tensor<5x12x20xf32>, %b: tensor<12x1xf32>) -> (tensor<5x1x1xf32>, tensor<5x12x20xf32>) attributes {nn.kernel} {
    %s = nn.reduce sum %x [1, 2] : tensor<5x12x20xf32> -> tensor<5x1x1xf32>
    %0 = nn.broadcast %b : tensor<12x1xf32> -> tensor<5x12x20xf32>
    %y = nn.mul %x, %0 : tensor<5x12x20xf32>
    return %s, %y : tensor<5x1x1xf32>, tensor<5x12x20xf32> })");
  add(R"((%x: tensor<5x12x20xf32>, %b: tensor<5x12x7xf32>) -> (tensor<5x1x1xf32>, tensor<5x1x1xf32>) attributes {nn.kernel} {
    %s = nn.reduce sum %x [1, 2] : tensor<5x12x20xf32> -> tensor<5x1x1xf32>
    %0 = nn.slice %x [0, 0, 7] by [1, 1, 1] : tensor<5x12x20xf32> -> tensor<5x12x13xf32>
    %1 = nn.concat %b, %0 {axis = 2} : (tensor<5x12x7xf32>, tensor<5x12x13xf32>) -> tensor<5x12x20xf32>
    %t = nn.reduce sum %1 [1, 2] : tensor<5x12x20xf32> -> tensor<5x1x1xf32>
    return %s, %t : tensor<5x1x1xf32>, tensor<5x1x1xf32> })");
  runAll();
}

// The same with a run that the bias divides into multiples of 64.
TEST_P(OrderTest, WholeVectors) {
  add(R"((%x: tensor<5x3x128xf32>) -> tensor<5x1x1xf32> attributes {nn.kernel} {
    %s = nn.reduce sum %x [1, 2] : tensor<5x3x128xf32> -> tensor<5x1x1xf32>
    return %s : tensor<5x1x1xf32> })");
  add(R"((%x: tensor<5x3x128xf32>, %b: tensor<3x1xf32>) -> (tensor<5x1x1xf32>, tensor<5x3x128xf32>) attributes {nn.kernel} {
    %s = nn.reduce sum %x [1, 2] : tensor<5x3x128xf32> -> tensor<5x1x1xf32>
    %0 = nn.broadcast %b : tensor<3x1xf32> -> tensor<5x3x128xf32>
    %y = nn.mul %x, %0 : tensor<5x3x128xf32>
    return %s, %y : tensor<5x1x1xf32>, tensor<5x3x128xf32> })");
  runAll();
}

// The lanes of a part end where no vector does.
TEST_P(OrderTest, Cuts) {
  add(R"((%x: tensor<5x300xf32>) -> tensor<5x1xf32> attributes {nn.kernel} {
    %s = nn.reduce sum %x [1] : tensor<5x300xf32> -> tensor<5x1xf32>
    return %s : tensor<5x1xf32> })");
  add(R"((%x: tensor<5x300xf32>, %b: tensor<5x131xf32>) -> (tensor<5x1xf32>, tensor<5x1xf32>, tensor<5x300xf32>) attributes {nn.kernel} {
    %s = nn.reduce sum %x [1] : tensor<5x300xf32> -> tensor<5x1xf32>
    %0 = nn.slice %x [0, 131] by [1, 1] : tensor<5x300xf32> -> tensor<5x169xf32>
    %1 = nn.concat %b, %0 {axis = 1} : (tensor<5x131xf32>, tensor<5x169xf32>) -> tensor<5x300xf32>
    %y = nn.mul %x, %1 : tensor<5x300xf32>
    %t = nn.reduce sum %y [1] : tensor<5x300xf32> -> tensor<5x1xf32>
    return %s, %t, %y : tensor<5x1xf32>, tensor<5x1xf32>, tensor<5x300xf32> })");
  runAll();
}

// The rows of a batch norm lie apart: runs of 81 elements.
TEST_P(OrderTest, Runs) {
  add(R"((%x: tensor<4x3x9x9xf32>) -> tensor<1x3x1x1xf32> attributes {nn.kernel} {
    %s = nn.reduce sum %x [0, 2, 3] : tensor<4x3x9x9xf32> -> tensor<1x3x1x1xf32>
    return %s : tensor<1x3x1x1xf32> })");
  add(R"((%x: tensor<4x3x9x9xf32>) -> (tensor<1x3x1x1xf32>, tensor<1x3x1x1xf32>) attributes {nn.kernel} {
    %s = nn.reduce sum %x [0, 2, 3] : tensor<4x3x9x9xf32> -> tensor<1x3x1x1xf32>
    %a = nn.erf %x : tensor<4x3x9x9xf32>
    %b = nn.tanh %a : tensor<4x3x9x9xf32>
    %c = nn.exp %b : tensor<4x3x9x9xf32>
    %d = nn.erf %c : tensor<4x3x9x9xf32>
    %t = nn.reduce sum %d [0, 2, 3] : tensor<4x3x9x9xf32> -> tensor<1x3x1x1xf32>
    return %s, %t : tensor<1x3x1x1xf32>, tensor<1x3x1x1xf32> })");
  runAll();
}

// Sums of rows in blocks: alone, down columns, beside a map, and beside
// reductions of the rows. One block alone is a kernel of columns.
void addBlocks(llvm::function_ref<void(const std::string &)> add,
               const std::string &columns) {
  auto kernel = [&](std::string results, std::string body) {
    std::string all = "(%x: $R) -> ($S" + results +
                      R"() attributes {nn.kernel} {
      %s = nn.reduce sum %x [1] : $R -> $S
)" + body + "}";
    for (auto [name, type] :
         {std::pair("$R", "tensor<1x24x" + columns + "xf32>"),
          std::pair("$S", "tensor<1x1x" + columns + "xf32>"),
          std::pair("$T", std::string("tensor<1x24x1xf32>"))})
      for (size_t at; (at = all.find(name)) != std::string::npos;)
        all.replace(at, 2, type);
    add(all);
  };
  kernel("", "return %s : $S");
  kernel(", $R", R"(
      %y = nn.exp %x : $R
      return %s, %y : $S, $R)");
  kernel(", $R, $T", R"(
      %t = nn.reduce sum %x [2] : $R -> $T
      %b = nn.broadcast %t : $T -> $R
      %y = nn.mul %x, %b : $R
      return %s, %y, %t : $S, $R, $T)");
  kernel(", $S, $S, $S, $T", R"(
      %y = nn.mul %x, %x : $R
      %z = nn.exp %x : $R
      %a = nn.reduce sum %y [1] : $R -> $S
      %b = nn.reduce sum %z [1] : $R -> $S
      %w = nn.mul %z, %x : $R
      %c = nn.reduce sum %w [1] : $R -> $S
      %t = nn.reduce sum %y [2] : $R -> $T
      return %s, %a, %b, %c, %t : $S, $S, $S, $S, $T)");
}

// On a GPU one warp shares such a row.
TEST_P(OrderTest, BlocksOfRows) {
  addBlocks([&](const std::string &body) { add(body); }, "768");
  runAll();
}

// And a whole block this one.
TEST_P(OrderTest, BlocksOfLongRows) {
  addBlocks([&](const std::string &body) { add(body); }, "1300");
  runAll();
}

// More rows than the row template adds one after the other: with and without a
// quotient in the kernel.
TEST_P(OrderTest, ManyRows) {
  add(R"((%x: tensor<2x700x24xf32>) -> tensor<2x1x24xf32> attributes {nn.kernel} {
    %s = nn.reduce sum %x [1] : tensor<2x700x24xf32> -> tensor<2x1x24xf32>
    return %s : tensor<2x1x24xf32> })");
  add(R"((%x: tensor<2x700x24xf32>) -> (tensor<2x1x24xf32>, tensor<2x1x24xf32>) attributes {nn.kernel} {
    %s = nn.reduce sum %x [1] : tensor<2x700x24xf32> -> tensor<2x1x24xf32>
    %y = nn.exp %s : tensor<2x1x24xf32>
    return %s, %y : tensor<2x1x24xf32>, tensor<2x1x24xf32> })");
  runAll();
}

// Columns of another kernel's widths: values of two bytes allow wider vectors.
TEST_P(OrderTest, Columns) {
  add(R"((%x: tensor<300x256xf32>) -> tensor<1x256xf32> attributes {nn.kernel} {
    %s = nn.reduce sum %x [0] : tensor<300x256xf32> -> tensor<1x256xf32>
    return %s : tensor<1x256xf32> })");
  add(R"((%x: tensor<300x256xf32>, %z: tensor<300x256xbf16>) -> (tensor<1x256xf32>, tensor<1x256xf32>) attributes {nn.kernel, test.adds_bf16} {
    %s = nn.reduce sum %x [0] : tensor<300x256xf32> -> tensor<1x256xf32>
    %y = nn.cast %z : tensor<300x256xbf16> -> tensor<300x256xf32>
    %t = nn.reduce sum %y [0] : tensor<300x256xf32> -> tensor<1x256xf32>
    return %s, %t : tensor<1x256xf32>, tensor<1x256xf32> })");
  runAll();
}

// The maximum and the sum of a long row's softmax take one loop of a grid, also
// beside other reductions of both of their stages and beside another softmax.
TEST_P(OrderTest, LongSoftmax) {
  auto kernel = [&](const std::string &results, const std::string &body) {
    std::string all = "(%x: $R, %z: $R) -> (tensor<3x1xf32>" + results +
                      R"() attributes {nn.kernel} {
      %m = nn.reduce max %x [1] : $R -> tensor<3x1xf32>
      %0 = nn.broadcast %m : tensor<3x1xf32> -> $R
      %1 = nn.sub %x, %0 : $R
      %e = nn.exp %1 : $R
      %s = nn.reduce sum %e [1] : $R -> tensor<3x1xf32>
)" + body + "}";
    for (size_t at; (at = all.find("$R")) != std::string::npos;)
      all.replace(at, 2, "tensor<3x1500xf32>");
    add(all);
  };
  kernel("", "return %s : tensor<3x1xf32>");
  kernel(", $R, tensor<3x1xf32>", R"(
      %y = nn.mul %x, %z : $R
      %t = nn.reduce sum %y [1] : $R -> tensor<3x1xf32>
      return %s, %y, %t : tensor<3x1xf32>, $R, tensor<3x1xf32>)");
  kernel(", tensor<3x1xf32>", R"(
      %y = nn.mul %e, %z : $R
      %t = nn.reduce sum %y [1] : $R -> tensor<3x1xf32>
      return %s, %t : tensor<3x1xf32>, tensor<3x1xf32>)");
  kernel(", tensor<3x1xf32>", R"(
      %n = nn.reduce max %z [1] : $R -> tensor<3x1xf32>
      %2 = nn.broadcast %n : tensor<3x1xf32> -> $R
      %3 = nn.sub %z, %2 : $R
      %f = nn.exp %3 : $R
      %t = nn.reduce sum %f [1] : $R -> tensor<3x1xf32>
      return %s, %t : tensor<3x1xf32>, tensor<3x1xf32>)");
  runAll();
}

} // namespace
