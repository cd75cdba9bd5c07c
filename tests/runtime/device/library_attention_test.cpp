// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention in the conformance suite for library calls (library_test.cpp), with
// a row kernel in place of the one that the compiler generates.
#include "runtime/numeric/float16.h"
#include "tests/runtime/device/library_test.h"

#include <cmath>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

namespace {

// Stands for the row kernel that the compiler generates for this plan.
AttentionPlan rowsPlan;

template <typename T>
void attentionRows(int64_t begin, int64_t end, void *const *buffers) {
  bool backward = rowsPlan.backward;
  auto *numbers = static_cast<int64_t *>(buffers[backward ? 8 : 4]);
  for (int64_t row = begin; row < end; ++row) {
    auto at = [&](int buffer, auto *like, int64_t stride) {
      return static_cast<decltype(like)>(buffers[buffer]) + row * stride;
    };
    float *scores = at(0, static_cast<float *>(nullptr), numbers[1]);
    T *weights = at(1, static_cast<T *>(nullptr), numbers[1]);
    float &lse = *at(2, static_cast<float *>(nullptr), 1);
    int64_t keys =
        rowsPlan.causal ? std::min(numbers[0], numbers[2] + row) : numbers[0];
    if (!backward) {
      double sum = 0;
      for (int64_t s = 0; s < keys; ++s)
        sum += std::exp(rowsPlan.scale * scores[s]);
      lse = float(std::log(sum));
    }
    for (int64_t s = 0; s < numbers[0]; ++s)
      scores[s] =
          s < keys ? float(std::exp(rowsPlan.scale * scores[s] - lse)) : 0;
    if (backward) {
      float *dweights = at(4, static_cast<float *>(nullptr), numbers[1]);
      T *dscores = at(5, static_cast<T *>(nullptr), numbers[1]);
      const T *grad = at(6, static_cast<T *>(nullptr), numbers[4]);
      const T *output = at(7, static_cast<T *>(nullptr), numbers[5]);
      float dot = 0;
      for (int64_t j = 0; j < rowsPlan.valueWidth; ++j)
        dot += widen(grad[j]) * widen(output[j]);
      for (int64_t s = 0; s < numbers[0]; ++s) {
        float centred = s < keys ? dweights[s] - dot : 0;
        dscores[s] = narrow<T>(scores[s] * centred * float(rowsPlan.scale));
      }
    }
    for (int64_t s = 0; s < numbers[0]; ++s)
      weights[s] = narrow<T>(scores[s]);
  }
}

} // namespace

