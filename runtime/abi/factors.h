// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Says how an optimizer that factors the averages of squares sees a parameter:
// as matrices along its last two axes, with a number per row and per column of
// each. A parameter with fewer axes is one row whose columns have the averages
// themselves, so there is no number for the row.
//
// The ranks add up the sums of rows and columns of their parts exactly. A row
// or a column that is cut anywhere needs the digits of an exact sum for that
// (norm_digits.h). Small matrices travel as squares of their elements instead,
// which takes less: an element lies on one rank, so the others add 0 to it.
#pragma once

#include "runtime/abi/norm_digits.h"

#include <cstdint>
#include <vector>

namespace fsdpc {

struct FactorShape {
  int64_t matrices = 1, rows = 1, columns = 1;
  bool factored = false; ///< false: fewer than two axes

  /// The numbers of all rows, which come first, and of all columns.
  int64_t rowCount() const { return factored ? matrices * rows : 0; }
  int64_t columnCount() const { return matrices * columns; }
  int64_t count() const { return rowCount() + columnCount(); }

  /// True if squares of elements travel, false if digits of sums do.
  bool sumsElements() const {
    return !factored || rows * columns <= normDigits * (rows + columns);
  }
  /// The f64 that travel: one for each element, or the digits of each row and
  /// column, rows first.
  int64_t sumCount() const {
    return sumsElements() ? matrices * rows * columns : normDigits * count();
  }
};

inline FactorShape factorShapeOf(const std::vector<int64_t> &shape) {
  FactorShape result;
  size_t axes = shape.size();
  result.factored = axes > 1;
  for (size_t i = 0; i < axes; ++i)
    (i + 1 == axes   ? result.columns
     : i + 2 == axes ? result.rows
                     : result.matrices) *= shape[i];
  return result;
}

/// The ends of the names of a parameter's state, as in torch.
constexpr const char *rowFactors = ".row_var";
constexpr const char *columnFactors = ".col_var";
constexpr const char *vectorFactors = ".variance";

} // namespace fsdpc
