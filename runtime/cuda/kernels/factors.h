// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Averages of squares along rows and columns, with the same bits as on the
// host: sums along both are exact (runtime/numeric/square_sum.h), so threads
// may add in any order.
#pragma once

#include "runtime/cuda/kernels/norm.h"
#include "runtime/numeric/factor_update.h"

namespace fsdpc::runtime {

/// Columns that a block of threads sums at a time: 128 bytes of a row.
constexpr int factorColumns = 32;
/// Elements whose squares a block writes at a time.
constexpr int64_t factorElements = 4096;

/// A member on this rank.
struct FactorMember : FactorAverages {
  int64_t offset = 0;      ///< of the member in the part that the rank updates
  int64_t firstTask = 0;   ///< of SumFactors
  int64_t firstMatrix = 0; ///< among the layout's matrices with rows
};

/// Blocks that sum a member: one per row, per columns, or per elements.
inline int64_t factorTasks(const FactorMember &m) {
  int64_t cells = m.matrices * m.rows * m.columns;
  return m.sumsElements
             ? (cells + factorElements - 1) / factorElements
             : m.rowCount() + m.matrices * ((m.columns + factorColumns - 1) /
                                            factorColumns);
}

/// Writes what ranks add up: the digits of sums of squares of the gradient
/// times `scale`, bounded by `limit`; or squares of elements. Elements of the
/// part before `begin` and from `end` on count 0. If it `adds`, the sums are
/// added to what is there.
struct SumFactors {
  const FactorMember *members = nullptr;
  int64_t count = 0, tasks = 0;
  const float *gradient = nullptr; ///< of the part's first element
  int64_t begin = 0, end = 0;
  bool adds = false;
  const float *scale = nullptr;
  float limit = 0;
  double *sums = nullptr;

  FSDPC_SHARED int64_t beginOf(const FactorMember &m) const {
    return begin > m.offset ? begin - m.offset : 0;
  }
  FSDPC_SHARED int64_t endOf(const FactorMember &m) const {
    int64_t cells = m.matrices * m.rows * m.columns;
    return end - m.offset < cells ? end - m.offset : cells;
  }
  /// Returns true if sums over elements [from, to) of a member stay as they
  /// are. All threads of a block ask for the same elements.
  FSDPC_SHARED bool leaves(const FactorMember &m, int64_t from,
                           int64_t to) const {
    return adds && (to <= beginOf(m) || from >= endOf(m));
  }
  FSDPC_SHARED void put(int64_t number, double value) const {
    sums[number] = adds ? sums[number] + value : value;
  }
};

/// Updates the averages, unless the step is left out: `failed` is at least 0
/// then. The weight of a mean is the member's step, rates[4 · member + 1], to
/// the power. `numbers` counts rows and columns.
struct UpdateFactors {
  const FactorMember *members = nullptr;
  int64_t count = 0, numbers = 0;
  const double *sums = nullptr, *rates = nullptr;
  double power = 0;
  double *factors = nullptr;
  const int64_t *failed = nullptr;
};

/// Writes the factors of rows, once averages are updated; one block of threads
/// per matrix.
struct ScaleRows {
  const FactorMember *members = nullptr;
  int64_t count = 0, matrices = 0;
  double eps = 0;
  double *factors = nullptr;
};

/// Writes the averages of squares of the elements of segments; one block per
/// segment. `values` has that of element `first` of the part.
struct MultiplyFactors {
  const UpdateSegment *segments = nullptr;
  int64_t count = 0, first = 0;
  const FactorMember *members = nullptr;
  const double *factors = nullptr;
  float *values = nullptr;
};

/// Returns the last member whose `first` is not above `number`. Members without
/// numbers lie in front of the next one, which has the same first.
FSDPC_SHARED inline int64_t memberOf(const FactorMember *members, int64_t count,
                                     int64_t FactorMember::*first,
                                     int64_t number) {
  int64_t low = 0, high = count;
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    (members[middle].*first <= number ? low : high) = middle;
  }
  return low;
}

/// An element of the gradient, clipped after the scale as the optimizer does.
FSDPC_SHARED inline float factorValue(const SumFactors &s,
                                      const FactorMember &m, int64_t element) {
  float scaled = s.gradient[m.offset + element] * *s.scale;
  scaled = scaled < -s.limit ? -s.limit : scaled;
  return s.limit < scaled ? s.limit : scaled;
}
/// Exact.
FSDPC_SHARED inline double
factorSquare(const SumFactors &s, const FactorMember &m, int64_t element) {
  double wide = factorValue(s, m, element);
  return wide * wide;
}

FSDPC_SHARED inline void squareElements(const Grid &grid, const SumFactors &s,
                                        const FactorMember &m, int64_t task) {
  int64_t cells = m.matrices * m.rows * m.columns;
  int64_t end = (task + 1) * factorElements;
  if (s.leaves(m, task * factorElements, end))
    return;
  int64_t first = s.beginOf(m), last = s.endOf(m);
  for (int64_t i = task * factorElements + grid.thread;
       i < (end < cells ? end : cells); i += grid.threads)
    s.put(m.firstSum + i, i < first || i >= last ? 0 : factorSquare(s, m, i));
}

