// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pooling, one cell of the result at a time, forward and backward: the
// arithmetic that the host and the CUDA kernels share. A gradient cell gathers
// from the outputs whose windows contain it, in the order of these outputs, so
// no two threads add to one cell and the bits depend on nothing else.
#pragma once

#include "runtime/abi/manifest.h"
#include "runtime/numeric/bfloat16.h"

#include <cmath>

namespace fsdpc::runtime {

/// The sizes of a pooling. Pairs are (rows, columns).
/// Plain arrays of fixed size, since kernels take it by value.
struct PoolingShape {
  int64_t in[2], out[2], kernel[2], strides[2], padsBegin[2], padsEnd[2];
  bool countPadding;
};

/// The plan of the manifest in the form that both sides compute with: plain
/// arrays, which a kernel can take as an argument.
inline PoolingShape poolingShape(const PoolingPlan &p) {
  return {{p.height, p.width},
          {p.outHeight, p.outWidth},
          {p.kernel[0], p.kernel[1]},
          {p.strides[0], p.strides[1]},
          {p.padsBegin[0], p.padsBegin[1]},
          {p.padsEnd[0], p.padsEnd[1]},
          p.countPadding};
}

/// The part of one output's window that lies within the plane, along one axis.
struct PoolingSpan {
  int64_t window;     ///< first cell of the window; negative within padding
  int64_t begin, end; ///< cells of the window that lie in the plane
  int64_t counted;    ///< cells that the average's divisor counts
};

/// Returns the span of output number `output` along an axis (0: rows, 1:
/// columns). It is empty if the window lies in the padding, which legal plans
/// exclude.
FSDPC_SHARED inline PoolingSpan poolingSpan(const PoolingShape &p, int axis,
                                            int64_t output) {
  PoolingSpan span;
  span.window = output * p.strides[axis] - p.padsBegin[axis];
  int64_t end = span.window + p.kernel[axis], plane = p.in[axis];
  span.begin = span.window > 0 ? span.window : 0;
  span.end = end < plane ? end : plane;
  // With ceil_mode a window may begin inside the plane and reach beyond the end
  // padding. Cells beyond it count in no divisor.
  int64_t padded = plane + p.padsEnd[axis];
  span.counted = p.countPadding ? (end < padded ? end : padded) - span.window
                                : span.end - span.begin;
  return span;
}

/// Returns the maximum of an output's window and its index within the window.
/// As in PyTorch, a NaN counts as the maximum, and the first one wins.
template <typename T>
FSDPC_SHARED T maxCell(const PoolingShape &p, const T *x, int64_t row,
                       int64_t column, int32_t &index) {
  PoolingSpan rows = poolingSpan(p, 0, row);
  PoolingSpan columns = poolingSpan(p, 1, column);
  auto place = [&](int64_t i, int64_t j) {
    return int32_t((i - rows.window) * p.kernel[1] + j - columns.window);
  };
  // If all values are -inf, the first cell of the window within the plane wins.
  float best = -float(INFINITY);
  index = place(rows.begin, columns.begin);
  for (int64_t i = rows.begin; i < rows.end; ++i)
    for (int64_t j = columns.begin; j < columns.end; ++j) {
      float value = widen(x[i * p.in[1] + j]);
      // A NaN compares false with everything, so it needs a test of its own;
      // `best == best` is false once the best is a NaN.
      if (value > best || (value != value && best == best)) {
        best = value;
        index = place(i, j);
      }
    }
  return narrow<T>(best);
}

/// Returns the average of an output's window, summed in f32.
template <typename T>
FSDPC_SHARED T averageCell(const PoolingShape &p, const T *x, int64_t row,
                           int64_t column) {
  PoolingSpan rows = poolingSpan(p, 0, row);
  PoolingSpan columns = poolingSpan(p, 1, column);
  float sum = 0;
  for (int64_t i = rows.begin; i < rows.end; ++i)
    for (int64_t j = columns.begin; j < columns.end; ++j)
      sum += widen(x[i * p.in[1] + j]);
  return narrow<T>(sum / float(rows.counted * columns.counted));
}

/// The outputs [first, last) whose windows contain one position, along one
/// axis.
struct PoolingCover {
  int64_t first, last;
};

/// Returns the outputs whose windows reach over input number `position` along
/// an axis. The range is empty if strides jump over the position.
FSDPC_SHARED inline PoolingCover poolingCover(const PoolingShape &p, int axis,
                                              int64_t position) {
  // Output o covers [o * stride, o * stride + kernel) of the padded axis, so
  // `reach`, the position with padding before it, is covered by the outputs
  // with o * stride <= reach < o * stride + kernel.
  int64_t reach = position + p.padsBegin[axis], kernel = p.kernel[axis];
  int64_t stride = p.strides[axis], last = reach / stride + 1;
  return {reach < kernel ? 0 : (reach - kernel) / stride + 1,
          last < p.out[axis] ? last : p.out[axis]};
}

/// Returns the gradient of one source cell: the sum, in f32, of what the
/// outputs whose windows contain it pass back. `indices` are those of the
/// maxima, or null for average pooling.
template <typename T>
FSDPC_SHARED T poolingGradCell(const PoolingShape &p, const T *dy,
                               const int32_t *indices, int64_t row,
                               int64_t column) {
  PoolingCover rows = poolingCover(p, 0, row);
  PoolingCover columns = poolingCover(p, 1, column);
  float sum = 0;
  for (int64_t i = rows.first; i < rows.last; ++i)
    for (int64_t j = columns.first; j < columns.last; ++j) {
      PoolingSpan down = poolingSpan(p, 0, i), across = poolingSpan(p, 1, j);
      int64_t out = i * p.out[1] + j;
      // As `maxCell` numbers the cells of a window, cells in the padding
      // included.
      int64_t index =
          (row - down.window) * p.kernel[1] + column - across.window;
      if (!indices)
        sum += widen(dy[out]) / float(down.counted * across.counted);
      else if (indices[out] == index)
        sum += widen(dy[out]);
    }
  return narrow<T>(sum);
}

} // namespace fsdpc::runtime