// Forward and backward, with the heads of a row side by side.
void Libraries::checkAttention(AttentionPlan p) {
  SCOPED_TRACE(::testing::Message()
               << p.queries << " queries " << p.keys << " keys " << p.dtype);
  auto strides = [](int64_t heads, int64_t rows, int64_t width) {
    return std::vector<int64_t>{rows * heads * width, width, heads * width};
  };
  p.strideQuery = p.strideDQuery = strides(p.heads, p.queries, p.width);
  p.strideKey = p.strideDKey = strides(p.groups, p.keys, p.width);
  p.strideValue = p.strideDValue = strides(p.groups, p.keys, p.valueWidth);
  p.strideOutput = p.strideGrad = strides(p.heads, p.queries, p.valueWidth);
  auto make = [&](const std::vector<int64_t> &s) {
    return std::make_unique<Tensor>(p.dtype, p.batch * s[0]);
  };
  auto q = make(p.strideQuery), k = make(p.strideKey), v = make(p.strideValue),
       o = make(p.strideOutput), g = make(p.strideGrad);
  auto dq = make(p.strideQuery), dk = make(p.strideKey),
       dv = make(p.strideValue);
  int seed = 1;
  for (auto *tensor : {&q, &k, &v, &o, &g, &dq, &dk, &dv})
    (*tensor)->fill(++seed);
  Tensor lse("f32", p.batch * p.heads * p.queries);
  fsdpc_kernel rows = {};
  rows.host = p.dtype == "f32"    ? attentionRows<float>
              : p.dtype == "bf16" ? attentionRows<BFloat16>
                                  : attentionRows<Float16>;
  auto call = [&](bool backward, Tensor &result) {
    p.backward = rowsPlan.backward = backward;
    Manifest manifest;
    manifest.attentions.push_back(rowsPlan = p);
    Tensor initial(p.dtype, result.size());
    initial.fill(1); // must be overwritten
    std::vector<Operand> operands = {*q, *k, *v, nullptr, *o, lse};
    if (backward)
      operands = {*g, *q, *k, *v, *o, lse, nullptr, *dq, *dk, *dv};
    run(manifest, operands, result, initial, [&](Device &d, auto &at) {
      if (backward)
        d.attentionGrad(0, &rows, at[0], at[1], at[2], at[3], at[4], at[5],
                        at[6], at[7], at[8], at[9]);
      else
        d.attention(0, &rows, at[0], at[1], at[2], at[3], at[4], at[5]);
    });
  };

  std::vector<double> expected[4];
  Tensor *results[] = {o.get(), dq.get(), dk.get(), dv.get()};
  for (int i = 0; i < 4; ++i)
    expected[i].resize(results[i]->size());
  for (bool backward : {false, true}) {
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t h = 0; h < p.heads; ++h)
        for (int64_t t = 0; t < p.queries; ++t) {
          auto place = [&](const std::vector<int64_t> &s, int64_t head,
                           int64_t row) {
            return b * s[0] + head * s[1] + row * s[2];
          };
          int64_t group = h / (p.heads / p.groups);
          int64_t qi = place(p.strideQuery, h, t);
          int64_t oi = place(p.strideOutput, h, t);
          int64_t keys = p.causal ? t + 1 + p.keys - p.queries : p.keys;
          std::vector<double> weight(keys, 0);
          double sum = 0, dot = 0;
          for (int64_t s = 0; s < keys; ++s) {
            for (int64_t j = 0; j < p.width; ++j)
              weight[s] +=
                  (*q)[qi + j] * (*k)[place(p.strideKey, group, s) + j];
            sum += weight[s] = std::exp(p.scale * weight[s]);
          }
          for (int64_t j = 0; j < p.valueWidth; ++j)
            dot += (*g)[oi + j] * (*o)[oi + j];
          for (int64_t s = 0; s < keys; ++s) {
            double w = weight[s] / sum, dw = -dot;
            int64_t ki = place(p.strideKey, group, s);
            int64_t vi = place(p.strideValue, group, s);
            for (int64_t j = 0; j < p.valueWidth; ++j) {
              dw += (*g)[oi + j] * (*v)[vi + j];
              if (backward)
                expected[3][vi + j] += w * (*g)[oi + j];
              else
                expected[0][oi + j] += w * (*v)[vi + j];
            }
            for (int64_t j = 0; backward && j < p.width; ++j) {
              expected[1][qi + j] += w * dw * p.scale * (*k)[ki + j];
              expected[2][ki + j] += w * dw * p.scale * (*q)[qi + j];
            }
          }
        }
    for (int i = backward ? 1 : 0; i < (backward ? 4 : 1); ++i) {
      call(backward, *results[i]);
      expectClose(*results[i], expected[i], 5);
    }
  }
}

// One block of queries and several, with tails, and heads that share a key
// head.
TEST_P(Libraries, attention) {
  for (const std::string &dtype : dtypes())
    for (bool causal : {false, true})
      for (const char *library : {"cudnn", "products"}) {
        AttentionPlan p;
        p.dtype = dtype, p.causal = causal, p.scale = 0.5;
        p.library = library; // for GPU backends
        p.batch = 2, p.heads = 6, p.groups = 3, p.width = 8, p.valueWidth = 5;
        p.queries = 7, p.keys = 7;
        checkAttention(p);
        p.queries = 131, p.keys = 140;
        checkAttention(p);
      }
}
