// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reduction of the largest elements: the choice against a stable sort, and
// the sums and residuals against what single ranks choose.
#include "runtime/comm/compressed_reduction.h"
#include "runtime/numeric/top_k.h"
#include "tests/runtime/comm/collective_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>
#include <vector>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

// Moves the largest values out, by a sort. NaN is the largest, by its bits.
std::vector<ChosenElement> largestOf(std::vector<float> &values,
                                     int64_t count) {
  auto key = [&](uint32_t place) {
    uint32_t bits;
    memcpy(&bits, &values[place], sizeof bits);
    return bits & 0x7fffffff;
  };
  std::vector<uint32_t> places(values.size());
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(),
                   [&](uint32_t a, uint32_t b) { return key(a) > key(b); });
  places.resize(size_t(count));
  std::sort(places.begin(), places.end());
  std::vector<ChosenElement> chosen;
  for (uint32_t place : places)
    chosen.push_back({place, std::exchange(values[place], 0.0f)});
  return chosen;
}

void checkChoice(std::vector<float> values, int64_t count) {
  std::vector<float> left = values;
  std::vector<ChosenElement> expected = largestOf(left, count), found(count);
  takeLargest(values.data(), int64_t(values.size()), count, found.data());
  EXPECT_EQ(memcmp(found.data(), expected.data(), size_t(chosenBytes(count))),
            0)
      << count << " of " << values.size();
  EXPECT_EQ(memcmp(values.data(), left.data(), values.size() * 4), 0);
}

std::vector<float> numbers(int64_t count, int rank = 0) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(fsdpc::testing::valueOf(rank, i));
  return values;
}

TEST(TakeLargest, AgreesWithAStableSort) {
  for (int64_t count : {1, 2, 10, 999, 1000})
    checkChoice(numbers(1000), count);
  checkChoice(numbers(1), 1);
  checkChoice(numbers(70001), 700);
}

// Few magnitudes, both signs and zeros: nearly all are ties.
TEST(TakeLargest, PrefersLowerPlacesAmongEqualOnes) {
  std::vector<float> values;
  for (int i = 0; i < 1000; ++i)
    values.push_back(float(i * 7 % 5 - 2));
  for (int64_t count : {1, 3, 399, 400, 401, 900, 1000})
    checkChoice(values, count);
  checkChoice(std::vector<float>(50, 0.0f), 7);
}

TEST(TakeLargest, SendsWhatIsNotFiniteFirst) {
  std::vector<float> values = numbers(100);
  values[40] = NAN;
  values[50] = -INFINITY;
  values[60] = 1e-42f;
  for (int64_t count : {1, 2, 3, 100})
    checkChoice(values, count);
}

// Two members with a gap that holds garbage.
constexpr int64_t elements = 300;
std::vector<Member> members() {
  std::vector<Member> members(2);
  members[0].elements = 100;
  members[1].offset = 112;
  members[1].elements = elements - 112;
  return members;
}

std::vector<float> gradientOf(int rank, int round, float gap) {
  std::vector<float> values = numbers(elements, rank + 100 * round);
  std::fill_n(values.begin() + 100, 12, gap);
  return values;
}

// Two reductions in a row, of which the second one may add. Ranks ask for their
// shards, or for the whole sum.
void checkReduction(int ranks, int64_t chosen, bool whole, bool add) {
  int64_t shard = (elements + ranks - 1) / ranks;
  std::vector<float> expected(size_t(ranks * shard), 0.0f);
  std::vector<std::vector<float>> left(size_t(ranks),
                                       std::vector<float>(elements, 0.0f));
  for (int round : {0, 1}) {
    if (!add)
      std::fill(expected.begin(), expected.end(), 0.0f);
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<float> gradient = gradientOf(rank, round, 0);
      for (int64_t i = 0; i < elements; ++i)
        left[rank][i] += gradient[i];
      for (ChosenElement element : largestOf(left[rank], chosen))
        expected[element.index] += element.value;
    }
  }
  auto jobs = makeLocalJobs(ranks, 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Communicator &channel = *jobs[size_t(rank)]->channel[reduceChannel];
      std::vector<float> residual(elements, 0.0f);
      std::vector<ChosenElement> exchanged(size_t(chosen * ranks));
      int64_t begin = whole ? 0 : rank * shard;
      std::vector<float> sum(size_t(whole ? ranks * shard : shard), 7.0f);
      std::vector<Member> all = members();
      for (int round : {0, 1}) {
        std::vector<float> gradient = gradientOf(rank, round, NAN);
        reduceCompressed(channel, {{"top-k", chosen},
                                   gradient.data(),
                                   WireType::f32,
                                   elements,
                                   all,
                                   residual.data(),
                                   nullptr,
                                   reinterpret_cast<char *>(exchanged.data()),
                                   sum.data(),
                                   begin,
                                   int64_t(sum.size()),
                                   add && round == 1});
      }
      EXPECT_EQ(memcmp(sum.data(), &expected[size_t(begin)], sum.size() * 4), 0)
          << "rank " << rank << " of " << ranks;
      EXPECT_EQ(residual, left[size_t(rank)]);
      EXPECT_EQ(channel.sentBytes(),
                uint64_t(2 * chosenBytes(chosen) * (ranks - 1)));
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(ReduceTopK, AddsWhatRanksChose) {
  for (int ranks : {1, 2, 3, 5})
    for (bool whole : {false, true})
      for (bool add : {false, true})
        for (int64_t chosen : {int64_t(1), int64_t(30), elements})
          checkReduction(ranks, chosen, whole, add);
}

} // namespace
