// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pooling and its gradients, one thread per cell of the result. The arithmetic
// is shared with the host (runtime/numeric/pooling_cell.h).
#pragma once

#include "runtime/cuda/kernels/grid.h"
#include "runtime/numeric/float16.h"
#include "runtime/numeric/pooling_cell.h"
#include "runtime/numeric/wire_type.h"

namespace fsdpc::runtime {

/// `planes` is batch × channels, each a dense plane of shape.in or shape.out.
/// `source` has the extents of the input, or for a gradient those of the
/// output. Memory of the device.
struct PoolingCells {
  PoolingShape shape = {};
  int64_t planes = 0;
  bool maximum = false, gradient = false;
  WireType type = WireType::f32;
  const void *source = nullptr;
  void *destination = nullptr;
  int32_t *indices =
      nullptr; ///< max: of each output's maximum within its window
};

template <typename T>
FSDPC_SHARED void poolAll(const Grid &grid, const PoolingCells &p) {
  // A gradient runs from outputs to inputs. Each input cell gathers, so no two
  // threads add to one cell.
  const int64_t *result = p.gradient ? p.shape.in : p.shape.out;
  const int64_t *source = p.gradient ? p.shape.out : p.shape.in;
  int64_t cells = result[0] * result[1];
  int64_t outputs = p.shape.out[0] * p.shape.out[1];
  auto *to = static_cast<T *>(p.destination);
  for (int64_t i = grid.first(); i < p.planes * cells; i += grid.stride()) {
    int64_t plane = i / cells, row = i % cells / result[1];
    int64_t column = i % result[1];
    const T *from =
        static_cast<const T *>(p.source) + plane * source[0] * source[1];
    if (p.gradient)
      to[i] = poolingGradCell(p.shape, from,
                              p.maximum ? p.indices + plane * outputs : nullptr,
                              row, column);
    else if (p.maximum)
      to[i] = maxCell(p.shape, from, row, column, p.indices[i]);
    else
      to[i] = averageCell(p.shape, from, row, column);
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const PoolingCells &p) {
  p.type == WireType::f32    ? poolAll<float>(grid, p)
  : p.type == WireType::bf16 ? poolAll<BFloat16>(grid, p)
                             : poolAll<Float16>(grid, p);
}

} // namespace fsdpc::runtime
