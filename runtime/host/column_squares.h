// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Exact sums of squares down some columns of a matrix, row by row.
//
// Adding each square to the digits of its sum (square_sum.h) takes most of
// @update. So squares are cut at two places that fit all of the rows at hand,
// as in the pre-rounding of Rump, Ogita and Oishi (Accurate Floating-Point
// Summation, 2008): f64 adds the multiples of either place exactly, and with
// vectors. The digits get the two sums after some hundred rows. A square that
// has bits below both places goes to the digits at once.
#pragma once

#include "runtime/numeric/square_sum.h"

#include <array>
#include <cstdint>

namespace fsdpc::runtime {

class ColumnSquares {
public:
  static constexpr int64_t most = 64; ///< columns: four cache lines of f32

  /// Adds the squares of one row's numbers in the columns [first, last), which
  /// begin at `values`, multiplied by `scale` and then bounded by `limit`.
  void addRow(const float *values, int64_t first, int64_t last, float scale,
              float limit);
  /// Adds the digits of the first `count` sums to what is there.
  void addTo(int64_t count, double *digits);

private:
  void flush();

  /// Rows between two flushes. High and low parts then stay below 2^53 units.
  static constexpr int64_t mostRows = 512;

  std::array<SquareSum, most> sums;
  std::array<double, most> squares, high = {}, low = {};
  double bound = 0; ///< a power of two above all squares since the last flush
  int64_t rows = 0;
};

} // namespace fsdpc::runtime
