// The exact sum of squares behind the gradient's norm: its value against long
// double, and its bits in any order. How it is summed on each device is in
// device_test.cpp and own_kernels_test.cpp.
#include "runtime/core/square_sum.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
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

} // namespace
