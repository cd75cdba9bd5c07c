// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Updates of whole matrices without their products: the momentum, the
// norm, what is added to a product, and the way to the optimizer. Numbers are
// f32 in memory; with `bf16` each is rounded to that where torch rounds it.
#pragma once

#include "runtime/abi/cuda_scratch.h"
#include "runtime/cuda/kernels/norm.h"
#include "runtime/numeric/momentum_step.h"

namespace fsdpc::runtime {

/// Writes this rank's part of the updates; one block per segment. Element i of
/// the part that the rank updates is number i + places[member] of the updates.
struct MomentumUpdates {
  const UpdateSegment *segments = nullptr;
  int64_t count = 0;
  const int64_t *places = nullptr;
  const float *gradients = nullptr, *states = nullptr, *scale = nullptr;
  MomentumStep step;
  float *updates = nullptr;
};

/// Copies the updates of segments to where the optimizer reads them: `values`
/// has that of element `first` of the part. One block per segment.
struct PlaceUpdates {
  const UpdateSegment *segments = nullptr;
  int64_t count = 0, first = 0;
  const int64_t *places = nullptr;
  const float *updates = nullptr;
  float *values = nullptr;
};

/// Sums the squares of a matrix, a sum per chunk; one block of threads each.
struct MatrixSquares {
  const float *values = nullptr;
  int64_t count = 0;
  bool bf16 = false;
  double *digits = nullptr; ///< normDigits per chunk
};

/// Writes a matrix divided by its norm, which is at least `eps`, from the sums
/// of its chunks. Each block adds these up for itself.
struct NormalizeMatrix {
  const float *from = nullptr;
  int64_t count = 0;
  float eps = 0;
  bool bf16 = false;
  const double *digits = nullptr;
  float *to = nullptr;
};

/// c = alpha · c + beta · d. Without d, c is only rounded.
struct CombineMatrices {
  float *c = nullptr;
  const float *d = nullptr;
  int64_t count = 0;
  float alpha = 1, beta = 0;
  bool bf16 = false;
};

/// to = factor · from.
struct ScaleMatrix {
  const float *from = nullptr;
  int64_t count = 0;
  double factor = 1;
  float *to = nullptr;
};

FSDPC_SHARED inline float matrixNumber(float value, bool bf16) {
  return bf16 ? widen(narrow<BFloat16>(value)) : value;
}

FSDPC_SHARED inline void body(const Grid &grid, const MomentumUpdates &m) {
  for (int64_t i = grid.block; i < m.count; i += grid.blocks) {
    UpdateSegment segment = m.segments[i];
    float *to = m.updates + m.places[segment.member];
    for (int64_t e = segment.from + grid.thread; e < segment.to;
         e += grid.threads)
      to[e] = m.step.update(m.gradients[e] * *m.scale, m.states[e]);
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const PlaceUpdates &p) {
  for (int64_t i = grid.block; i < p.count; i += grid.blocks) {
    UpdateSegment segment = p.segments[i];
    const float *from = p.updates + p.places[segment.member];
    for (int64_t e = segment.from + grid.thread; e < segment.to;
         e += grid.threads)
      p.values[e - p.first] = from[e];
  }
}

/// Exact, so that threads may add in any order.
FSDPC_SHARED inline void body(const Grid &grid, const MatrixSquares &m) {
  int64_t chunks = (m.count + matrixChunk - 1) / matrixChunk;
  for (int64_t chunk = grid.block; chunk < chunks; chunk += grid.blocks) {
    int64_t end = (chunk + 1) * matrixChunk;
    end = end < m.count ? end : m.count;
    SquareSum sum;
    int64_t added = 0;
    for (int64_t i = chunk * matrixChunk + grid.thread; i < end;
         i += grid.threads) {
      double wide = matrixNumber(m.values[i], m.bf16);
      sum.add(wide * wide);
      if (++added % SquareSum::mostAdditions == 0)
        sum.carry();
    }
    sum.carry();
    writeTogether(grid, sum, m.digits + chunk * normDigits);
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const NormalizeMatrix &m) {
  int64_t chunks = (m.count + matrixChunk - 1) / matrixChunk;
  SquareSum own;
  for (int64_t i = grid.thread; i < chunks; i += grid.threads)
    own.addWritten(m.digits + i * normDigits);
  double digits[normDigits];
  own.write(digits);
  for (double &digit : digits)
    digit = grid.sum(digit);
  int64_t failed; // of a matrix that is not finite nothing is updated
  float norm = float(sqrt(sumOfSquares(digits, 1, failed)));
  // torch takes the norm of a bf16 tensor, which is a bf16.
  norm = matrixNumber(norm, m.bf16);
  norm = norm < m.eps ? m.eps : norm;
  for (int64_t i = grid.first(); i < m.count; i += grid.stride())
    m.to[i] = matrixNumber(matrixNumber(m.from[i], m.bf16) / norm, m.bf16);
}

FSDPC_SHARED inline void body(const Grid &grid, const CombineMatrices &m) {
  for (int64_t i = grid.first(); i < m.count; i += grid.stride()) {
    float value = m.d ? m.alpha * m.c[i] + m.beta * m.d[i] : m.c[i];
    m.c[i] = matrixNumber(value, m.bf16);
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const ScaleMatrix &m) {
  for (int64_t i = grid.first(); i < m.count; i += grid.stride())
    m.to[i] = float(m.factor * double(m.from[i]));
}

} // namespace fsdpc::runtime
