// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime's own CUDA kernels between the products of attention: softmax of
// rows and its gradient against f64, and the rows of results.
#include "tests/runtime/cuda/own_kernels.h"

#include <cfloat>
#include <cmath>
#include <limits>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

namespace {

class OwnSoftmaxKernels : public OwnKernelTest {};

struct Case {
  MaskType mask;
  bool narrow, causal;
  int64_t queries, keys;
  bool hidesAll = false; // the added mask hides all keys, by a finite number
};

// Softmax of rows of heads 1 to 4, of a batch of two with three heads, and its
// gradient, against f64.
TEST_P(OwnSoftmaxKernels, softmaxRowsAndTheirGradients) {
  std::vector<Case> cases;
  for (MaskType mask : {MaskType::none, MaskType::keep, MaskType::added})
    for (bool causal : {false, true})
      cases.push_back({mask, mask == MaskType::none, causal, 5, 9});
  cases.push_back({MaskType::none, false, true, 6, 4}); // two rows see no key
  cases.push_back({MaskType::added, false, false, 5, 9, true});
  for (const Case &c : cases) {
    constexpr int64_t batch = 2, heads = 3, first = 1, count = 4, width = 5;
    int64_t rows = count * c.queries, cells = rows * c.keys;
    std::vector<float> products = randomFloats(cells, 9);
    std::vector<float> lse(batch * heads * c.queries);
    // One mask for all heads, and one value for all queries of a batch entry.
    std::vector<float> added = randomFloats(batch * c.keys, 10);
    if (c.hidesAll)
      std::fill(added.begin(), added.end(), -FLT_MAX);
    std::vector<uint8_t> kept;
    for (float value : added)
      kept.push_back(value > -0.5);
    SoftmaxRows s;
    std::vector<float> scores = products;
    std::vector<BFloat16> thin(cells);
    s.scores = scores.data();
    s.weights = c.narrow ? static_cast<void *>(thin.data()) : scores.data();
    s.lse = lse.data();
    s.maskType = c.mask;
    s.mask = c.mask == MaskType::keep ? static_cast<void *>(kept.data())
                                      : added.data();
    s.maskStrides[0] = c.keys, s.maskStrides[3] = 1;
    s.type = c.narrow ? WireType::bf16 : WireType::f32, s.causal = c.causal,
    s.scale = 0.7f;
    s.headsOfBatch = heads, s.firstHead = first, s.heads = count;
    s.queries = c.queries, s.keys = c.keys;
    run(s);
    std::vector<double> weights(cells, 0);
    double tolerance = c.narrow ? 1.0 / 128 : 1e-5;
    for (int64_t row = 0; row < rows; ++row) {
      int64_t b = (first + row / c.queries) / heads, t = row % c.queries;
      double sum = 0;
      for (int64_t key = 0; key < c.keys; ++key) {
        bool seen = !c.causal || key <= t + c.keys - c.queries;
        if (c.mask == MaskType::keep)
          seen = seen && kept[b * c.keys + key];
        double score = 0.7 * products[row * c.keys + key];
        if (c.hidesAll)
          score = 0; // all alike
        else if (c.mask == MaskType::added)
          score += added[b * c.keys + key];
        weights[row * c.keys + key] = seen ? std::exp(score) : 0;
        sum += weights[row * c.keys + key];
      }
      float got = lse[first * c.queries + row];
      if (c.hidesAll)
        EXPECT_EQ(got, -FLT_MAX);
      else if (sum > 0)
        EXPECT_NEAR(got, std::log(sum), 1e-5);
      else
        EXPECT_EQ(got, -std::numeric_limits<float>::infinity());
      for (int64_t key = 0; key < c.keys; ++key) {
        int64_t i = row * c.keys + key;
        weights[i] = sum > 0 ? weights[i] / sum : 0;
        EXPECT_NEAR(c.narrow ? widen(thin[i]) : scores[i], weights[i],
                    tolerance);
      }
    }

    std::vector<float> dweights = randomFloats(cells, 11);
    std::vector<float> before = dweights;
    std::vector<float> grad =
        randomFloats(batch * heads * c.queries * width, 12);
    std::vector<float> output =
        randomFloats(batch * heads * c.queries * width, 13);
    std::vector<BFloat16> thinGrad = narrowed(grad),
                          thinOutput = narrowed(output);
    std::vector<BFloat16> thinScores(cells);
    SoftmaxGradRows g;
    scores = products;
    g.rows = s;
    g.dweights = dweights.data();
    g.dscores =
        c.narrow ? static_cast<void *>(thinScores.data()) : dweights.data();
    g.grad = c.narrow ? static_cast<void *>(thinGrad.data()) : grad.data();
    g.output =
        c.narrow ? static_cast<void *>(thinOutput.data()) : output.data();
    g.valueWidth = width;
    int64_t strides[3] = {heads * c.queries * width, c.queries * width, width};
    std::copy(strides, strides + 3, g.gradStrides);
    std::copy(strides, strides + 3, g.outputStrides);
    run(g);
    for (int64_t row = 0; row < rows; ++row) {
      int64_t at = (first * c.queries + row) * width;
      double dot = 0;
      for (int64_t j = 0; j < width; ++j)
        dot += double(grad[at + j]) * output[at + j];
      for (int64_t key = 0; key < c.keys; ++key) {
        int64_t i = row * c.keys + key;
        double expected = weights[i] * (before[i] - dot) * 0.7;
        EXPECT_NEAR(c.narrow ? widen(thinScores[i]) : dweights[i], expected,
                    3 * tolerance);
        EXPECT_NEAR(c.narrow ? widen(thin[i]) : scores[i], weights[i],
                    tolerance);
      }
    }
  }
}

// f32 rows of two heads become bf16 rows that lie side by side.
TEST_P(OwnSoftmaxKernels, storeRows) {
  std::vector<float> from = randomFloats(2 * 3 * 4, 14);
  std::vector<BFloat16> to(3 * 8, {9});
  StoreRows s;
  s.from = from.data(), s.to = to.data(), s.type = WireType::bf16;
  s.strides[0] = 24, s.strides[1] = 4, s.strides[2] = 8;
  s.headsOfBatch = 2, s.heads = 2, s.rows = 3, s.width = 4;
  run(s);
  for (int64_t head = 0; head < 2; ++head)
    for (int64_t row = 0; row < 3; ++row)
      for (int64_t j = 0; j < 4; ++j)
        EXPECT_EQ(to[row * 8 + head * 4 + j].bits,
                  narrow<BFloat16>(from[(head * 3 + row) * 4 + j]).bits);
}

INSTANTIATE_TEST_SUITE_P(Grids, OwnSoftmaxKernels, someLaunches());

} // namespace