/// Groups are counted from the member's first element. Elements of a group that
/// belong to other rows or ranks count as 0.
FSDPC_SHARED inline void sumFactorRow(const Grid &grid, const SumFactors &s,
                                      const FactorMember &m, int64_t row) {
  int64_t from = row * m.columns, to = from + m.columns;
  if (s.leaves(m, from, to))
    return;
  int64_t first = s.beginOf(m), last = s.endOf(m);
  from = from > first ? from : first;
  to = to < last ? to : last;
  SquareSum sum;
  int64_t added = 0;
  for (int64_t base = (from / squareGroup + grid.thread) * squareGroup;
       base < to; base += squareGroup * grid.threads) {
    float group[squareGroup];
    for (int i = 0; i < squareGroup; ++i)
      group[i] =
          base + i < from || base + i >= to ? 0 : factorValue(s, m, base + i);
    sum.add(squaresOfGroup(group));
    if (++added % SquareSum::mostAdditions == 0)
      sum.carry();
  }
  sum.carry();
  double digits[normDigits];
  sum.write(digits);
  for (int i = 0; i < normDigits; ++i) {
    double digit = grid.sum(digits[i]);
    if (grid.thread == 0)
      s.put(m.firstSum + row * normDigits + i, digit);
  }
}

/// Adjacent threads take adjacent columns, and the others further rows.
FSDPC_SHARED inline void sumFactorColumns(const Grid &grid, const SumFactors &s,
                                          const FactorMember &m, int64_t task) {
  int64_t blocks = (m.columns + factorColumns - 1) / factorColumns;
  int64_t matrix = task / blocks, first = task % blocks * factorColumns;
  int width = grid.threads < factorColumns ? grid.threads : factorColumns;
  int64_t base = matrix * m.rows * m.columns;
  if (s.leaves(m, base, base + m.rows * m.columns))
    return;
  // The rows that this rank has a part of.
  int64_t begin = s.beginOf(m), end = s.endOf(m);
  int64_t low = begin > base ? (begin - base) / m.columns : 0;
  for (int64_t at = first; at < first + factorColumns; at += width) {
    int64_t column = at + grid.thread % width, added = 0;
    SquareSum sum;
    for (int64_t row = low + grid.thread / width;
         row < m.rows && base + row * m.columns < end;
         row += grid.threads / width) {
      int64_t element = base + row * m.columns + column;
      if (column >= m.columns || element < begin || element >= end)
        continue;
      sum.add(factorSquare(s, m, element));
      if (++added % SquareSum::mostAdditions == 0)
        sum.carry();
    }
    sum.carry();
    double digits[normDigits];
    sum.write(digits);
    int64_t to =
        m.firstSum + (m.rowCount() + matrix * m.columns + column) * normDigits;
    for (int i = 0; i < normDigits; ++i) {
      double digit = grid.reduce(
          digits[i], [](double a, double b) { return a + b; }, width);
      if (grid.thread < width && column < m.columns)
        s.put(to + i, digit);
    }
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const SumFactors &s) {
  for (int64_t task = grid.block; task < s.tasks; task += grid.blocks) {
    const FactorMember &m =
        s.members[memberOf(s.members, s.count, &FactorMember::firstTask, task)];
    int64_t own = task - m.firstTask;
    if (m.sumsElements)
      squareElements(grid, s, m, own);
    else if (own < m.rowCount())
      sumFactorRow(grid, s, m, own);
    else
      sumFactorColumns(grid, s, m, own - m.rowCount());
  }
}

/// One thread per row and column.
FSDPC_SHARED inline void body(const Grid &grid, const UpdateFactors &u) {
  if (*u.failed >= 0)
    return;
  for (int64_t i = grid.first(); i < u.numbers; i += grid.stride()) {
    int64_t member = memberOf(u.members, u.count, &FactorMember::first, i);
    const FactorMember &m = u.members[member];
    double weight = pow(u.rates[4 * member + 1], u.power);
    int64_t own = i - m.first;
    if (own < m.rowCount())
      updateRow(m, u.sums, weight, own);
    else
      updateColumn(m, u.sums, weight, own - m.rowCount(), u.factors);
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const ScaleRows &s) {
  for (int64_t i = grid.block; i < s.matrices; i += grid.blocks) {
    const FactorMember &m =
        s.members[memberOf(s.members, s.count, &FactorMember::firstMatrix, i)];
    int64_t matrix = i - m.firstMatrix;
    double digits[normDigits];
    sumOfRows(m, matrix, grid.thread, grid.threads).write(digits);
    for (double &digit : digits)
      digit = grid.sum(digit);
    double mean = meanOfRows(m, digits, s.eps);
    for (int64_t row = matrix * m.rows + grid.thread;
         row < (matrix + 1) * m.rows; row += grid.threads)
      s.factors[m.first + row] = m.ofRows[row] / mean;
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const MultiplyFactors &f) {
  for (int64_t i = grid.block; i < f.count; i += grid.blocks) {
    UpdateSegment segment = f.segments[i];
    const FactorMember &m = f.members[segment.member];
    for (int64_t element = segment.from + grid.thread; element < segment.to;
         element += grid.threads)
      f.values[element - f.first] =
          varianceOf(m, f.factors, element - m.offset);
  }
}

} // namespace fsdpc::runtime
