// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Direct convolutions (direct_convolution.h). The inner loops keep the sums of
// several rows or filters, or of several taps, in registers; each step loads
// one vector and multiplies it by one weight, or by a vector of dy.
#include "runtime/host/direct_convolution.h"
#include "runtime/support/round_up.h"

#include <algorithm>
#include <cstring>

// Compiles a function once per level of x86-64; the loader picks the best when
// the program starts. Products and sums are fused by name, so the bits are the
// same at each level. Programs need level 3, so the default is never run.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) ||           \
    !defined(__x86_64__)
#define FSDPC_EACH_LEVEL
#else
#define FSDPC_EACH_LEVEL                                                       \
  __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#endif

// g++ warns that vectors are passed in another way without AVX-512, but all
// functions that take them are inlined.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace fsdpc::runtime {

namespace {

constexpr int64_t lanes = DirectConvolution::lanes;
constexpr int sums = 4; // vectors of sums that are kept in registers

// As many results side by side as the registers of any level hold well.
using Vector = float __attribute__((vector_size(lanes * sizeof(float))));

[[gnu::always_inline]] inline Vector load(const float *from) {
  Vector result;
  std::memcpy(&result, from, sizeof(result));
  return result;
}

[[gnu::always_inline]] inline void addProduct(const Vector &a, const Vector &b,
                                              Vector &sum) {
#if defined(__clang__)
  sum = __builtin_elementwise_fma(a, b, sum);
#else
  for (int64_t i = 0; i < lanes; ++i)
    sum[i] = __builtin_fmaf(a[i], b[i], sum[i]);
#endif
}

// The sums of F filters and R rows, at `lanes` columns. `weights` are F rows of
// one weight per tap; `step` leads from a row of results to the next one's
// elements.
template <int F, int R>
[[gnu::always_inline]] inline void
sumTaps(const float *in, int64_t step, const std::vector<int64_t> &offsets,
        const float *weights, Vector (&result)[F][R]) {
  Vector sum[F][R] = {};
  int64_t taps = offsets.size();
  for (int64_t t = 0; t < taps; ++t) {
    const float *at = in + offsets[t];
    for (int r = 0; r < R; ++r) {
      Vector element = load(at + r * step);
      for (int f = 0; f < F; ++f)
        addProduct(element, Vector{} + weights[f * taps + t], sum[f][r]);
    }
  }
  for (int f = 0; f < F; ++f)
    for (int r = 0; r < R; ++r)
      result[f][r] = sum[f][r];
}

struct Result {
  float *out;
  int64_t plane, width; // from filter to filter, from row to row
};

// All columns of F filters and R rows.
template <int F, int R>
[[gnu::always_inline]] inline void
rowsOf(const DirectConvolution &s, const float *in,
       const std::vector<int64_t> &offsets, const float *weights,
       const Result &to) {
  int64_t step = s.strides[0] * s.rowLength();
  for (int64_t j = 0; j < s.outWidth; j += lanes) {
    Vector result[F][R];
    sumTaps<F, R>(in + j, step, offsets, weights, result);
    // The last columns may be fewer than a vector has.
    size_t bytes = std::min(lanes, s.outWidth - j) * sizeof(float);
    for (int f = 0; f < F; ++f)
      for (int r = 0; r < R; ++r)
        std::memcpy(to.out + f * to.plane + r * to.width + j, &result[f][r],
                    bytes);
  }
}

// Some rows of F filters, as many at a time as the sums allow.
template <int F>
[[gnu::always_inline]] inline void
filtersOf(const DirectConvolution &s, int64_t rows, const float *in,
          const std::vector<int64_t> &offsets, const float *weights,
          Result to) {
  constexpr int64_t R = sums / F;
  int64_t step = s.strides[0] * s.rowLength();
  int64_t i = 0;
  for (; i + R <= rows; i += R, in += R * step, to.out += R * to.width)
    rowsOf<F, R>(s, in, offsets, weights, to);
  for (; i < rows; ++i, in += step, to.out += to.width)
    rowsOf<F, 1>(s, in, offsets, weights, to);
}

FSDPC_EACH_LEVEL void convolve(const DirectConvolution &s, int64_t rows,
                               const float *in,
                               const std::vector<int64_t> &offsets,
                               const float *weights, Result to) {
  int64_t f = 0, taps = offsets.size();
  for (; f + 4 <= s.filters;
       f += 4, weights += 4 * taps, to.out += 4 * to.plane)
    filtersOf<4>(s, rows, in, offsets, weights, to);
  for (; f + 2 <= s.filters;
       f += 2, weights += 2 * taps, to.out += 2 * to.plane)
    filtersOf<2>(s, rows, in, offsets, weights, to);
  if (f < s.filters)
    filtersOf<1>(s, rows, in, offsets, weights, to);
}

// Adds up halves, so that the order is the same at each level.
[[gnu::always_inline]] inline float total(const Vector &v) {
  float part[lanes];
  std::memcpy(part, &v, sizeof(part));
  for (int64_t half = lanes / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i)
      part[i] += part[i + half];
  return part[0];
}

// Adds the products of dy with the elements of T taps. `pitch` leads from a row
// of dy to the next.
template <int T>
[[gnu::always_inline]] inline void
addTaps(const DirectConvolution &s, int64_t rows, const float *in,
        const int64_t *offsets, const float *dy, int64_t pitch, float *dw) {
  Vector sum[T] = {};
  int64_t step = s.strides[0] * s.rowLength();
  for (int64_t i = 0; i < rows; ++i, in += step, dy += pitch)
    for (int64_t j = 0; j < s.outWidth; j += lanes) {
      Vector slope = load(dy + j);
      for (int t = 0; t < T; ++t)
        addProduct(load(in + offsets[t] + j), slope, sum[t]);
    }
  for (int t = 0; t < T; ++t)
    dw[t] += total(sum[t]);
}

FSDPC_EACH_LEVEL void correlate(const DirectConvolution &s, int64_t rows,
                                const float *in,
                                const std::vector<int64_t> &offsets,
                                const float *dy, int64_t pitch, float *dw) {
  int64_t taps = offsets.size();
  for (int64_t f = 0; f < s.filters; ++f, dy += rows * pitch, dw += taps) {
    int64_t t = 0;
    for (; t + sums <= taps; t += sums)
      addTaps<sums>(s, rows, in, &offsets[t], dy, pitch, dw + t);
    for (; t < taps; ++t)
      addTaps<1>(s, rows, in, &offsets[t], dy, pitch, dw + t);
  }
}

} // namespace

