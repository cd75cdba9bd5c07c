// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pooling over planes. Each cell of the result is computed by itself
// (runtime/numeric/pooling_cell.h), so the cut among threads changes no bit.
#include "runtime/host/pooling.h"
#include "runtime/core/plan_checks.h"
#include "runtime/numeric/float16.h"
#include "runtime/numeric/pooling_cell.h"

#include <algorithm>

namespace fsdpc::runtime {

namespace {

// Planes [begin, end) of the result.
template <typename T>
void runPlanes(const PoolingPlan &plan, int64_t begin, int64_t end,
               const void *source, void *destination, int32_t *workspace) {
  PoolingShape p = poolingShape(plan);
  bool maximum = plan.kind == "max" || plan.kind == "max_grad";
  // A gradient reads the outputs' plane and writes the inputs'; its cells are
  // those of the input.
  bool gradient = plan.kind != "max" && plan.kind != "average";
  int64_t outPlane = p.out[0] * p.out[1], plane = p.in[0] * p.in[1];
  int64_t rows = gradient ? p.in[0] : p.out[0];
  int64_t columns = gradient ? p.in[1] : p.out[1];
  for (int64_t i = begin; i < end; ++i) {
    const T *from =
        static_cast<const T *>(source) + i * (gradient ? outPlane : plane);
    T *to = static_cast<T *>(destination) + i * (gradient ? plane : outPlane);
    // Written by "max", read by "max_grad"; average pooling has no workspace.
    int32_t *indices = maximum ? workspace + i * outPlane : nullptr;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        int64_t cell = row * columns + column;
        if (gradient)
          to[cell] = poolingGradCell(p, from, indices, row, column);
        else if (maximum)
          to[cell] = maxCell(p, from, row, column, indices[cell]);
        else
          to[cell] = averageCell(p, from, row, column);
      }
  }
}

} // namespace

Status Pooling::plan(const PoolingPlan &p) {
  pooling = p;
  return checkPooling(p);
}

void Pooling::run(ThreadPool &pool, const void *source, void *destination,
                  int32_t *workspace) const {
  int64_t planes = pooling.batch * pooling.channels;
  // Several pieces per thread, so that a slow one does not delay the rest.
  int64_t pieces = std::min<int64_t>(planes, 4 * pool.threads());
  pool.run(pieces, [&](int64_t piece, int) {
    int64_t begin = planes * piece / pieces;
    int64_t end = planes * (piece + 1) / pieces;
    auto run = [&](auto element) {
      runPlanes<decltype(element)>(pooling, begin, end, source, destination,
                                   workspace);
    };
    if (pooling.dtype == "f32")
      run(float());
    else if (pooling.dtype == "bf16")
      run(BFloat16());
    else
      run(Float16());
  });
}

} // namespace fsdpc::runtime
