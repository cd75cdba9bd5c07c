// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The exact sum of squares behind the gradient's norm: its value against long
// double, and its bits in any order. How it is summed on each device is in
// device_test.cpp and own_kernels_test.cpp. Sums of columns add to its digits.
#include "runtime/host/column_squares.h"
#include "runtime/numeric/square_sum.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <utility>
#include <vector>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

double valueOf(const SquareSum &sum) {
  double digits[normDigits];
  sum.write(digits);
  int64_t failed;
  return sumOfSquares(digits, 1, failed);
}

double squares(const std::vector<float> &values) {
  SquareSum sum;
  sum.addSquares(values.data(), int64_t(values.size()));
  return valueOf(sum);
}

// One number has its own square, from the smallest that counts to the largest.
TEST(SquareSum, OfOneNumber) {
  for (float value : {1.0f, -3.0f, 0.1f, 1e-25f, -1e30f, FLT_MAX})
    EXPECT_EQ(squares({value}), double(value) * value) << value;
  EXPECT_EQ(squares({}), 0);
  EXPECT_EQ(squares({0.0f, -0.0f}), 0);
  EXPECT_EQ(squares({FLT_MIN, FLT_TRUE_MIN}), 0);
}

// Optimizers add products that may be zero with either sign. Other negative
// numbers are not in the range of the digits.
TEST(SquareSum, MinusZeroIsZero) {
  SquareSum sum;
  sum.add(4.0);
  sum.add(-0.0);
  sum.carry();
  EXPECT_EQ(valueOf(sum), 4);
  sum.add(-1.0);
  EXPECT_EQ(valueOf(sum), HUGE_VAL);
}

// Members that are not whole groups, digits that carry, and blocks of more
// additions than a digit takes at once.
TEST(SquareSum, OfManyNumbers) {
  std::mt19937 random(1);
  for (size_t count : {7u, 16u, 100u, 40000u})
    for (int range : {0, 40}) {
      std::vector<float> values;
      long double expected = 0;
      for (size_t i = 0; i < count; ++i) {
        float value = std::ldexp(float(random() % 20001) - 10000,
                                 range ? int(random() % range) - range / 2 : 0);
        values.push_back(value);
        expected += (long double)(value)*value;
      }
      EXPECT_NEAR(squares(values) / double(expected), 1, 1e-15);
    }
  EXPECT_EQ(squares(std::vector<float>(1 << 20, FLT_MAX)),
            std::ldexp(double(FLT_MAX) * FLT_MAX, 20));
}

// Groups may be dealt out to sums, and the sums to layouts, in any way.
TEST(SquareSum, HasTheSameBitsInAnyOrder) {
  std::mt19937 random(2);
  std::vector<float> values;
  for (int i = 0; i < 64 * squareGroup; ++i)
    values.push_back(
        std::ldexp(float(random() % 20001), int(random() % 60) - 30));
  double expected = squares(values);
  std::vector<int> order;
  for (int group = 0; group < 64; ++group)
    order.push_back(group);
  for (int sums : {1, 3, 8}) {
    std::shuffle(order.begin(), order.end(), random);
    std::vector<SquareSum> parts((size_t(sums)));
    for (int group : order)
      parts[size_t(group % sums)].addSquares(
          values.data() + group * squareGroup, squareGroup);
    std::vector<double> digits(size_t(sums) * normDigits);
    for (int i = 0; i < sums; ++i)
      parts[size_t(i)].write(digits.data() + i * normDigits);
    int64_t failed;
    EXPECT_EQ(sumOfSquares(digits.data(), sums, failed), expected);
    EXPECT_EQ(failed, -1);
    SquareSum one;
    for (const SquareSum &part : parts)
      one.add(part);
    EXPECT_EQ(valueOf(one), expected);
  }
}

// The first layout that is not finite is named, whatever sign a NaN has, and
// what ranks add to it does not make it finite.
TEST(SquareSum, KeepsWhatIsNotFinite) {
  float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (float value : {inf, -inf, nan, -nan}) {
    double digits[3 * normDigits];
    for (int i = 0; i < 3; ++i) {
      std::vector<float> values = {1, i ? value : 2};
      SquareSum sum;
      sum.addSquares(values.data(), 2);
      sum.write(digits + i * normDigits);
    }
    for (int i = 0; i < normDigits; ++i)
      digits[normDigits + i] += digits[i]; // another rank's
    int64_t failed = 7;
    double sum = sumOfSquares(digits, 3, failed);
    EXPECT_EQ(failed, 1);
    EXPECT_EQ(std::isnan(sum), std::isnan(value));
    EXPECT_FALSE(std::isfinite(sum));
  }
}

// Other sums may be of any number. What the digits cannot hold, and what the
// form has no sign for, is not taken for another number.
TEST(SquareSum, TakesNoNumberForAnother) {
  SquareSum sum;
  for (int i = 0; i < 3; ++i)
    sum.add(0x1p260);
  sum.carry();
  EXPECT_EQ(valueOf(sum), 0x3p260);
  for (double value : {0x1p261, DBL_MAX, -1.0}) {
    SquareSum infinite;
    infinite.add(1);
    infinite.add(value);
    EXPECT_EQ(valueOf(infinite), HUGE_VAL) << value;
  }
}

// The columns of a matrix, whose rows have numbers of one size or of any, all
// zeros, a number whose square ends below the last digit, and one that is not
// finite. Each column has the digits of its squares one by one, wherever the
// rows are cut.
TEST(ColumnSquares, LoseNothing) {
  std::mt19937 random(3);
  constexpr int64_t rows = 1500, columns = 50;
  for (int range : {1, 20, 90}) {
    float limit = range == 1 ? 900 : std::numeric_limits<float>::infinity();
    std::vector<float> values;
    for (int64_t i = 0; i < rows * columns; ++i)
      values.push_back(i / columns % 7 == 3
                           ? 0
                           : std::ldexp(float(random() % 20001) - 10000,
                                        int(random() % range) - range / 2));
    values[5 * columns + 1] = 0x1.fffffep-110f;
    if (range == 20)
      values[900 * columns + 2] = std::numeric_limits<float>::infinity();
    std::vector<SquareSum> expected(columns);
    for (int64_t i = 0; i < rows * columns; ++i) {
      double value =
          std::max(std::min(values[size_t(i)] * 0.3f, limit), -limit);
      expected[size_t(i % columns)].add(value * value);
      expected[size_t(i % columns)].carry();
    }
    for (int64_t cut : {int64_t(0), int64_t(1), int64_t(777)}) {
      ColumnSquares parts[2];
      for (int64_t row = 0; row < rows; ++row)
        // A row may be cut too.
        for (auto [from, to] : {std::pair<int64_t, int64_t>(0, 20), {20, 50}})
          parts[row < cut || (row == cut && from == 0)].addRow(
              values.data() + row * columns + from, from, to, 0.3f, limit);
      std::vector<double> sums(columns * normDigits);
      for (ColumnSquares &part : parts)
        part.addTo(columns, sums.data());
      for (int64_t column = 0; column < columns; ++column) {
        SquareSum sum;
        sum.addWritten(sums.data() + column * normDigits);
        double found[normDigits], wanted[normDigits];
        sum.write(found);
        expected[size_t(column)].write(wanted);
        // Nothing else is kept of a sum that is infinite.
        int64_t digits = std::isinf(wanted[0]) ? 1 : normDigits;
        EXPECT_TRUE(std::equal(found, found + digits, wanted)) << column;
      }
    }
  }
}

} // namespace
