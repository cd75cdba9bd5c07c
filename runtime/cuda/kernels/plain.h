// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products, biases and convolutions that no library takes, as plain
// loops. They are meant to be correct, not fast, so that every legal program
// runs. One thread sums each result, in f32 and in a fixed order.
#pragma once

#include "runtime/cuda/kernels/softmax.h"

namespace fsdpc::runtime {

/// C[i] = A[i] · B[i], plus C[i] if `add`, for `entries` matrices. Strides of
/// entries, rows and columns are in elements. A column stride of the row's
/// length is a transposed operand.
struct PlainProduct {
  /// Device memory. Each element is widened before it is multiplied.
  const void *a = nullptr, *b = nullptr;
  void *c = nullptr;
  WireType typeA = WireType::f32, typeB = WireType::f32, typeC = WireType::f32;
  int64_t m = 0, n = 0, k = 0; ///< A has m × k elements, B k × n
  int64_t rowA = 0, columnA = 0, rowB = 0, columnB = 0, rowC = 0;
  int64_t entries = 1, strideA = 0, strideB = 0, strideC = 0;
  bool add = false;
};

/// Finishes a product, whose sums are in C: adds a row and a matrix, if there
/// are any, and computes GELU (in tanh's form) or multiplies by its slope at
/// `input`. Matrices have C's strides: `entries` of them, `stride` elements
/// apart.
enum class ProductEnd { none, gelu, geluGrad };
struct FinishProduct {
  ProductEnd end = ProductEnd::none;
  void *c = nullptr;
  const void *bias = nullptr, *addend = nullptr, *input = nullptr;
  void *extra = nullptr; ///< takes GELU's input, unless null
  WireType type = WireType::f32;
  int64_t m = 0, n = 0, row = 0, entries = 1, stride = 0;
};

/// Adds the rows of a matrix: to[j] = sum of from[i, j].
struct SumRows {
  const void *from = nullptr;
  void *to = nullptr;
  WireType type = WireType::f32;
  int64_t rows = 0, columns = 0, rowFrom = 0, columnFrom = 1;
};

/// Rounds dense f32 rows to rows of the plan's type, which have strides of
/// batch, head and row.
struct StoreRows {
  const float *from = nullptr;
  void *to = nullptr;
  WireType type = WireType::f32;
  int64_t strides[3] = {};
  int64_t headsOfBatch = 1, firstHead = 0, heads = 0, rows = 0, width = 0;
};

/// The result: the output, or the cotangent of the input or of the filter.
enum class ConvolutionKind { forward, input, weight };

/// Operands as in fsdpc_convolution. Pairs are (rows, columns). Images are
/// batch × channels × rows × columns, filters are filters × (channels / groups)
/// × rows × columns; both are dense. `pads` are those before the first row and
/// column: those behind the last follow from the extents of the output.
struct PlainConvolution {
  ConvolutionKind kind = ConvolutionKind::forward;
  WireType type = WireType::f32;
  const void *x = nullptr, *w = nullptr;
  void *y = nullptr;
  int64_t batch = 0, channels = 0, filters = 0, groups = 1;
  int64_t in[2] = {}, out[2] = {}, kernel[2] = {};
  int64_t strides[2] = {}, pads[2] = {}, dilations[2] = {};
};

/// One thread per element of C, and a loop over k.
FSDPC_SHARED inline void body(const Grid &grid, const PlainProduct &p) {
  int64_t cells = p.m * p.n;
  for (int64_t i = grid.first(); i < p.entries * cells; i += grid.stride()) {
    int64_t row = i % cells / p.n, column = i % p.n;
    int64_t entry = i / cells;
    int64_t a = entry * p.strideA + row * p.rowA;
    int64_t b = entry * p.strideB + column * p.columnB;
    int64_t c = entry * p.strideC + row * p.rowC + column;
    float sum = 0;
    for (int64_t l = 0; l < p.k; ++l)
      sum += load(p.a, p.typeA, a + l * p.columnA) *
             load(p.b, p.typeB, b + l * p.rowB);
    store(p.c, p.typeC, c, p.add ? load(p.c, p.typeC, c) + sum : sum);
  }
}

/// GELU by tanh, and its slope. Beyond +-10 they are x or 0, and 1 or 0.
FSDPC_SHARED inline float geluTanhOf(float x) {
  float u = 0.7978845608f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1 + tanhf(u));
}
FSDPC_SHARED inline float geluSlopeOf(float x) {
  x = x > 10 ? 10 : x < -10 ? -10 : x; // NaN stays
  float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
  return 0.5f * (1 + t) +
         0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

/// One thread per element of C. The sum is rounded once more, since C was
/// rounded when the product was stored; libraries round once.
FSDPC_SHARED inline void body(const Grid &grid, const FinishProduct &p) {
  int64_t cells = p.m * p.n;
  for (int64_t i = grid.first(); i < p.entries * cells; i += grid.stride()) {
    int64_t c = i / cells * p.stride + i % cells / p.n * p.row + i % p.n;
    float sum = load(p.c, p.type, c);
    if (p.addend)
      sum += load(p.addend, p.type, c);
    if (p.bias)
      sum += load(p.bias, p.type, i % p.n);
    if (p.extra)
      store(p.extra, p.type, c, sum);
    if (p.end == ProductEnd::gelu)
      sum = geluTanhOf(sum);
    else if (p.end == ProductEnd::geluGrad)
      sum *= geluSlopeOf(load(p.input, p.type, c));
    store(p.c, p.type, c, sum);
  }
}

/// One thread per column.
FSDPC_SHARED inline void body(const Grid &grid, const SumRows &p) {
  for (int64_t j = grid.first(); j < p.columns; j += grid.stride()) {
    float sum = 0;
    for (int64_t i = 0; i < p.rows; ++i)
      sum += load(p.from, p.type, i * p.rowFrom + j * p.columnFrom);
    store(p.to, p.type, j, sum);
  }
}

/// One thread per element, for the heads [firstHead, firstHead + heads) of all
/// batch entries in a row.
FSDPC_SHARED inline void body(const Grid &grid, const StoreRows &s) {
  int64_t cells = s.heads * s.rows * s.width;
  for (int64_t i = grid.first(); i < cells; i += grid.stride()) {
    // The rows of `from` are dense over the heads of the launch; `to` is
    // addressed by the head's place in the batch.
    int64_t head = s.firstHead + i / (s.rows * s.width);
    int64_t row = i / s.width % s.rows;
    store(s.to, s.type,
          head / s.headsOfBatch * s.strides[0] +
              head % s.headsOfBatch * s.strides[1] + row * s.strides[2] +
              i % s.width,
          s.from[i]);
  }
}

/// Returns the output row or column (`axis`) whose window has `input` at kernel
/// index `k`, or -1.
FSDPC_SHARED inline int64_t outputOf(const PlainConvolution &c, int axis,
                                     int64_t input, int64_t k) {
  // Solves output · stride + k · dilation - pad = input for the output, which
  // must be a whole number.
  int64_t reach = input + c.pads[axis] - k * c.dilations[axis];
  if (reach < 0 || reach % c.strides[axis] != 0 ||
      reach / c.strides[axis] >= c.out[axis])
    return -1;
  return reach / c.strides[axis];
}

/// Returns the input row or column (`axis`) at kernel index `k` of an output's
/// window, or a negative number if it lies in the padding.
FSDPC_SHARED inline int64_t inputOf(const PlainConvolution &c, int axis,
                                    int64_t output, int64_t k) {
  int64_t input =
      output * c.strides[axis] + k * c.dilations[axis] - c.pads[axis];
  return input < c.in[axis] ? input : -1;
}

/// One element of y: a sum over channels and kernel cells. Taps in the padding
/// are left out.
FSDPC_SHARED inline float forwardCell(const PlainConvolution &c, int64_t n,
                                      int64_t filter, int64_t row,
                                      int64_t column) {
  int64_t channels = c.channels / c.groups;
  int64_t group = filter / (c.filters / c.groups);
  float sum = 0;
  for (int64_t channel = 0; channel < channels; ++channel)
    for (int64_t i = 0; i < c.kernel[0]; ++i) {
      int64_t r = inputOf(c, 0, row, i);
      for (int64_t j = 0; r >= 0 && j < c.kernel[1]; ++j) {
        int64_t s = inputOf(c, 1, column, j);
        if (s < 0)
          continue;
        int64_t plane = n * c.channels + group * channels + channel;
        int64_t taps = filter * channels + channel;
        sum += load(c.x, c.type, (plane * c.in[0] + r) * c.in[1] + s) *
               load(c.w, c.type, (taps * c.kernel[0] + i) * c.kernel[1] + j);
      }
    }
  return sum;
}

/// One element of dx: a sum over the filters of the group and the outputs whose
/// windows contain it.
FSDPC_SHARED inline float inputCell(const PlainConvolution &c, int64_t n,
                                    int64_t channel, int64_t row,
                                    int64_t column) {
  int64_t channels = c.channels / c.groups, filters = c.filters / c.groups;
  int64_t group = channel / channels;
  float sum = 0;
  for (int64_t f = group * filters; f < (group + 1) * filters; ++f)
    for (int64_t i = 0; i < c.kernel[0]; ++i) {
      int64_t r = outputOf(c, 0, row, i);
      for (int64_t j = 0; r >= 0 && j < c.kernel[1]; ++j) {
        int64_t s = outputOf(c, 1, column, j);
        if (s < 0)
          continue;
        int64_t plane = n * c.filters + f;
        int64_t taps = f * channels + channel % channels;
        sum += load(c.x, c.type, (plane * c.out[0] + r) * c.out[1] + s) *
               load(c.w, c.type, (taps * c.kernel[0] + i) * c.kernel[1] + j);
      }
    }
  return sum;
}

/// One element of dw: a sum over images and output positions.
FSDPC_SHARED inline float weightCell(const PlainConvolution &c, int64_t filter,
                                     int64_t tap, int64_t i, int64_t j) {
  int64_t channels = c.channels / c.groups;
  int64_t channel = filter / (c.filters / c.groups) * channels + tap;
  float sum = 0;
  for (int64_t n = 0; n < c.batch; ++n)
    for (int64_t row = 0; row < c.out[0]; ++row) {
      int64_t r = inputOf(c, 0, row, i);
      for (int64_t column = 0; r >= 0 && column < c.out[1]; ++column) {
        int64_t s = inputOf(c, 1, column, j);
        if (s < 0)
          continue;
        int64_t from = n * c.channels + channel, to = n * c.filters + filter;
        sum += load(c.x, c.type, (from * c.in[0] + r) * c.in[1] + s) *
               load(c.w, c.type, (to * c.out[0] + row) * c.out[1] + column);
      }
    }
  return sum;
}

/// One thread per element of y, which gathers what it is made of. So no two
/// threads add to one element, and the bits do not depend on the grid.
FSDPC_SHARED inline void body(const Grid &grid, const PlainConvolution &c) {
  bool weight = c.kind == ConvolutionKind::weight;
  bool input = c.kind == ConvolutionKind::input;
  // The result's four extents are the outer one, `planes` and plane[0],
  // plane[1].
  int64_t planes = weight  ? c.channels / c.groups
                   : input ? c.channels
                           : c.filters;
  const int64_t *plane = weight ? c.kernel : input ? c.in : c.out;
  int64_t cells = (weight ? c.filters : c.batch) * planes * plane[0] * plane[1];
  for (int64_t cell = grid.first(); cell < cells; cell += grid.stride()) {
    int64_t column = cell % plane[1], row = cell / plane[1] % plane[0];
    int64_t outer = cell / (plane[0] * plane[1]);
    int64_t first = outer / planes, second = outer % planes;
    store(c.y, c.type, cell,
          weight  ? weightCell(c, first, second, row, column)
          : input ? inputCell(c, first, second, row, column)
                  : forwardCell(c, first, second, row, column));
  }
}

} // namespace fsdpc::runtime