DirectKernel::DirectKernel(const ConvolutionCut &cut)
    : shape(*cut.direct), turned(cut.plan.kind == "input"),
      blockRows(shape.rowsFor(cut.blocks.front().count)) {
  for (int64_t c = 0; c < shape.channels; ++c)
    for (int64_t i = 0; i < shape.kernel[0]; ++i)
      for (int64_t j = 0; j < shape.kernel[1]; ++j) {
        int64_t column = j * shape.dilations[1];
        offsets.push_back((c * blockRows + i * shape.dilations[0]) *
                              shape.rowLength() +
                          column % shape.strides[1] * shape.phaseLength() +
                          column / shape.strides[1]);
      }
}

// Copies the rows that a block reads, for all channels, and pads them with
// zeros.
void DirectKernel::copyRows(const ConvolutionCut::Block &rows,
                            const float *image, float *copies) const {
  int64_t stride = shape.strides[1], length = shape.phaseLength();
  int64_t first = rows.begin * shape.strides[0] - shape.pads[0];
  int64_t count = shape.rowsFor(rows.count);
  for (int64_t c = 0; c < shape.channels; ++c)
    for (int64_t r = 0; r < count; ++r) {
      float *to = copies + (c * blockRows + r) * shape.rowLength();
      int64_t y = first + r;
      if (y < 0 || y >= shape.height) {
        std::fill(to, to + shape.rowLength(), 0.0f);
        continue;
      }
      const float *from = image + (c * shape.height + y) * shape.width;
      for (int64_t phase = 0; phase < stride; ++phase, to += length) {
        // Element q is column q · stride + shift.
        int64_t shift = phase - shape.pads[1];
        int64_t begin = shift < 0 ? (-shift + stride - 1) / stride : 0;
        int64_t end = (shape.width - shift + stride - 1) / stride;
        begin = std::min(begin, length);
        end = std::clamp(end, begin, length);
        std::fill(to, to + begin, 0.0f);
        if (stride == 1)
          std::copy(from + begin + shift, from + end + shift, to + begin);
        else
          for (int64_t q = begin; q < end; ++q)
            to[q] = from[q * stride + shift];
        std::fill(to + end, to + length, 0.0f);
      }
    }
}

// Returns the weights in rows of one filter's taps. A turned kernel's are in
// `ordered`.
const float *DirectKernel::orderWeights(const float *weights,
                                        float *ordered) const {
  if (!turned)
    return weights;
  int64_t cells = shape.kernel[0] * shape.kernel[1];
  for (int64_t f = 0; f < shape.filters; ++f)
    for (int64_t c = 0; c < shape.channels; ++c)
      for (int64_t k = 0; k < cells; ++k)
        ordered[(f * shape.channels + c) * cells + k] =
            weights[(c * shape.filters + f) * cells + cells - 1 - k];
  return ordered;
}

void DirectKernel::run(const ConvolutionCut::Block &rows, const float *image,
                       const float *weights, float *out, float *scratch) const {
  float *ordered = scratch + shape.channels * blockRows * shape.rowLength();
  copyRows(rows, image, scratch);
  convolve(shape, rows.count, scratch, offsets, orderWeights(weights, ordered),
           {out + rows.begin * shape.outWidth, shape.outHeight * shape.outWidth,
            shape.outWidth});
}

void DirectKernel::addWeights(const ConvolutionCut::Block &rows,
                              const float *image, const float *dy, float *dw,
                              float *scratch) const {
  // dy's rows with zeros behind them: the copies of the image need not be zero
  // there.
  int64_t pitch = roundUp(shape.outWidth, lanes);
  float *slopes = scratch + shape.channels * blockRows * shape.rowLength();
  copyRows(rows, image, scratch);
  float *to = slopes;
  for (int64_t f = 0; f < shape.filters; ++f)
    for (int64_t i = 0; i < rows.count; ++i, to += pitch) {
      const float *from =
          dy + (f * shape.outHeight + rows.begin + i) * shape.outWidth;
      std::copy(from, from + shape.outWidth, to);
      std::fill(to + shape.outWidth, to + pitch, 0.0f);
    }
  correlate(shape, rows.count, scratch, offsets, slopes, pitch, dw);
}

} // namespace fsdpc::runtime
