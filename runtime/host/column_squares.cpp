// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A square s below 2^E is q + r with q a multiple of 2^(E-43), which is s + m -
// m in f64 for a large m, and r likewise. Neither loses a bit, and so neither
// do sums of up to 2^10 of them. A square of an f32 has 48 bits, so only one
// below 2^(E-39) leaves a rest.
#include "runtime/host/column_squares.h"

#include "runtime/numeric/each_processor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace fsdpc::runtime {
namespace {

constexpr double unitOfHigh = 0x1p-43; // of a bound of 1
// Digits cut off what a number has below 2^-240, so a square that has bits
// there is added by itself, whatever it is summed with.
constexpr double least = 0x1p-192;
// m for the two places, of a bound of 1.
constexpr double cutHigh = 0x1.8p52 * 0x1p-43, cutLow = 0x1.8p52 * 0x1p-86;

inline double upperOf(double square, double forHigh) {
  double sum = square + forHigh;
  return sum - forHigh;
}
inline bool isWhole(double square, double forHigh, double forLow) {
  double rest = square - upperOf(square, forHigh);
  return rest == upperOf(rest, forLow) && (square >= least || square == 0);
}

// Returns the largest square, or a NaN if there is one: bits of numbers that
// are not negative are in the order of the numbers, and those of NaNs come
// last.
FSDPC_EACH_PROCESSOR
double square(const float *values, int64_t count, float scale, float limit,
              double *squares) {
  int32_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    float scaled = values[i] * scale;
    float bounded = std::min(std::max(scaled, -limit), limit);
    int32_t bits;
    std::memcpy(&bits, &bounded, sizeof bits);
    most = std::max(most, bits & 0x7fffffff);
    double wide = bounded;
    squares[i] = wide * wide;
  }
  float largest;
  std::memcpy(&largest, &most, sizeof largest);
  return double(largest) * double(largest);
}

// Returns the number of squares that have a rest, or bits that digits cut off.
FSDPC_EACH_PROCESSOR
int64_t countOthers(const double *squares, int64_t count, double forHigh,
                    double forLow) {
  int64_t others = 0;
  for (int64_t i = 0; i < count; ++i)
    others += !isWhole(squares[i], forHigh, forLow);
  return others;
}

// Adds the parts of squares that are all whole.
FSDPC_EACH_PROCESSOR
void addParts(const double *squares, int64_t count, double forHigh,
              double *high, double *low) {
  for (int64_t i = 0; i < count; ++i) {
    double upper = upperOf(squares[i], forHigh);
    high[i] += upper;
    low[i] += squares[i] - upper;
  }
}

} // namespace

void ColumnSquares::addRow(const float *values, int64_t first, int64_t last,
                           float scale, float limit) {
  double *own = squares.data() + first;
  double largest = square(values, last - first, scale, limit, own);
  if (!(largest < bound) || rows == mostRows) {
    flush();
    // The bound leaves room for larger rows behind this one. Infinity splits
    // nothing.
    bound =
        std::max(std::isfinite(largest) ? std::ldexp(1, std::ilogb(largest) + 4)
                                        : largest,
                 0x1p-300);
  }
  ++rows;
  double forHigh = cutHigh * bound, forLow = cutLow * bound;
  bool allWhole = countOthers(own, last - first, forHigh, forLow) == 0;
  if (allWhole)
    return addParts(own, last - first, forHigh, &high[size_t(first)],
                    &low[size_t(first)]);
  for (auto i = size_t(first); i < size_t(last); ++i)
    if (isWhole(squares[i], forHigh, forLow))
      addParts(&squares[i], 1, forHigh, &high[i], &low[i]);
    else
      sums[i].add(squares[i]);
}

// Rounding to the nearest multiple makes low parts that are negative, and then
// as many units of high ones.
void ColumnSquares::flush() {
  double unit = unitOfHigh * bound;
  for (size_t i = 0; rows > 0 && i < sums.size(); ++i) {
    double moved = low[i] < 0 ? std::ceil(-low[i] / unit) * unit : 0;
    sums[i].add(high[i] - moved);
    sums[i].add(low[i] + moved);
    sums[i].carry();
    high[i] = low[i] = 0;
  }
  rows = 0;
}

void ColumnSquares::addTo(int64_t count, double *digits) {
  flush();
  for (int64_t i = 0; i < count; ++i)
    sums[size_t(i)].addTo(digits + i * normDigits);
}

} // namespace fsdpc::runtime
