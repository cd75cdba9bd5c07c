// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The steps of Newton and Schulz that make the singular values of a matrix
// nearly equal (fsdp.orthogonalize), in the order of roundings of torch. The
// products are cut by columns, so that neither threads nor ranks change a bit.
#pragma once

#include "runtime/core/matrices.h"

#include <cstdint>
#include <functional>

namespace fsdpc::runtime {

/// Runs body(begin, end) on pieces of [0, count), side by side. The body must
/// not depend on how the range is cut.
using EachPiece = std::function<void(
    int64_t count, const std::function<void(int64_t, int64_t)> &body)>;

/// Orthogonalises `x`, with at most as many rows as columns, in row-major
/// order. `other` has room for as many elements; `square` has room for two
/// matrices of rows × rows. Returns x or other, which holds the result.
float *orthogonalized(float *x, float *other, float *square, int64_t rows,
                      int64_t columns, const MatrixSteps &by,
                      const EachPiece &each);

} // namespace fsdpc::runtime
