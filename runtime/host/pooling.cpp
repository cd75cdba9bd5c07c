// Pooling over planes; see pooling.h. Gradients are summed in the order of the
// outputs, by one thread: the bits depend on nothing else.
#include "runtime/host/pooling.h"
#include "runtime/comm/bfloat16.h"

#include <algorithm>
#include <cmath>

namespace fsdpc {

namespace {

// The part of one output's window that lies within the plane, and the number of
// cells that an average divides by.
struct Window {
  int64_t top, bottom, left, right; // of the source plane, half-open
  int64_t rowBegin, columnBegin;    // of the window, may be negative
  int64_t divisor;
};

Window windowOf(const PoolingPlan &p, int64_t outRow, int64_t outColumn) {
  Window w;
  w.rowBegin = outRow * p.strides[0] - p.padsBegin[0];
  w.columnBegin = outColumn * p.strides[1] - p.padsBegin[1];
  int64_t rowEnd = w.rowBegin + p.kernel[0];
  int64_t columnEnd = w.columnBegin + p.kernel[1];
  w.top = std::max<int64_t>(w.rowBegin, 0);
  w.left = std::max<int64_t>(w.columnBegin, 0);
  w.bottom = std::min(rowEnd, p.height);
  w.right = std::min(columnEnd, p.width);
  // With ceil_mode a window may begin within and end past the end padding; what
  // lies past it counts in no divisor.
  w.divisor =
      p.countPadding
          ? (std::min(rowEnd, p.height + p.padsEnd[0]) - w.rowBegin) *
                (std::min(columnEnd, p.width + p.padsEnd[1]) - w.columnBegin)
          : (w.bottom - w.top) * (w.right - w.left);
  return w;
}

template <typename Body> void eachOutput(const PoolingPlan &p, Body &&body) {
  for (int64_t i = 0; i < p.outHeight; ++i)
    for (int64_t j = 0; j < p.outWidth; ++j)
      body(i * p.outWidth + j, windowOf(p, i, j));
}

template <typename T>
void maxPlane(const PoolingPlan &p, const T *x, T *y, int32_t *workspace) {
  eachOutput(p, [&](int64_t out, const Window &w) {
    float best = -INFINITY;
    int64_t index = (w.top - w.rowBegin) * p.kernel[1] + w.left - w.columnBegin;
    for (int64_t i = w.top; i < w.bottom; ++i)
      for (int64_t j = w.left; j < w.right; ++j) {
        float value = widen(x[i * p.width + j]);
        // A NaN is the maximum, as in PyTorch, and the first one stays.
        if (value > best || (std::isnan(value) && !std::isnan(best))) {
          best = value;
          index = (i - w.rowBegin) * p.kernel[1] + j - w.columnBegin;
        }
      }
    y[out] = narrow<T>(best);
    workspace[out] = int32_t(index);
  });
}

template <typename T>
void averagePlane(const PoolingPlan &p, const T *x, T *y) {
  eachOutput(p, [&](int64_t out, const Window &w) {
    float sum = 0;
    for (int64_t i = w.top; i < w.bottom; ++i)
      for (int64_t j = w.left; j < w.right; ++j)
        sum += widen(x[i * p.width + j]);
    y[out] = narrow<T>(sum / float(w.divisor));
  });
}

// The outputs [first, last) whose windows contain `position` along one axis.
struct Covering {
  int64_t first, last;
};

Covering covering(int64_t position, int64_t pad, int64_t kernel, int64_t stride,
                  int64_t outputs) {
  int64_t reach = position + pad;
  int64_t first = reach < kernel ? 0 : (reach - kernel) / stride + 1;
  return {first, std::min(reach / stride + 1, outputs)};
}

// Each source cell sums, in f32, what the outputs whose windows contain it hand
// back.
template <typename T>
void gradientPlane(const PoolingPlan &p, const T *dy, T *dx,
                   const int32_t *workspace) {
  for (int64_t row = 0; row < p.height; ++row) {
    Covering rows =
        covering(row, p.padsBegin[0], p.kernel[0], p.strides[0], p.outHeight);
    for (int64_t column = 0; column < p.width; ++column) {
      Covering columns = covering(column, p.padsBegin[1], p.kernel[1],
                                  p.strides[1], p.outWidth);
      float sum = 0;
      for (int64_t i = rows.first; i < rows.last; ++i)
        for (int64_t j = columns.first; j < columns.last; ++j) {
          Window w = windowOf(p, i, j);
          int64_t out = i * p.outWidth + j;
          int64_t index =
              (row - w.rowBegin) * p.kernel[1] + column - w.columnBegin;
          if (!workspace)
            sum += widen(dy[out]) / float(w.divisor);
          else if (workspace[out] == index)
            sum += widen(dy[out]);
        }
      dx[row * p.width + column] = narrow<T>(sum);
    }
  }
}

template <typename T>
void runPlanes(const PoolingPlan &p, int64_t begin, int64_t end,
               const void *source, void *destination, int32_t *workspace) {
  bool gradient = p.kind == "max_grad" || p.kind == "average_grad";
  int64_t plane = p.height * p.width, outPlane = p.outHeight * p.outWidth;
  for (int64_t i = begin; i < end; ++i) {
    const T *from =
        static_cast<const T *>(source) + i * (gradient ? outPlane : plane);
    T *to = static_cast<T *>(destination) + i * (gradient ? plane : outPlane);
    if (p.kind == "max")
      maxPlane(p, from, to, workspace + i * outPlane);
    else if (p.kind == "average")
      averagePlane(p, from, to);
    else
      gradientPlane(p, from, to,
                    p.kind == "max_grad" ? workspace + i * outPlane : nullptr);
  }
}

} // namespace

bool Pooling::plan(const PoolingPlan &p, std::string &error) {
  pooling = p;
  if (!parseElementType(p.dtype, type)) {
    error = "a pooling of type '" + p.dtype + "' is not supported";
    return false;
  }
  if (p.kind != "max" && p.kind != "average" && p.kind != "max_grad" &&
      p.kind != "average_grad") {
    error = "unknown pooling '" + p.kind + "'";
    return false;
  }
  return true;
}

void Pooling::run(ThreadPool &pool, const void *source, void *destination,
                  int32_t *workspace) const {
  int64_t planes = pooling.batch * pooling.channels;
  int64_t pieces = std::min<int64_t>(planes, 4 * pool.threads());
  pool.run(pieces, [&](int64_t piece, int) {
    int64_t begin = planes * piece / pieces;
    int64_t end = planes * (piece + 1) / pieces;
    if (type == ElementType::f32)
      runPlanes<float>(pooling, begin, end, source, destination, workspace);
    else
      runPlanes<BFloat16>(pooling, begin, end, source, destination, workspace);
  });
}

} // namespace fsdpc
