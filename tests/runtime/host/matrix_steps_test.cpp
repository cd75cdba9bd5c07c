// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Newton's and Schulz's steps of Muon against plain loops in f64, and the ranks
// that own matrices.
#include "runtime/host/host_matrices.h"
#include "runtime/host/matrix_steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <utility>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

constexpr MatrixSteps torchSteps = {3.4445, -4.775, 2.0315, 1e-7, 5, false};

void inOnePiece(int64_t count,
                const std::function<void(int64_t, int64_t)> &body) {
  body(0, count);
}

std::vector<float> randomMatrix(int64_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.03f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float &value : values)
    value = normal(random);
  return values;
}

// A[m×k] · B, which is [n×k] if `transposed`, else [k×n].
std::vector<double> product(const std::vector<double> &a,
                            const std::vector<double> &b, int64_t m, int64_t n,
                            int64_t k, bool transposed) {
  std::vector<double> c(size_t(m * n), 0.0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l)
        c[size_t(i * n + j)] += a[size_t(i * k + l)] *
                                b[size_t(transposed ? j * k + l : l * n + j)];
  return c;
}

std::vector<double> expected(const std::vector<float> &from, int64_t rows,
                             int64_t columns, const MatrixSteps &by) {
  std::vector<double> x(from.begin(), from.end());
  double sum = 0;
  for (double value : x)
    sum += value * value;
  for (double &value : x)
    value /= std::max(std::sqrt(sum), by.eps);
  for (int32_t step = 0; step < by.steps; ++step) {
    std::vector<double> gram = product(x, x, rows, rows, columns, true);
    std::vector<double> square = product(gram, gram, rows, rows, rows, false);
    for (size_t i = 0; i < gram.size(); ++i)
      gram[i] = by.b * gram[i] + by.c * square[i];
    std::vector<double> change = product(gram, x, rows, columns, rows, false);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = by.a * x[i] + change[i];
  }
  return x;
}

std::vector<float> found(const std::vector<float> &from, int64_t rows,
                         int64_t columns, const MatrixSteps &by,
                         const EachPiece &each) {
  size_t count = from.size();
  std::vector<float> room(4 * count);
  std::copy(from.begin(), from.end(), room.begin());
  float *result =
      orthogonalized(room.data(), room.data() + count, room.data() + 2 * count,
                     rows, columns, by, each);
  return {result, result + count};
}

double error(const std::vector<float> &x, const std::vector<double> &y) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    size += y[i] * y[i];
  }
  return std::sqrt(difference / size);
}

// Shapes of one block and of several, with rows and columns left over, and sums
// of more terms than are copied at a time.
TEST(MatrixSteps, AreThoseOfTheFormula) {
  for (auto [rows, columns] : {std::pair<int64_t, int64_t>(1, 8),
                               {4, 16},
                               {13, 17},
                               {24, 24},
                               {5, 300},
                               {70, 333}}) {
    std::vector<float> x = randomMatrix(rows * columns);
    EXPECT_LT(error(found(x, rows, columns, torchSteps, inOnePiece),
                    expected(x, rows, columns, torchSteps)),
              1e-5)
        << rows << "x" << columns;
  }
}

// The coefficients lift small singular values quickly and leave all of them
// near 1.
TEST(MatrixSteps, MakeTheNormThatOfEqualSingularValues) {
  std::vector<float> x = randomMatrix(24 * 100);
  double sum = 0;
  for (float value : found(x, 24, 100, torchSteps, inOnePiece))
    sum += double(value) * value;
  EXPECT_NEAR(std::sqrt(sum / 24), 0.95, 0.25);
}

TEST(MatrixSteps, DoNotDependOnHowTheWorkIsCut) {
  std::vector<float> x = randomMatrix(20 * 90);
  auto inPieces = [](int64_t count,
                     const std::function<void(int64_t, int64_t)> &body) {
    for (int64_t i = count; i-- > 0;)
      body(i, i + 1);
  };
  EXPECT_EQ(found(x, 20, 90, torchSteps, inOnePiece),
            found(x, 20, 90, torchSteps, inPieces));
}

// eps bounds the norm by which is divided, so zeros stay zeros.
TEST(MatrixSteps, LeaveZeros) {
  std::vector<float> zeros(32);
  EXPECT_EQ(found(zeros, 4, 8, torchSteps, inOnePiece), zeros);
}

// Each product is rounded to eight digits.
TEST(MatrixSteps, RoundToBf16) {
  MatrixSteps rounded = torchSteps;
  rounded.bf16 = true;
  std::vector<float> x = randomMatrix(24 * 24);
  std::vector<float> values = found(x, 24, 24, rounded, inOnePiece);
  for (float value : values) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    EXPECT_EQ(bits & 0xffff, 0u);
  }
  double other = error(values, expected(x, 24, 24, torchSteps));
  EXPECT_GT(other, 1e-4);
  EXPECT_LT(other, 0.1);
}

// The matrices cost 64, 512, 256 and 64. On two ranks the largest has one
// alone.
TEST(Owners, GetTheNextLargestMatrixWhereTheLoadIsLeast) {
  Layout layout;
  for (auto [rows, columns] :
       {std::pair<int64_t, int64_t>(4, 4), {8, 8}, {16, 4}, {4, 4}}) {
    Member member;
    member.shape = {rows, columns};
    layout.members.push_back(member);
  }
  LayoutBuffers cut;
  EXPECT_EQ(matrixOwners(layout, cut, 1), (std::vector<int>{0, 0, 0, 0}));
  EXPECT_EQ(matrixOwners(layout, cut, 2), (std::vector<int>{1, 0, 1, 1}));
  EXPECT_EQ(matrixOwners(layout, cut, 8), (std::vector<int>{2, 0, 1, 3}));
}

} // namespace
