// The bodies of the runtime's own CUDA kernels against plain loops.
#include "tests/runtime/own_kernels.h"

#include <gmock/gmock.h>

#include <cfloat>
#include <limits>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

namespace {

// Casts both ways, with zeroes as padding, for lengths that are not a multiple
// of a vector's.
TEST_P(OwnKernelTest, cast) {
  for (int64_t elements : {1, 3, 64, 1027}) {
    int64_t padded = elements + 37;
    std::vector<float> values = randomFloats(elements, 1);
    for (WireType type : types)
      for (WireType to : types) {
        // By way of f32, which is exact.
        Aligned<char> from(bytesIn(type, values));
        std::vector<float> wide(elements);
        castToWire(from.data, type, WireType::f32, elements, wide.data());
        std::vector<char> expected = bytesIn(to, wide);
        expected.resize(size_t(padded) * wireBytes(to), 0);
        Aligned<char> found(std::vector<char>(expected.size(), 7));
        run(Cast{from.data, found.data, type, to, elements, padded});
        EXPECT_EQ(memcmp(found.data, expected.data(), expected.size()), 0)
            << int(type) << " to " << int(to);
      }
  }
}

// The host's bits for every mix of types, overwriting and adding.
TEST_P(OwnKernelTest, sumRanks) {
  constexpr int ranks = 3;
  constexpr int64_t count = 1030;
  for (WireType type : types)
    for (WireType wire : types)
      for (bool add : {false, true})
        for (bool strided : {false, true}) {
          std::vector<float> all = randomFloats(ranks * count, 2);
          Aligned<char> values(bytesIn(type, all));
          char *base = values.data;
          // With a stride, parts are ranges of what lies so far apart.
          constexpr int64_t stride = count / 32 * 32;
          int64_t length = strided ? stride - 96 : count;
          SumRanks s;
          std::vector<Addend> addends;
          for (int rank = 0; rank < ranks; ++rank) {
            s.parts[rank] = base + rank * stride * wireBytes(type);
            addends.push_back({s.parts[rank], type});
          }
          if (strided)
            s.first = base, s.stride = stride;
          Aligned<float> shard(randomFloats(length, 3));
          std::vector<float> expected = randomFloats(length, 3);
          s.ranks = ranks, s.type = type, s.wire = wire, s.add = add;
          s.elements = s.shardElements = length;
          s.shard = shard.data;
          run(s);
          fsdpc::runtime::sumRanks(addends.data(), ranks, wire, length,
                                   expected.data(), add);
          EXPECT_EQ(memcmp(shard.data, expected.data(), length * 4), 0);
        }
}

// Elements beyond the real ones count as zero.
TEST_P(OwnKernelTest, sumRanksOfPadding) {
  Aligned<float> part(randomFloats(50, 4)), shard(randomFloats(64, 5));
  std::vector<float> before(shard.data, shard.data + 64);
  SumRanks s;
  s.parts[0] = part.data;
  s.elements = 50, s.shardElements = 64, s.shard = shard.data;
  s.add = true;
  run(s);
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(shard.data[i], before[i] + (i < 50 ? part.data[i] : 0));
  s.add = false;
  run(s);
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(shard.data[i], i < 50 ? part.data[i] : 0);
}

// Values whose sum shows the order: (1e16 + 1) - 1e16 is not 1.
TEST_P(OwnKernelTest, sumDoubles) {
  std::vector<double> all = {1e16, 3, 1, -4, -1e16, 5};
  SumDoubles s;
  double sums[2];
  s.first = all.data(), s.ranks = 3, s.count = 2, s.values = sums;
  run(s);
  EXPECT_EQ(sums[0], (1e16 + 1) - 1e16);
  EXPECT_EQ(sums[1], 4);
  s.first = nullptr;
  for (int rank = 0; rank < 3; ++rank)
    s.parts[rank] = &all[2 * rank];
  sums[0] = sums[1] = 0;
  run(s);
  EXPECT_EQ(sums[0], (1e16 + 1) - 1e16);
}

// The sum is exact over groups, so segments may be cut anywhere between them.
TEST_P(OwnKernelTest, squaresAreTheSameHoweverTheyAreCut) {
  std::vector<float> gradient = randomFloats(3 * 4096 + 99, 6);
  gradient[5] = 1e18f, gradient[4100] = 1e-18f;
  SquareSum whole;
  whole.addSquares(gradient.data(), int64_t(gradient.size()));
  double expected[normDigits];
  whole.write(expected);
  for (int64_t step : {16, 1008, 4096}) {
    std::vector<NormSegment> segments;
    for (int64_t at = 0; at < int64_t(gradient.size()); at += step)
      segments.push_back({at, std::min(at + step, int64_t(gradient.size()))});
    std::vector<SquareSum> each(segments.size());
    NormLayout layouts[2];
    layouts[1] = {gradient.data(), segments.data(), int64_t(segments.size()),
                  each.data()};
    double sums[2 * normDigits];
    std::fill_n(sums, 2 * normDigits, -1);
    SumSquareSegments first;
    first.layouts = layouts, first.list[0] = 1, first.count = 1;
    run(first);
    SumSquares second;
    second.layouts = layouts, second.list[0] = 1, second.count = 1;
    second.sums = sums + normDigits;
    run(second);
    EXPECT_EQ(sums[0], -1);
    int64_t failed = 7;
    EXPECT_EQ(sumOfSquares(sums + normDigits, 1, failed),
              sumOfSquares(expected, 1, failed));
    EXPECT_EQ(failed, -1);
  }
}

// A gradient of 16 bits has the sum of its values in f32.
TEST_P(OwnKernelTest, squaresOfNarrowGradientsAreThoseOfTheirValues) {
  std::vector<float> wide = randomFloats(4096 + 99, 7);
  wide[5] = 1e18f, wide[4100] = 1e-18f;
  auto sumOf = [&](const void *gradient, WireType type) {
    std::vector<NormSegment> segments = {{0, 4096}, {4096, 4096 + 99}};
    std::vector<SquareSum> each(segments.size());
    NormLayout layout = {gradient, segments.data(), 2, each.data(), type};
    SumSquareSegments sum;
    sum.layouts = &layout, sum.count = 1;
    run(sum);
    each[0].add(each[1]);
    std::vector<double> digits(normDigits);
    each[0].write(digits.data());
    return digits;
  };
  for (WireType type : {WireType::bf16, WireType::f16}) {
    std::vector<uint16_t> narrow(wide.size());
    castToWire(wide.data(), WireType::f32, type, int64_t(wide.size()),
               narrow.data());
    std::vector<float> rounded(wide.size());
    castToWire(narrow.data(), type, WireType::f32, int64_t(wide.size()),
               rounded.data());
    EXPECT_EQ(sumOf(narrow.data(), type), sumOf(rounded.data(), WireType::f32));
  }
}

// Two matrices of 40 × 45, of which the rank has a part that begins and ends
// within rows, and a vector whose elements travel. The expected sums are
// written out element by element.
TEST_P(OwnKernelTest, factors) {
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
TEST_P(OwnKernelTest, normalizeMatrix) {
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
TEST_P(OwnKernelTest, momentumUpdates) {
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

// The factor is 1 if the norm is small or clipping is off. A sum that is not
// finite is reported by its index, and may skip the step.
TEST_P(OwnKernelTest, clip) {
  double sums[2 * normDigits] = {}, norm = 0;
  for (int i = 0; i < 2; ++i) {
    SquareSum sum;
    sum.add(i ? 16 : 9);
    sum.carry();
    sum.write(sums + i * normDigits);
  }
  float scale = 0;
  int64_t failed = 7;
  double half = 0.5;
  auto clip = [&](double maxNorm, bool skips) {
    run(Clip{sums, 2, &half, maxNorm, skips, &scale, &norm, &failed});
  };
  clip(1, true);
  EXPECT_EQ(norm, 2.5);
  EXPECT_EQ(scale, float(1 / (2.5 + 1e-6) * 0.5));
  EXPECT_EQ(failed, -1);
  clip(0, true);
  EXPECT_EQ(scale, 0.5f);
  clip(5, false);
  EXPECT_EQ(scale, 0.5f);
  sums[normDigits] = std::numeric_limits<double>::infinity();
  clip(5, false);
  EXPECT_EQ(failed, 1);
  EXPECT_FALSE(std::isnan(scale));
  clip(5, true); // such a step is skipped
  EXPECT_EQ(failed, 1);
  EXPECT_TRUE(std::isnan(scale));
}

// More layouts than threads, of which each adds some. The sum has the bits of
// the host, and the first of several sums that are not finite is reported.
TEST_P(OwnKernelTest, clipOfManyLayouts) {
  constexpr int count = 600;
  std::vector<float> values = randomFloats(16 * count, 11);
  std::vector<double> sums(size_t(count) * normDigits);
  for (int i = 0; i < count; ++i) {
    SquareSum sum;
    sum.addSquares(values.data() + 16 * i, 16);
    sum.write(sums.data() + i * normDigits);
  }
  float scale = 0;
  double norm = 0;
  int64_t failed = 7;
  double expected = std::sqrt(sumOfSquares(sums.data(), count, failed));
  double half = 0.5;
  run(Clip{sums.data(), count, &half, 0, false, &scale, &norm, &failed});
  EXPECT_EQ(norm, expected * 0.5);
  EXPECT_EQ(failed, -1);
  sums[size_t(570) * normDigits] = std::numeric_limits<double>::quiet_NaN();
  sums[size_t(333) * normDigits] = std::numeric_limits<double>::infinity();
  run(Clip{sums.data(), count, &half, 0, false, &scale, &norm, &failed});
  EXPECT_EQ(failed, 333);
  EXPECT_FALSE(std::isfinite(norm));
}

// A microbatch's index on this rank follows from its number among all ranks'.
TEST_P(OwnKernelTest, reportLoss) {
  float loss = 3, valid = 0, losses[3] = {}, valids[3] = {};
  uint32_t random[4] = {1, 2, 2 * 4 + 3, 5};
  run(ReportLoss{&loss, &valid, random, 4, losses, valids});
  EXPECT_THAT(losses, ::testing::ElementsAre(0, 0, 3));
  EXPECT_THAT(valids, ::testing::ElementsAre(0, 0, 0));
  run(ReportLoss{&loss, nullptr, random, 4, losses, valids});
  EXPECT_EQ(valids[2], 1);
  // A metric has no divisor.
  loss = 5;
  run(ReportLoss{&loss, nullptr, random, 4, losses, nullptr});
  EXPECT_EQ(losses[2], 5);
}

// Gradients whose elements a hook has replaced are counted over microbatches.
TEST_P(OwnKernelTest, countZeroed) {
  float zeroed = 1;
  double sum = 2;
  run(CountZeroed{&zeroed, &sum});
  EXPECT_EQ(sum, 3);
  zeroed = 0;
  run(CountZeroed{&zeroed, &sum});
  EXPECT_EQ(sum, 3);
}

// A step takes the second list of numbers if the one before was skipped.
TEST_P(OwnKernelTest, takeNumbers) {
  uint64_t offered[] = {1, 2, 3, 4, 5, 6}, numbers[3] = {};
  int64_t skipped = -1;
  run(TakeNumbers{&skipped, offered, numbers, 3});
  EXPECT_THAT(numbers, ::testing::ElementsAre(1, 2, 3));
  skipped = 0;
  run(TakeNumbers{&skipped, offered, numbers, 3});
  EXPECT_THAT(numbers, ::testing::ElementsAre(4, 5, 6));
}

// The running average over ranks depends on their order.
TEST_P(OwnKernelTest, statisticsOfRanksInOrder) {
  std::vector<float> buffer = randomFloats(70, 7), all = randomFloats(140, 8);
  std::vector<float> expected = buffer;
  for (int rank = 0; rank < 2; ++rank)
    for (int i = 0; i < 70; ++i)
      expected[i] =
          float((1 - 0.1) * expected[i] + 0.1 * double(all[rank * 70 + i]));
  std::vector<float> averaged = buffer, mean = buffer;
  run(UpdateStatistics{buffer.data(), all.data(), 2, 70, 0.1});
  EXPECT_EQ(buffer, expected);
  // Their mean moves the average once.
  for (int i = 0; i < 70; ++i)
    mean[i] = float((1 - 0.1) * mean[i] +
                    0.1 * ((double(all[i]) + double(all[70 + i])) / 2));
  run(UpdateStatistics{averaged.data(), all.data(), 2, 70, 0.1, true});
  EXPECT_EQ(averaged, mean);
}

struct Case {
  MaskType mask;
  bool narrow, causal;
  int64_t queries, keys;
  bool hidesAll = false; // the added mask hides all keys, by a finite number
};

// Softmax of rows of heads 1 to 4, of a batch of two with three heads, and its
// gradient, against f64.
TEST_P(OwnKernelTest, softmaxRowsAndTheirGradients) {
  std::vector<Case> cases;
  for (MaskType mask : {MaskType::none, MaskType::keep, MaskType::added})
    for (bool causal : {false, true})
      cases.push_back({mask, mask == MaskType::none, causal, 5, 9});
  cases.push_back({MaskType::none, false, true, 6, 4}); // two rows see no key
  cases.push_back({MaskType::added, false, false, 5, 9, true});
  for (const Case &c : cases) {
    constexpr int64_t batch = 2, heads = 3, first = 1, count = 4, width = 5;
    int64_t rows = count * c.queries, cells = rows * c.keys;
    std::vector<float> products = randomFloats(cells, 9);
    std::vector<float> lse(batch * heads * c.queries);
    // One mask for all heads, and one value for all queries of a batch entry.
    std::vector<float> added = randomFloats(batch * c.keys, 10);
    if (c.hidesAll)
      std::fill(added.begin(), added.end(), -FLT_MAX);
    std::vector<uint8_t> kept;
    for (float value : added)
      kept.push_back(value > -0.5);
    SoftmaxRows s;
    std::vector<float> scores = products;
    std::vector<BFloat16> thin(cells);
    s.scores = scores.data();
    s.weights = c.narrow ? static_cast<void *>(thin.data()) : scores.data();
    s.lse = lse.data();
    s.maskType = c.mask;
    s.mask = c.mask == MaskType::keep ? static_cast<void *>(kept.data())
                                      : added.data();
    s.maskStrides[0] = c.keys, s.maskStrides[3] = 1;
    s.type = c.narrow ? WireType::bf16 : WireType::f32, s.causal = c.causal,
    s.scale = 0.7f;
    s.headsOfBatch = heads, s.firstHead = first, s.heads = count;
    s.queries = c.queries, s.keys = c.keys;
    run(s);
    std::vector<double> weights(cells, 0);
    double tolerance = c.narrow ? 1.0 / 128 : 1e-5;
    for (int64_t row = 0; row < rows; ++row) {
      int64_t b = (first + row / c.queries) / heads, t = row % c.queries;
      double sum = 0;
      for (int64_t key = 0; key < c.keys; ++key) {
        bool seen = !c.causal || key <= t + c.keys - c.queries;
        if (c.mask == MaskType::keep)
          seen = seen && kept[b * c.keys + key];
        double score = 0.7 * products[row * c.keys + key];
        if (c.hidesAll)
          score = 0; // all alike
        else if (c.mask == MaskType::added)
          score += added[b * c.keys + key];
        weights[row * c.keys + key] = seen ? std::exp(score) : 0;
        sum += weights[row * c.keys + key];
      }
      float got = lse[first * c.queries + row];
      if (c.hidesAll)
        EXPECT_EQ(got, -FLT_MAX);
      else if (sum > 0)
        EXPECT_NEAR(got, std::log(sum), 1e-5);
      else
        EXPECT_EQ(got, -std::numeric_limits<float>::infinity());
      for (int64_t key = 0; key < c.keys; ++key) {
        int64_t i = row * c.keys + key;
        weights[i] = sum > 0 ? weights[i] / sum : 0;
        EXPECT_NEAR(c.narrow ? widen(thin[i]) : scores[i], weights[i],
                    tolerance);
      }
    }

    std::vector<float> dweights = randomFloats(cells, 11);
    std::vector<float> before = dweights;
    std::vector<float> grad =
        randomFloats(batch * heads * c.queries * width, 12);
    std::vector<float> output =
        randomFloats(batch * heads * c.queries * width, 13);
    std::vector<BFloat16> thinGrad = narrowed(grad),
                          thinOutput = narrowed(output);
    std::vector<BFloat16> thinScores(cells);
    SoftmaxGradRows g;
    scores = products;
    g.rows = s;
    g.dweights = dweights.data();
    g.dscores =
        c.narrow ? static_cast<void *>(thinScores.data()) : dweights.data();
    g.grad = c.narrow ? static_cast<void *>(thinGrad.data()) : grad.data();
    g.output =
        c.narrow ? static_cast<void *>(thinOutput.data()) : output.data();
    g.valueWidth = width;
    int64_t strides[3] = {heads * c.queries * width, c.queries * width, width};
    std::copy(strides, strides + 3, g.gradStrides);
    std::copy(strides, strides + 3, g.outputStrides);
    run(g);
    for (int64_t row = 0; row < rows; ++row) {
      int64_t at = (first * c.queries + row) * width;
      double dot = 0;
      for (int64_t j = 0; j < width; ++j)
        dot += double(grad[at + j]) * output[at + j];
      for (int64_t key = 0; key < c.keys; ++key) {
        int64_t i = row * c.keys + key;
        double expected = weights[i] * (before[i] - dot) * 0.7;
        EXPECT_NEAR(c.narrow ? widen(thinScores[i]) : dweights[i], expected,
                    3 * tolerance);
        EXPECT_NEAR(c.narrow ? widen(thin[i]) : scores[i], weights[i],
                    tolerance);
      }
    }
  }
}

// f32 rows of two heads become bf16 rows that lie side by side.
TEST_P(OwnKernelTest, storeRows) {
  std::vector<float> from = randomFloats(2 * 3 * 4, 14);
  std::vector<BFloat16> to(3 * 8, {9});
  StoreRows s;
  s.from = from.data(), s.to = to.data(), s.type = WireType::bf16;
  s.strides[0] = 24, s.strides[1] = 4, s.strides[2] = 8;
  s.headsOfBatch = 2, s.heads = 2, s.rows = 3, s.width = 4;
  run(s);
  for (int64_t head = 0; head < 2; ++head)
    for (int64_t row = 0; row < 3; ++row)
      for (int64_t j = 0; j < 4; ++j)
        EXPECT_EQ(to[row * 8 + head * 4 + j].bits,
                  narrow<BFloat16>(from[(head * 3 + row) * 4 + j]).bits);
}

INSTANTIATE_TEST_SUITE_P(Grids, OwnKernelTest, someLaunches());

} // namespace
