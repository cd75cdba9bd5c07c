// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The conformance suite for library calls. Matrix products, convolutions,
// pooling and attention of every device backend are compared with plain loops
// in f64, with limits that follow from the rounding of the type, and their bits
// must not depend on the number of threads.
#include "tests/runtime/device/library_test.h"

#include <cmath>
#include <sstream>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

void Libraries::checkMatmul(const MatmulPlan &p) {
  SCOPED_TRACE(::testing::Message()
               << p.m << "x" << p.n << "x" << p.k << (p.transposeA ? " T" : "")
               << (p.transposeB ? " ,T " : " ") << p.dtypeA << p.dtypeB
               << p.dtypeC << (p.accumulate ? " +=" : " =")
               << (p.bias ? " bias" : ""));
  auto extent = [&](int64_t rows, int64_t ld, const std::vector<int64_t> &s) {
    int64_t last = rows * ld;
    for (size_t i = 0; i < s.size(); ++i)
      last += (p.batch[i] - 1) * s[i];
    return last;
  };
  Tensor a(p.dtypeA, extent(p.transposeA ? p.k : p.m, p.lda, p.strideA));
  Tensor b(p.dtypeB, extent(p.transposeB ? p.n : p.k, p.ldb, p.strideB));
  Tensor c(p.dtypeC, extent(p.m, p.ldc, p.strideC));
  a.fill(1);
  b.fill(2);
  Tensor initial(p.dtypeC, c.size());
  initial.fill(3);
  Tensor bias(p.dtypeC, p.n);
  bias.fill(4);
  Manifest manifest;
  manifest.matmuls.push_back(p);
  Operand row = p.bias ? Operand(bias) : nullptr;
  run(manifest, {a, b, row, c}, c, initial, [](Device &d, auto &at) {
    d.matmul(0, at[0], at[1], at[2], nullptr, nullptr, at[3], nullptr);
  });

  // Elements between rows must keep their values.
  std::vector<double> expected(c.size());
  for (int64_t i = 0; i < c.size(); ++i)
    expected[i] = initial[i];
  int64_t batches = 1;
  for (int64_t e : p.batch)
    batches *= e;
  for (int64_t entry = 0; entry < batches; ++entry) {
    int64_t oa = 0, ob = 0, oc = 0, rest = entry;
    for (size_t i = p.batch.size(); i-- > 0; rest /= p.batch[i]) {
      oa += rest % p.batch[i] * p.strideA[i];
      ob += rest % p.batch[i] * p.strideB[i];
      oc += rest % p.batch[i] * p.strideC[i];
    }
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = p.bias ? bias[j] : 0;
        for (int64_t l = 0; l < p.k; ++l)
          sum += a[oa + (p.transposeA ? l * p.lda + i : i * p.lda + l)] *
                 b[ob + (p.transposeB ? j * p.ldb + l : l * p.ldb + j)];
        double &cell = expected[oc + i * p.ldc + j];
        cell = p.accumulate ? cell + sum : sum;
      }
  }
  expectClose(c, expected, std::sqrt(double(p.k)));
}

