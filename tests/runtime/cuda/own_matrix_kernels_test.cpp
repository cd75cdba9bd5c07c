// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime's own CUDA kernels of optimizers that see matrices (Adafactor,
// Muon) against loops that are written out element by element.
#include "tests/runtime/cuda/own_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

namespace {

class OwnMatrixKernels : public OwnKernelTest {};

// Two matrices of 40 × 45, of which the rank has a part that begins and ends
// within rows, and a vector whose elements travel. The expected sums are
// written out element by element.
TEST_P(OwnMatrixKernels, factors) {
  constexpr int64_t rows = 40, columns = 45, cells = 2 * rows * columns;
  constexpr int64_t begin = 16 * 9, end = 16 * 200, vector = 33;
  std::vector<float> gradient = randomFloats(cells, 31),
                     small = randomFloats(vector, 32), rowAverages(2 * rows),
                     columnAverages(2 * columns), averages(vector);
  std::vector<FactorMember> members(2);
  FactorMember &m = members[0], &v = members[1];
  m.matrices = 2, m.rows = rows, m.columns = columns, m.factored = true;
  m.ofRows = rowAverages.data(), m.ofColumns = columnAverages.data();
  v.columns = vector, v.sumsElements = true;
  v.ofColumns = averages.data();
  v.offset = cells;
  int64_t digits = 2 * (rows + columns);
  v.first = digits, v.firstSum = digits * normDigits;
  v.firstTask = factorTasks(m), v.firstMatrix = 2;
  EXPECT_EQ(v.firstTask, 2 * (rows + 2));

  float scale = 0.5f, limit = 0.6f;
  auto valueOf = [&](int64_t i) {
    float scaled = gradient[size_t(i)] * scale;
    return i < begin || i >= end ? 0
                                 : std::min(std::max(scaled, -limit), limit);
  };
  auto expected = std::vector<SquareSum>(size_t(digits));
  for (int64_t row = 0; row < 2 * rows; ++row)
    for (int64_t base = row * columns / 16 * 16; base < (row + 1) * columns;
         base += 16) {
      float group[16];
      for (int64_t i = 0; i < 16; ++i)
        group[i] = (base + i) / columns == row ? valueOf(base + i) : 0;
      expected[size_t(row)].add(squaresOfGroup(group));
    }
  for (int64_t i = 0; i < cells; ++i) {
    double wide = valueOf(i);
    expected[size_t(2 * rows + i / (rows * columns) * columns + i % columns)]
        .add(wide * wide);
  }
  std::vector<double> sums(size_t(v.firstSum + vector), -1);
  SumFactors sum;
  sum.members = members.data(), sum.count = 2;
  sum.tasks = v.firstTask + factorTasks(v);
  sum.scale = &scale, sum.limit = limit, sum.sums = sums.data();
  std::vector<float> part = gradient;
  part.insert(part.end(), small.begin(), small.end());
  sum.gradient = part.data();
  // In pieces, which add to those before.
  for (auto [from, to] : {std::pair(begin, begin + 16 * 50),
                          {begin + 16 * 50, end},
                          {cells, cells + 16}}) {
    sum.begin = from, sum.end = to;
    run(sum);
    sum.adds = true;
  }
  // Threads of a block leave digits that are not carried.
  for (int64_t i = 0; i < digits; ++i) {
    SquareSum found;
    found.addWritten(&sums[size_t(i * normDigits)]);
    expected[size_t(i)].carry();
    EXPECT_EQ(std::vector(found.digit, found.digit + normDigits),
              std::vector(expected[size_t(i)].digit,
                          expected[size_t(i)].digit + normDigits))
        << i;
  }
  std::vector<double> squares(size_t(vector), 0);
  for (size_t i = 0; i < 16; ++i) {
    double wide = std::min(std::max(small[i] * scale, -limit), limit);
    squares[i] = wide * wide;
  }
  EXPECT_EQ(std::vector(sums.begin() + v.firstSum, sums.end()), squares);

  // The first update has weight 1, so the averages are the means.
  std::vector<double> factors(size_t(digits + vector), -1), rates(8);
  rates[1] = rates[5] = 1;
  int64_t failed = 0;
  UpdateFactors update;
  update.members = members.data(), update.count = 2;
  update.numbers = digits + vector;
  update.sums = sums.data(), update.rates = rates.data();
  update.power = -0.8, update.factors = factors.data();
  update.failed = &failed;
  run(update);
  EXPECT_EQ(rowAverages, std::vector<float>(rowAverages.size()))
      << "a step that is left out";
  failed = -1;
  run(update);
  ScaleRows scaled;
  scaled.members = members.data(), scaled.count = 2, scaled.matrices = 2;
  scaled.factors = factors.data();
  run(scaled);
  double total = 0; // of the second matrix
  for (int64_t i = 0; i < rows; ++i) {
    float mean = float(rowSum(m, sums.data(), rows + i) / double(columns));
    EXPECT_EQ(rowAverages[size_t(rows + i)], mean);
    total += mean;
  }
  EXPECT_DOUBLE_EQ(factors[size_t(rows + 7)],
                   rowAverages[size_t(rows + 7)] / (total / double(rows)));
  EXPECT_EQ(averages[3], float(squares[3]));

  // A part of the second matrix, and the vector behind it.
  m.offset = -32, v.offset = cells - 32;
  UpdateSegment segments[] = {{3000, 3100, 0}, {cells - 32, cells, 1}};
  std::vector<float> values(size_t(cells - 3000), -1);
  MultiplyFactors multiply;
  multiply.segments = segments, multiply.count = 2, multiply.first = 3000;
  multiply.members = members.data(), multiply.factors = factors.data();
  multiply.values = values.data();
  run(multiply);
  int64_t element = 3050 + 32, row = element / columns;
  EXPECT_EQ(values[50],
            float(factors[size_t(row)] *
                  factors[size_t(2 * rows + columns + element % columns)]));
  EXPECT_EQ(values[100], -1);
  EXPECT_EQ(values[size_t(cells - 32 - 3000 + 3)], averages[3]);
}

// A matrix of two chunks, in f32 and rounded as torch rounds bf16.
TEST_P(OwnMatrixKernels, normalizeMatrix) {
  constexpr int64_t count = matrixChunk + 123;
  std::vector<float> from = randomFloats(count, 33);
  for (bool bf16 : {false, true}) {
    auto rounded = [&](float value) {
      return bf16 ? widen(narrow<BFloat16>(value)) : value;
    };
    std::vector<double> digits(2 * normDigits, -1);
    MatrixSquares squares;
    squares.values = from.data(), squares.count = count;
    squares.bf16 = bf16, squares.digits = digits.data();
    run(squares);
    std::vector<float> to(count);
    NormalizeMatrix normalize;
    normalize.from = from.data(), normalize.count = count;
    normalize.eps = 1e-7f, normalize.bf16 = bf16;
    normalize.digits = digits.data(), normalize.to = to.data();
    run(normalize);
    double sum = 0;
    for (float value : from)
      sum += double(rounded(value)) * rounded(value);
    float norm = rounded(float(std::sqrt(sum)));
    for (size_t i = 0; i < to.size(); ++i)
      ASSERT_EQ(to[i], rounded(rounded(from[i]) / norm)) << i;
    normalize.eps = 2 * norm;
    run(normalize);
    EXPECT_EQ(to[7], rounded(rounded(from[7]) / (2 * norm)));

    std::vector<float> c = from;
    CombineMatrices combine;
    combine.c = c.data(), combine.d = to.data(), combine.count = count;
    combine.alpha = 2, combine.beta = -3, combine.bf16 = bf16;
    run(combine);
    EXPECT_EQ(c[count - 1], rounded(2 * from[count - 1] - 3 * to[count - 1]));
  }
}

// Two members of which the rank has parts; the updates follow each other
// without the gap between the members, and without elements of other ranks.
TEST_P(OwnMatrixKernels, momentumUpdates) {
  std::vector<float> gradients = randomFloats(48, 34),
                     states = randomFloats(48, 35), updates(60, -1),
                     values(48, -1);
  UpdateSegment segments[] = {{0, 5, 0}, {16, 40, 1}};
  int64_t places[] = {16, 5};
  float scale = 0.5f;
  MomentumUpdates m;
  m.segments = segments, m.count = 2, m.places = places;
  m.gradients = gradients.data(), m.states = states.data(), m.scale = &scale;
  m.step.limit = 0.4f, m.step.sign = -1, m.step.momentum = 0.95;
  m.step.nesterov = true;
  m.updates = updates.data();
  run(m);
  auto expected = [&](size_t element) {
    float g = -std::clamp(gradients[element] * scale, -0.4f, 0.4f);
    float average = states[element] + float(1 - 0.95) * (g - states[element]);
    return average - (average - g) * float(1 - 0.95);
  };
  for (size_t i = 0; i < updates.size(); ++i)
    EXPECT_EQ(updates[i], i >= 16 && i < 21   ? expected(i - 16)
                          : i >= 21 && i < 45 ? expected(i - 5)
                                              : -1)
        << i;
  PlaceUpdates place;
  place.segments = segments + 1, place.count = 1, place.first = 16;
  place.places = places;
  place.updates = updates.data(), place.values = values.data();
  run(place);
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(values[i], i < 24 ? updates[21 + i] : -1) << i;
}

INSTANTIATE_TEST_SUITE_P(Grids, OwnMatrixKernels, someLaunches());

} // namespace
