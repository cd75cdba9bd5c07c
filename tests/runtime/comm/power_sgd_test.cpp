// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reduction of factors: the sum and the residuals against products in f64,
// and that a matrix of the factors' rank arrives whole.
#include "runtime/abi/compressions.h"
#include "runtime/comm/compressed_reduction.h"
#include "runtime/comm/power_sgd.h"
#include "tests/runtime/comm/collective_cases.h"

#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>
#include <vector>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

float valueOf(int seed, int64_t element) {
  return fsdpc::testing::valueOf(seed, element) / 256;
}

TEST(OrthonormaliseFactor, MakesVectorsOfLengthOne) {
  constexpr int64_t count = 5, length = 37;
  std::vector<float> vectors;
  for (int64_t i = 0; i < count * length; ++i)
    vectors.push_back(valueOf(1, i));
  orthonormaliseFactor(vectors.data(), count, length);
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < count; ++j)
      EXPECT_NEAR(std::inner_product(&vectors[i * length],
                                     &vectors[i * length] + length,
                                     &vectors[j * length], 0.0),
                  i == j, 1e-6);
}

// The rest of a vector that depends on others is rounding, and would count as
// much as the others.
TEST(OrthonormaliseFactor, DropsVectorsThatDependOnOthers) {
  std::vector<float> vectors = {1, 2, 3, 4, 0.1f, 0.2f, 0.3f, 0.4f, 0, 0, 0, 0};
  orthonormaliseFactor(vectors.data(), 3, 4);
  for (size_t i = 4; i < vectors.size(); ++i)
    EXPECT_EQ(vectors[i], 0) << i;
}

TEST(OrthonormaliseFactor, KeepsTinyVectorsAndShowsNan) {
  std::vector<float> vectors = {3e-40f, 4e-40f, 0, NAN};
  orthonormaliseFactor(vectors.data(), 2, 2);
  EXPECT_NEAR(vectors[0], 0.6f, 1e-5);
  EXPECT_NEAR(vectors[1], 0.8f, 1e-5);
  EXPECT_TRUE(std::isnan(vectors[3]));
}

// A product of finite values may be infinite in f32; as a vector of zeros it
// would count as no gradient.
TEST(OrthonormaliseFactor, ShowsInfinity) {
  std::vector<float> vectors = {INFINITY, 1, 1, 2};
  orthonormaliseFactor(vectors.data(), 2, 2);
  EXPECT_TRUE(std::isnan(vectors[0]));
}

// A matrix, a vector that is not compressed, and a gap before it that holds
// garbage.
constexpr int64_t rows = 20, columns = 30, vectorAt = 608, elements = 640;

std::vector<Member> members() {
  std::vector<Member> members(2);
  members[0].name = "matrix";
  members[0].shape = {rows, columns};
  members[0].elements = rows * columns;
  members[1].name = "vector";
  members[1].shape = {elements - vectorAt};
  members[1].offset = vectorAt;
  members[1].elements = elements - vectorAt;
  return members;
}

// Gradients whose matrices are multiples of one of rank 1.
std::vector<float> gradientOf(int rank) {
  std::vector<float> values(elements, NAN);
  for (int64_t i = 0; i < rows * columns; ++i)
    values[i] =
        float(rank + 1) * valueOf(1, i / columns) * valueOf(2, i % columns);
  for (int64_t i = vectorAt; i < elements; ++i)
    values[i] = valueOf(3 + rank, i);
  return values;
}

struct Rank {
  std::vector<float> residual, right, left, sum;
};

std::vector<Rank> reduceAll(int ranks, int64_t rank, int rounds) {
  std::vector<Member> all = members();
  PowerSizes sizes;
  for (const Member &member : all)
    sizes.add(powerShapeOf(member.shape), rank);
  std::vector<Rank> results(static_cast<size_t>(ranks));
  auto jobs = makeLocalJobs(ranks, 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < ranks; ++i)
    threads.emplace_back([&, i] {
      Rank &own = results[size_t(i)];
      own.residual.resize(elements);
      own.right.resize(size_t(powerBytes(sizes.right, ranks) / 4));
      own.left.resize(size_t(powerBytes(sizes.left, ranks) / 4));
      own.sum.assign(elements, 7);
      std::vector<float> gradient = gradientOf(i);
      Communicator &channel = *jobs[size_t(i)]->channel[reduceChannel];
      for (int round = 0; round < rounds; ++round)
        reduceCompressed(channel, {{"power-sgd", rank},
                                   gradient.data(),
                                   WireType::f32,
                                   elements,
                                   all,
                                   own.residual.data(),
                                   own.right.data(),
                                   reinterpret_cast<char *>(own.left.data()),
                                   own.sum.data(),
                                   0,
                                   elements,
                                   round > 0});
      // Each sum is sent twice: to be added, and to be shared.
      EXPECT_EQ(channel.sentBytes(), uint64_t(rounds * 2 * (ranks - 1) *
                                              (powerBytes(sizes.left, ranks) +
                                               powerBytes(sizes.right, ranks)) /
                                              ranks));
    });
  for (std::thread &thread : threads)
    thread.join();
  return results;
}

TEST(ReducePowerSgd, SendsMatricesOfItsRankWhole) {
  for (int ranks : {1, 2, 3})
    for (int64_t rank : {1, 2}) {
      std::vector<Rank> results = reduceAll(ranks, rank, 1);
      std::vector<double> total(elements);
      for (int i = 0; i < ranks; ++i)
        for (int64_t j = 0; j < elements; ++j)
          total[size_t(j)] += double(gradientOf(i)[size_t(j)]);
      for (const Rank &own : results) {
        EXPECT_EQ(own.sum, results[0].sum);
        for (int64_t j = 0; j < elements; ++j) {
          if (j >= rows * columns && j < vectorAt) {
            EXPECT_EQ(own.sum[size_t(j)], 0) << j;
          } else {
            EXPECT_NEAR(own.sum[size_t(j)], total[size_t(j)],
                        1e-5 * (1 + std::abs(total[size_t(j)])))
                << j;
          }
        }
      }
    }
}

// A rank keeps what its gradient has more than the mean, so the residuals of
// all ranks cancel.
TEST(ReducePowerSgd, KeepsWhatTheMeanLacks) {
  std::vector<Rank> results = reduceAll(2, 1, 1);
  for (int64_t j = 0; j < rows * columns; ++j) {
    float own = gradientOf(0)[size_t(j)], other = gradientOf(1)[size_t(j)];
    EXPECT_NEAR(results[0].residual[size_t(j)], (own - other) / 2, 1e-5);
    EXPECT_NEAR(results[1].residual[size_t(j)], (other - own) / 2, 1e-5);
  }
  for (int64_t j = rows * columns; j < elements; ++j)
    EXPECT_EQ(results[0].residual[size_t(j)], 0) << j;
}

// Later microbatches add to the sum.
TEST(ReducePowerSgd, ContinuesSums) {
  std::vector<Rank> once = reduceAll(1, 1, 1), twice = reduceAll(1, 1, 2);
  for (int64_t j = 0; j < elements; ++j)
    EXPECT_NEAR(twice[0].sum[size_t(j)], 2 * once[0].sum[size_t(j)], 1e-5);
}

} // namespace
