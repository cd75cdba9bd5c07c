// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of --reduce-hook=power-sgd, with the bits of the host
// (runtime/comm/power_sgd.cpp). They are bound by memory: a factor has few
// vectors.
#pragma once

#include "runtime/abi/power_sgd.h"
#include "runtime/cuda/kernels/elements.h"
#include "runtime/cuda/kernels/grid.h"

#include <cmath>

namespace fsdpc::runtime {

/// Overwrites to[i] with from[i], or with `add` adds it. Nothing is aligned
/// beyond an element.
struct AddValues {
  const void *from = nullptr;
  WireType type = WireType::f32;
  float *to = nullptr;
  int64_t elements = 0;
  bool add = true;
};

/// Makes `count` vectors of `length` elements orthonormal, one after the other;
/// one that depends on those before it becomes zero. Vectors that are zero are
/// first replaced by those of `first`, unless that is null. One block of
/// threads. `lanes` has powerLanes numbers.
struct Orthonormalise {
  float *vectors = nullptr;
  const float *first = nullptr;
  int64_t count = 0, length = 0;
  double *lanes = nullptr;
};

/// left = M · right, or right = Mᵀ · left, for a matrix M of `shape`. A factor
/// has its `rank` vectors one after the other.
struct MultiplyRight {
  const float *matrix = nullptr, *right = nullptr;
  PowerShape shape;
  int64_t rank = 0;
  float *left = nullptr;
};
struct MultiplyLeft {
  const float *matrix = nullptr, *left = nullptr;
  PowerShape shape;
  int64_t rank = 0;
  float *right = nullptr;
};

/// Adds left · rightᵀ to those of its elements that lie in [begin, begin +
/// elements) of the sum, and takes `share` of it from the matrix. The matrix
/// begins at element `offset` of the layout, as `begin` counts.
struct SpreadFactors {
  const float *left = nullptr, *right = nullptr;
  PowerShape shape;
  int64_t rank = 0;
  float *matrix = nullptr;
  float share = 0;
  int64_t offset = 0;
  float *sum = nullptr;
  int64_t begin = 0, elements = 0;
};

FSDPC_SHARED inline void body(const Grid &grid, const AddValues &a) {
  for (int64_t i = grid.first(); i < a.elements; i += grid.stride()) {
    float value = load(a.from, a.type, i);
    a.to[i] = a.add ? a.to[i] + value : value;
  }
}

/// Returns the dot product to all threads of the block, in the order that
/// powerLanes describes.
FSDPC_SHARED inline double dotInLanes(const Grid &grid, double *lanes,
                                      const float *a, const float *b,
                                      int64_t length) {
  for (int64_t lane = grid.thread; lane < powerLanes; lane += grid.threads) {
    double sum = 0;
    for (int64_t i = lane; i < length; i += powerLanes)
      sum += double(a[i]) * double(b[i]);
    lanes[lane] = sum;
  }
  for (int64_t half = powerLanes / 2; half > 0; half /= 2) {
    grid.synchronize();
    for (int64_t lane = grid.thread; lane < half; lane += grid.threads)
      lanes[lane] += lanes[lane + half];
  }
  grid.synchronize();
  double sum = lanes[0];
  // Before the next product overwrites it.
  grid.synchronize();
  return sum;
}

/// The second round removes what the first one's rounding has left.
FSDPC_SHARED inline void orthonormaliseVector(const Grid &grid,
                                              const Orthonormalise &o,
                                              int64_t vector) {
  float *own = o.vectors + vector * o.length;
  double before = sqrt(dotInLanes(grid, o.lanes, own, own, o.length));
  for (int round = 0; round < 2; ++round)
    for (int64_t j = 0; j < vector; ++j) {
      const float *other = o.vectors + j * o.length;
      float factor = -float(dotInLanes(grid, o.lanes, own, other, o.length));
      for (int64_t k = grid.thread; k < o.length; k += grid.threads)
        own[k] += factor * other[k];
      grid.synchronize();
    }
  double after = sqrt(dotInLanes(grid, o.lanes, own, own, o.length));
  bool depends = after <= powerDependent * before && std::isfinite(before);
  for (int64_t k = grid.thread; k < o.length; k += grid.threads)
    own[k] = depends ? 0 : float(double(own[k]) / after);
  grid.synchronize();
}

FSDPC_SHARED inline void body(const Grid &grid, const Orthonormalise &o) {
  if (grid.block != 0)
    return;
  for (int64_t vector = 0; o.first && vector < o.count; ++vector) {
    float *own = o.vectors + vector * o.length;
    if (dotInLanes(grid, o.lanes, own, own, o.length) == 0)
      for (int64_t k = grid.thread; k < o.length; k += grid.threads)
        own[k] = o.first[vector * o.length + k];
    grid.synchronize();
  }
  for (int64_t vector = 0; vector < o.count; ++vector)
    orthonormaliseVector(grid, o, vector);
}

/// One thread per result, which adds in the lanes of the host. Threads that are
/// adjacent read the same row.
FSDPC_SHARED inline void body(const Grid &grid, const MultiplyRight &m) {
  constexpr int64_t lanes = powerRowLanes;
  int64_t columns = m.shape.columns, whole = columns / lanes * lanes;
  for (int64_t t = grid.first(); t < m.shape.rows * m.rank;
       t += grid.stride()) {
    int64_t i = t / m.rank, k = t % m.rank;
    const float *row = m.matrix + i * columns, *vector = m.right + k * columns;
    float sums[lanes] = {};
    for (int64_t j = 0; j < whole; j += lanes)
      for (int64_t lane = 0; lane < lanes; ++lane)
        sums[lane] += row[j + lane] * vector[j + lane];
    for (int64_t lane = 0; lane < lanes; ++lane)
      if (whole + lane < columns)
        sums[lane] += row[whole + lane] * vector[whole + lane];
    for (int64_t half = lanes / 2; half > 0; half /= 2)
      for (int64_t lane = 0; lane < half; ++lane)
        sums[lane] += sums[lane + half];
    m.left[k * m.shape.rows + i] = sums[0];
  }
}

/// One thread per result, which adds row by row. It reads some rows ahead of
/// their sum, so that loads overlap.
FSDPC_SHARED inline void body(const Grid &grid, const MultiplyLeft &m) {
  constexpr int ahead = 8;
  int64_t rows = m.shape.rows, columns = m.shape.columns;
  for (int64_t t = grid.first(); t < columns * m.rank; t += grid.stride()) {
    int64_t k = t / columns, j = t % columns;
    const float *vector = m.left + k * rows;
    float sum = 0;
    for (int64_t begin = 0; begin < rows; begin += ahead) {
      float values[ahead];
      for (int i = 0; i < ahead; ++i)
        values[i] =
            begin + i < rows ? m.matrix[(begin + i) * columns + j] : 0.0f;
      for (int i = 0; i < ahead; ++i)
        if (begin + i < rows)
          sum += vector[begin + i] * values[i];
    }
    m.right[t] = sum;
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const SpreadFactors &s) {
  int64_t rows = s.shape.rows, columns = s.shape.columns;
  for (int64_t t = grid.first(); t < rows * columns; t += grid.stride()) {
    int64_t i = t / columns, j = t % columns;
    float value = 0;
    for (int64_t k = 0; k < s.rank; ++k)
      value += s.left[k * rows + i] * s.right[k * columns + j];
    int64_t place = s.offset + t - s.begin;
    if (place >= 0 && place < s.elements)
      s.sum[place] += value;
    s.matrix[t] += -s.share * value;
  }
}

} // namespace fsdpc::runtime
