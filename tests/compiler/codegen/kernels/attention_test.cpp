// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention and its gradient as a program runs them: the compiled row kernel
// and the host device together, against the reference interpreter. The bits
// must not depend on the number of threads.
#include "compiler/dialects/nn/CompositeOps.h"
#include "compiler/dialects/rt/Plans.h"
#include "compiler/dialects/rt/RuntimeCall.h"
#include "runtime/host/host_device.h"
#include "tests/compiler/codegen/kernels/kernel_harness.h"

#include "llvm/Support/FormatVariadic.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

namespace {

using Buffer = fsdpc::testing::Buffer; // not the manifest's

struct Case {
  int64_t batch, heads, groups, queries, keys, width, valueWidth;
  const char *element;
  bool causal = false;
  const char *mask = ""; // its element type; "": no mask
  double hidden = 0;     // if it is not 0: what the mask hides keys with
};

std::string textOf(const Case &c) {
  auto tensor = [&](int64_t heads, int64_t rows, int64_t width) {
    return llvm::formatv("tensor<{0}x{1}x{2}x{3}x{4}>", c.batch, heads, rows,
                         width, c.element)
        .str();
  };
  std::string q = tensor(c.heads, c.queries, c.width);
  std::string k = tensor(c.groups, c.keys, c.width);
  std::string v = tensor(c.groups, c.keys, c.valueWidth);
  std::string o = tensor(c.heads, c.queries, c.valueWidth);
  std::string lse =
      llvm::formatv("tensor<{0}x{1}x{2}xf32>", c.batch, c.heads, c.queries);
  bool masked = *c.mask;
  std::string argument = masked ? llvm::formatv(", %m: {0}", c.mask).str() : "";
  std::string operand = masked ? "mask %m" : "";
  std::string type = masked ? llvm::formatv(", mask {0}", c.mask).str() : "";
  std::string attributes =
      llvm::formatv("{ {0}scale = 0.3 : f64 }", c.causal ? "causal, " : "");
  return llvm::formatv(
             R"(func.func private @forward(%q: {0}, %k: {1}, %v: {2}{5})
               -> ({3}, {4}) attributes {{nn.kernel, nn.rows} {{
               %o:2 = nn.attention %q, %k, %v {6} {8} : {0}, {1}, {2}{7} -> {3}, {4}
               return %o#0, %o#1 : {3}, {4} })",
             q, k, v, o, lse, argument, operand, type, attributes)
             .str() +
         llvm::formatv(
             R"(func.func private @backward(%g: {3}, %q: {0}, %k: {1}, %v: {2}, %o: {3}, %l: {4}{5})
               -> ({0}, {1}, {2}) attributes {{nn.kernel, nn.rows} {{
               %d:3 = nn.attention_grad %g, %q, %k, %v, %o, %l {6} {8}
                 : {3}, {0}, {1}, {2}, {3}, {4}{7} -> {0}, {1}, {2}
               return %d#0, %d#1, %d#2 : {0}, {1}, {2} })",
             q, k, v, o, lse, argument, operand, type, attributes)
             .str();
}

// Returns the largest error relative to the largest expected value, which is
// the scale to which sums of rounded weights are accurate.
double errorOf(const nn::ReferenceTensor &actual,
               const nn::ReferenceTensor &expected) {
  double largest = 0, error = 0;
  for (int64_t i = 0; i < expected.size(); ++i) {
    if (actual.floats[i] == expected.floats[i])
      continue; // equal, also if both are -∞
    double difference = std::abs(actual.floats[i] - expected.floats[i]);
    if (std::isnan(difference))
      return difference;
    largest = std::max(largest, std::abs(expected.floats[i]));
    error = std::max(error, difference);
  }
  return error / std::max(largest, 1e-3);
}

class AttentionTest : public ::testing::Test {
protected:
  AttentionTest() {
    prepareContext(context);
    context.loadDialect<rt::RTDialect>();
  }

  // Returns the results of a kernel's op on a device with `threads` threads.
  std::vector<Buffer> run(LoadedKernels &loaded, func::FuncOp kernel,
                          std::vector<Buffer> &operands, int threads) {
    Operation *op = &kernel.getBody().front().front();
    Manifest manifest;
    manifest.attentions.push_back(rt::describe(cast<rt::AttentionPlanAttr>(
        cast<rt::RuntimeCallOpInterface>(op).getPlan())));
    auto made = HostDevice::make(manifest, threads);
    EXPECT_TRUE(made) << made.error().message;
    std::unique_ptr<HostDevice> device = std::move(*made);
    std::vector<Buffer> results;
    for (Type type : kernel.getResultTypes())
      results.emplace_back(cast<RankedTensorType>(type));
    bool backward = !isa<nn::AttentionOp>(op);
    std::vector<void *> at; // the arguments of the call
    for (Buffer &buffer : operands)
      at.push_back(buffer.data());
    at.resize(backward ? 7 : 4); // null: no mask
    for (Buffer &buffer : results)
      at.push_back(buffer.data());
    fsdpc_kernel rows = {};
    rows.host = loaded.find(kernel.getSymName());
    if (backward)
      device->attentionGrad(0, &rows, at[0], at[1], at[2], at[3], at[4], at[5],
                            at[6], at[7], at[8], at[9]);
    else
      device->attention(0, &rows, at[0], at[1], at[2], at[3], at[4], at[5]);
    device->synchronize();
    for (Buffer &buffer : results)
      EXPECT_TRUE(buffer.guardsIntact());
    return results;
  }

  // Runs one of the kernels and returns the results of the reference.
  SmallVector<nn::ReferenceTensor>
  check(LoadedKernels &loaded, StringRef name,
        const std::vector<nn::ReferenceTensor> &inputs) {
    func::FuncOp kernel = loaded.original(name);
    auto expected = nn::evaluateFunction(
        cast<FunctionOpInterface>(kernel.getOperation()), inputs);
    EXPECT_TRUE(succeeded(expected));
    std::vector<Buffer> operands;
    for (auto [type, input] : llvm::zip(kernel.getArgumentTypes(), inputs))
      operands.emplace_back(cast<RankedTensorType>(type)).fill(input);
    std::vector<Buffer> results = run(loaded, kernel, operands, 1);
    std::vector<Buffer> again = run(loaded, kernel, operands, 3);
    for (auto [i, type] : llvm::enumerate(kernel.getResultTypes())) {
      EXPECT_TRUE(results[i] == again[i]) << "bits depend on threads";
      auto tensor = cast<RankedTensorType>(type);
      double tolerance = tensor.getElementType().isBF16()  ? 0.02
                         : tensor.getElementType().isF16() ? 0.004
                                                           : 2e-5;
      EXPECT_LE(errorOf(results[i].read(tensor), (*expected)[i]), tolerance)
          << "result " << i << " of " << name.str();
    }
    return *expected;
  }

  // Hides some keys of each row of a mask, and all of every third row.
  static void hide(nn::ReferenceTensor &mask, double hidden) {
    int64_t keys = mask.shape.back();
    for (int64_t i = 0; i < mask.size(); ++i)
      mask.floats[i] = i / keys % 3 == 0 || i % 2 == 0 ? hidden : 0;
    mask.round();
  }

  void check(const Case &c, const std::string &cpu = "native") {
    SCOPED_TRACE(textOf(c));
    LoadedKernels loaded(context, textOf(c), cpu);
    uint64_t state = 1;
    auto random = [&](Type type) {
      return randomTensor(cast<RankedTensorType>(type), 2, state);
    };
    std::vector<nn::ReferenceTensor> inputs;
    func::FuncOp forward = loaded.original("forward");
    for (Type type : forward.getArgumentTypes())
      inputs.push_back(random(type));
    if (c.hidden != 0)
      hide(inputs[3], c.hidden);
    SmallVector<nn::ReferenceTensor> outputs = check(loaded, "forward", inputs);
    for (nn::ReferenceTensor &output : outputs)
      output.round();
    std::vector<nn::ReferenceTensor> all = {random(forward.getResultTypes()[0]),
                                            inputs[0],
                                            inputs[1],
                                            inputs[2],
                                            outputs[0],
                                            outputs[1]};
    if (*c.mask)
      all.push_back(inputs[3]);
    check(loaded, "backward", all);
  }

  MLIRContext context;
};

const char *const elements[] = {"f32", "bf16", "f16"};

// One block of queries and several, with tails in every dimension.
TEST_F(AttentionTest, Sizes) {
  for (const char *element : elements)
    for (bool causal : {false, true}) {
      check({1, 1, 1, 1, 1, 1, 1, element, causal});
      check({2, 3, 3, 5, 5, 7, 3, element, causal});
      check({1, 2, 2, 16, 16, 16, 16, element, causal});
      check({1, 2, 1, 200, 200, 32, 24, element, causal});
    }
}

// Query t sees keys up to t + S - T. With fewer keys than queries, the first
// rows see none and give zeroes.
TEST_F(AttentionTest, UnequalLengths) {
  for (const char *element : elements)
    for (bool causal : {false, true}) {
      check({2, 2, 2, 3, 150, 8, 8, element, causal});
      check({2, 2, 2, 150, 19, 8, 8, element, causal});
    }
}

// Several query heads share a key head.
TEST_F(AttentionTest, GroupedHeads) {
  for (const char *element : elements)
    check({2, 6, 2, 140, 140, 16, 16, element, true});
}

// Each axis of the mask broadcasts or not.
TEST_F(AttentionTest, Masks) {
  const char *const shapes[] = {"2x4x70x37", "1x1x70x37", "2x1x1x37",
                                "1x4x70x1", "1x1x1x1"};
  for (const char *shape : shapes)
    for (const char *type : {"i1", "f32"}) {
      std::string mask = llvm::formatv("tensor<{0}x{1}>", shape, type);
      check({2, 4, 2, 70, 37, 8, 8, "f32", false, mask.c_str()});
    }
  check({2, 4, 2, 70, 70, 8, 8, "bf16", true, "tensor<2x1x70x70xbf16>"});
  check({2, 4, 2, 70, 70, 8, 8, "bf16", true, "tensor<2x1x1x70xi1>"});
}

// A row whose keys are all hidden by the lowest number has equal weights, and
// its log-sum-exp is that number: nothing is left of the logarithm.
TEST_F(AttentionTest, RowsHiddenByTheLowestNumber) {
  double lowest = std::numeric_limits<float>::lowest();
  check({2, 4, 2, 70, 37, 8, 8, "f32", false, "tensor<2x1x70x37xf32>", lowest});
  check({2, 4, 2, 70, 70, 8, 8, "bf16", true, "tensor<2x1x70x70xf32>", lowest});
  check({1, 2, 2, 9, 9, 8, 8, "bf16", false, "tensor<1x1x9x9xbf16>", -3.38e38});
}

// With vectors of AVX2 only.
TEST_F(AttentionTest, OlderProcessor) {
  for (const char *element : elements)
    check({2, 4, 2, 70, 70, 13, 11, element, true, "tensor<2x1x70x70xi1>"},
          "x86-64-v3");
}

} // namespace