namespace {

MatmulPlan product(int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
  MatmulPlan p;
  p.m = m, p.n = n, p.k = k, p.transposeA = ta, p.transposeB = tb;
  p.lda = ta ? m : k, p.ldb = tb ? k : n, p.ldc = n;
  p.dtypeA = p.dtypeB = p.dtypeC = "f32";
  return p;
}

// Tails in every dimension, both orders of both operands, cut and uncut, and
// all mixes of types.
TEST_P(Libraries, matmul) {
  const int64_t shapes[][3] = {{1, 1, 1},     {3, 5, 7},     {1, 300, 64},
                               {33, 17, 129}, {700, 65, 48}, {65, 1100, 48}};
  for (auto &[m, n, k] : shapes)
    for (int form = 0; form < 8; ++form)
      for (const char *types :
           {"f32 f32 f32", "bf16 bf16 bf16", "bf16 bf16 f32", "f32 bf16 f32",
            "f16 f16 f16", "f16 f16 f32", "f32 f16 f32"}) {
        MatmulPlan p = product(m, n, k, form & 1, form & 2);
        p.accumulate = form & 4;
        std::string text = types;
        p.dtypeA = text.substr(0, text.find(' '));
        text = text.substr(text.find(' ') + 1);
        p.dtypeB = text.substr(0, text.find(' '));
        p.dtypeC = text.substr(text.find(' ') + 1);
        checkMatmul(p);
      }
}

// A bias. It is added by the library; or by a separate pass if the library
// refuses (the emulation does for results wider than operands) or has no such
// product. The host has no biases.
TEST_P(Libraries, matmulWithBias) {
  for (const char *types : {"f32 f32 f32", "bf16 bf16 bf16", "bf16 bf16 f32",
                            "f32 bf16 f32", "f16 f16 f16"}) {
    MatmulPlan p = product(33, 47, 129, false, true);
    p.bias = true;
    std::istringstream(types) >> p.dtypeA >> p.dtypeB >> p.dtypeC;
    p.batch = {2};
    p.strideA = {33 * 129}, p.strideB = {0}, p.strideC = {33 * 47};
    if (!onHost()) {
      checkMatmul(p);
      continue;
    }
    Manifest manifest;
    manifest.matmuls.push_back(p);
    auto device = GetParam().make(manifest, 1);
    EXPECT_FALSE(device);
    EXPECT_EQ(device.error().message,
              "matrix products with a bias or an epilogue are supported on "
              "GPUs only");
  }
}

double geluOf(double x) {
  return x / 2 *
         (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

// Biases, addends, GELU, its gradient and sums of rows. The library computes
// them; or kernels do, where the library has no such product (operands of two
// types).
TEST_P(Libraries, matmulEpilogues) {
  if (onHost())
    GTEST_SKIP() << "host programs have none";
  for (const char *types : {"bf16 bf16 bf16", "f32 bf16 f32"})
    for (const char *epilogue :
         {"", "gelu", "gelu_extra", "gelu_grad", "sum_lhs", "sum_rhs"}) {
      SCOPED_TRACE(std::string(types) + " " + epilogue);
      MatmulPlan p = product(33, 48, 70, true, false);
      p.epilogue = epilogue;
      std::istringstream(types) >> p.dtypeA >> p.dtypeB >> p.dtypeC;
      bool sums = p.epilogue.starts_with("sum");
      p.bias = p.addend = !sums && p.epilogue != "gelu_grad";
      bool ofA = p.epilogue == "sum_lhs";
      Tensor a(p.dtypeA, p.k * p.lda), b(p.dtypeB, p.k * p.ldb),
          c(p.dtypeC, p.m * p.ldc), initial(p.dtypeC, c.size()),
          row(p.dtypeC, p.n), whole(p.dtypeC, c.size()),
          extra(sums ? (ofA ? p.dtypeA : p.dtypeB) : p.dtypeC,
                sums ? (ofA ? p.m : p.n) : c.size());
      a.fill(1), b.fill(2), initial.fill(3), row.fill(4), whole.fill(5);
      Manifest manifest;
      manifest.matmuls.push_back(p);
      auto given = [](bool is, Tensor &tensor) {
        return is ? Operand(tensor) : Operand(nullptr);
      };
      bool isGradient = p.epilogue == "gelu_grad";
      run(manifest,
          {a, b, given(p.bias, row), given(p.addend, whole),
           given(isGradient, whole), c,
           given(sums || p.epilogue == "gelu_extra", extra)},
          c, initial, [](Device &d, auto &at) {
            d.matmul(0, at[0], at[1], at[2], at[3], at[4], at[5], at[6]);
          });
      std::vector<double> expected(c.size()), added(extra.size());
      for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < p.n; ++j) {
          int64_t cell = i * p.ldc + j;
          double sum = p.bias ? row[j] + whole[cell] : 0;
          for (int64_t l = 0; l < p.k; ++l)
            sum += a[l * p.lda + i] * b[l * p.ldb + j];
          if (p.epilogue == "gelu_extra")
            added[cell] = sum;
          constexpr double step = 1e-6;
          expected[cell] = p.epilogue.starts_with("gelu") && !isGradient
                               ? geluOf(sum)
                           : isGradient ? sum *
                                              (geluOf(whole[cell] + step) -
                                               geluOf(whole[cell] - step)) /
                                              (2 * step)
                                        : sum;
        }
      for (int64_t l = 0; l < p.k && sums; ++l)
        for (int64_t i = 0; i < extra.size(); ++i)
          added[i] += ofA ? a[l * p.lda + i] : b[l * p.ldb + i];
      expectClose(c, expected, double(p.k));
      if (sums || p.epilogue == "gelu_extra")
        expectClose(extra, added, double(p.k));
    }
}

// Products of attention: two batch axes, with the rows of all heads
// interleaved, and one operand that groups of heads share.
TEST_P(Libraries, matmulBatchesAndBroadcasts) {
  for (bool transposed : {false, true})
    for (const std::string &dtype : dtypes()) {
      MatmulPlan p = product(20, transposed ? 20 : 16, 16, false, transposed);
      p.dtypeA = p.dtypeB = p.dtypeC = dtype;
      p.batch = {3, 4};
      p.lda = 4 * 16;
      p.strideA = {20 * 4 * 16, 16};
      p.strideB = {16 * 20, 0}; // one for four heads
      p.strideC = {4 * 20 * p.ldc, 20 * p.ldc};
      checkMatmul(p);
    }
}

// A plan that cannot run is refused with a reason.
TEST_P(Libraries, refuseUnknownTypes) {
  Manifest manifest;
  manifest.matmuls.push_back(product(2, 2, 2, false, false));
  manifest.matmuls[0].dtypeB = "f8";
  auto device = GetParam().make(manifest, GetParam().threads);
  EXPECT_FALSE(device);
  const std::string &message = device.error().message;
  EXPECT_NE(message.find("'f8'"), std::string::npos) << message;
}

// So is one with an empty dimension or too few strides, before anything is
// divided by an extent or an index passes the end of a list.
TEST_P(Libraries, refuseImpossibleShapes) {
  auto refused = [&](const Manifest &manifest, const char *message) {
    auto device = GetParam().make(manifest, GetParam().threads);
    ASSERT_FALSE(device);
    EXPECT_EQ(device.error().message, message);
  };
  for (int64_t MatmulPlan::*extent :
       {&MatmulPlan::m, &MatmulPlan::n, &MatmulPlan::k}) {
    Manifest manifest;
    manifest.matmuls.push_back(product(2, 2, 2, false, false));
    manifest.matmuls[0].*extent = 0;
    refused(manifest, "matrix product with an empty dimension");
  }
  Manifest manifest;
  manifest.matmuls.push_back(product(2, 2, 2, false, false));
  manifest.matmuls[0].batch = {3};
  refused(manifest,
          "matrix product whose 'strideA' has 0 entries instead of 1");
  ConvolutionPlan p;
  p.kind = "forward", p.dtype = "f32";
  p.batch = p.channels = p.filters = p.kernelHeight = p.kernelWidth = 1;
  p.height = p.width = p.outHeight = p.outWidth = 4;
  p.strides = p.dilations = {1, 1}, p.padsBegin = p.padsEnd = {0, 0};
  for (int64_t ConvolutionPlan::*extent :
       {&ConvolutionPlan::batch, &ConvolutionPlan::channels,
        &ConvolutionPlan::outWidth, &ConvolutionPlan::kernelHeight}) {
    manifest = {};
    manifest.convolutions.push_back(p);
    manifest.convolutions[0].*extent = 0;
    refused(manifest, "convolution with an empty dimension");
  }
  manifest = {};
  manifest.convolutions.push_back(p);
  manifest.convolutions[0].dilations = {1};
  refused(manifest, "convolution whose 'dilations' has 1 entries instead of 2");
}

INSTANTIATE_TEST_SUITE_P(Backends, Libraries, ::testing::ValuesIn(backends()));

} // namespace
