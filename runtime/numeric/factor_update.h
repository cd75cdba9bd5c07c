// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How averages of squares along rows and columns (fsdp.update_factors) follow
// from the sums of all ranks, and averages of elements from these: the same
// functions on the host and on GPUs (runtime/cuda/kernels).
#pragma once

#include "runtime/numeric/square_sum.h"

#include <cmath>

namespace fsdpc::runtime {

/// A member's averages, with its shape as runtime/abi/factors.h has it.
/// Functions below number its rows and columns over all of its matrices.
struct FactorAverages {
  int64_t matrices = 1, rows = 1, columns = 1;
  bool factored = false, sumsElements = false;
  float *ofRows = nullptr, *ofColumns = nullptr; ///< rows: null if not factored
  /// Where its numbers begin among the layout's rows and columns, and among
  /// what ranks add up.
  int64_t first = 0, firstSum = 0;

  FSDPC_SHARED int64_t rowCount() const {
    return factored ? matrices * rows : 0;
  }
  FSDPC_SHARED int64_t columnCount() const { return matrices * columns; }
};

/// Returns an exact sum, which travelled as digits.
FSDPC_SHARED inline double digitSum(const double *digits) {
  int64_t failed; // of a gradient that is not finite nothing is updated
  return sumOfSquares(digits, 1, failed);
}

/// Return the sum of squares of a row or column. `sums` are the layout's.
FSDPC_SHARED inline double rowSum(const FactorAverages &a, const double *sums,
                                  int64_t row) {
  const double *own = sums + a.firstSum;
  if (!a.sumsElements)
    return digitSum(own + row * normDigits);
  double sum = 0;
  for (int64_t i = 0; i < a.columns; ++i)
    sum += own[row * a.columns + i];
  return sum;
}
/// Columns of one matrix follow those of the one before.
FSDPC_SHARED inline double columnSum(const FactorAverages &a,
                                     const double *sums, int64_t column) {
  const double *own = sums + a.firstSum;
  if (!a.sumsElements)
    return digitSum(own + (a.rowCount() + column) * normDigits);
  own += column / a.columns * a.rows * a.columns + column % a.columns;
  double sum = 0;
  for (int64_t row = 0; row < a.rows; ++row)
    sum += own[row * a.columns];
  return sum;
}

/// Tensor.lerp_ in f64, rounded once.
FSDPC_SHARED inline float blendAverage(float old, double value, double weight) {
  return float(double(old) + weight * (value - double(old)));
}

FSDPC_SHARED inline void updateRow(const FactorAverages &a, const double *sums,
                                   double weight, int64_t row) {
  a.ofRows[row] = blendAverage(
      a.ofRows[row], rowSum(a, sums, row) / double(a.columns), weight);
}
/// The average of a column is its factor, too. `factors` are the layout's.
FSDPC_SHARED inline void updateColumn(const FactorAverages &a,
                                      const double *sums, double weight,
                                      int64_t column, double *factors) {
  float average = blendAverage(
      a.ofColumns[column], columnSum(a, sums, column) / double(a.rows), weight);
  a.ofColumns[column] = average;
  factors[a.first + a.rowCount() + column] = average;
}

/// Adds up the averages of the rows `thread`, `thread` + `threads`, … of a
/// matrix. The sum is exact, so it does not depend on how the rows are dealt.
FSDPC_SHARED inline SquareSum sumOfRows(const FactorAverages &a, int64_t matrix,
                                        int64_t thread, int64_t threads) {
  SquareSum sum;
  int64_t added = 0;
  for (int64_t row = thread; row < a.rows; row += threads) {
    sum.add(a.ofRows[matrix * a.rows + row]);
    if (++added % SquareSum::mostAdditions == 0)
      sum.carry();
  }
  sum.carry();
  return sum;
}
/// Returns what the rows' averages are divided by. `digits` are those of
/// sumOfRows; eps keeps the quotient finite for a matrix without gradients.
FSDPC_SHARED inline double meanOfRows(const FactorAverages &a,
                                      const double *digits, double eps) {
  double mean = digitSum(digits) / double(a.rows);
  return mean > eps ? mean : eps;
}

/// Returns the average of squares of an element of the member.
FSDPC_SHARED inline float varianceOf(const FactorAverages &a,
                                     const double *factors, int64_t element) {
  int64_t row = element / a.columns, column = element % a.columns;
  const double *own = factors + a.first;
  // A vector has no rows: its columns are its elements.
  double ofRow = a.factored ? own[row] : 1;
  return float(ofRow * own[a.rowCount() + row / a.rows * a.columns + column]);
}

} // namespace fsdpc::runtime
