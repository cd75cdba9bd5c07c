// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reduction of signs: the sum and the residuals against a loop over
// elements, and that nothing of a gradient is lost.
#include "runtime/abi/compressions.h"
#include "runtime/comm/compressed_reduction.h"
#include "runtime/numeric/sign_words.h"
#include "tests/runtime/comm/collective_cases.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

using namespace fsdpc;
using namespace fsdpc::runtime;
using fsdpc::testing::valueOf;

namespace {

TEST(SignsOf, CountsMinusZeroAsNegative) {
  const float values[] = {1, -2, 0, -0.0f, 0.5f};
  SignWord word = signsOf(values, 5);
  EXPECT_EQ(word.signs, 0b01010u);
  EXPECT_EQ(word.magnitudes, 3.5);
  uint32_t scale = scaleBits(word.magnitudes, 5);
  EXPECT_EQ(signedScale(scale, word.signs, 0, false), 0.7f);
  EXPECT_EQ(signedScale(scale, word.signs, 1, false), -0.7f);
  EXPECT_EQ(signedScale(scale, word.signs, 1, true), 0.7f);
}

// Two members with a gap that holds garbage.
constexpr int64_t elements = 700;
std::vector<Member> members() {
  std::vector<Member> members(2);
  members[0].elements = 100, members[0].shape = {100};
  members[1].offset = 112;
  members[1].elements = elements - 112, members[1].shape = {elements - 112};
  return members;
}

std::vector<float> gradientOf(int rank, int round, float gap) {
  std::vector<float> values;
  for (int64_t i = 0; i < elements; ++i)
    values.push_back(valueOf(rank + 100 * round, i));
  std::fill_n(values.begin() + 100, 12, gap);
  return values;
}

// Takes what a rank sends out of its residual, and adds it to the sum.
void sendSigns(std::vector<float> &residual, int64_t block,
               std::vector<float> &sum) {
  for (const Member &member : members())
    for (int64_t i = 0; i < member.elements; i += block) {
      int64_t begin = member.offset + i;
      int64_t end = begin + std::min(block, member.elements - i);
      double magnitudes = 0;
      for (int64_t k = begin; k < end; k += signsOfWord)
        magnitudes +=
            signsOf(&residual[size_t(k)], std::min(signsOfWord, end - k))
                .magnitudes;
      auto scale = float(magnitudes / double(end - begin));
      for (auto k = size_t(begin); k < size_t(end); ++k) {
        float sent = std::copysign(scale, residual[k]);
        sum[k] += sent;
        residual[k] -= sent;
      }
    }
}

// Two reductions in a row, of which the second one may add. Ranks ask for their
// shards, or for the whole sum.
void checkReduction(int ranks, int64_t block, bool whole, bool add) {
  int64_t shard = (elements + ranks - 1) / ranks;
  std::vector<float> expected(size_t(ranks * shard), 0.0f);
  std::vector<std::vector<float>> left(size_t(ranks),
                                       std::vector<float>(elements, 0.0f));
  for (int round : {0, 1}) {
    if (!add)
      std::fill(expected.begin(), expected.end(), 0.0f);
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<float> gradient = gradientOf(rank, round, 0);
      for (size_t i = 0; i < gradient.size(); ++i)
        left[size_t(rank)][i] += gradient[i];
      sendSigns(left[size_t(rank)], block, expected);
    }
  }
  const MemberShapes shapes = {{100}, {elements - 112}};
  auto jobs = makeLocalJobs(ranks, 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Communicator &channel = *jobs[size_t(rank)]->channel[reduceChannel];
      std::vector<float> residual(elements, 0.0f);
      std::vector<uint32_t> exchanged(
          size_t(infoOf<OneBit>().exchangedBytes(block, shapes, ranks)) / 4);
      int64_t begin = whole ? 0 : rank * shard;
      std::vector<float> sum(size_t(whole ? ranks * shard : shard), 7.0f);
      std::vector<Member> all = members();
      for (int round : {0, 1}) {
        std::vector<float> gradient = gradientOf(rank, round, NAN);
        reduceCompressed(channel, {{"one-bit", block},
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
          << "rank " << rank << " of " << ranks << ", blocks of " << block;
      EXPECT_EQ(residual, left[size_t(rank)]);
      EXPECT_EQ(channel.sentBytes(),
                uint64_t(2 * (ranks - 1) *
                         infoOf<OneBit>().sentBytes(block, shapes)));
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(ReduceOneBit, AddsWhatRanksSend) {
  for (int ranks : {1, 2, 3, 5})
    for (bool whole : {false, true})
      for (bool add : {false, true})
        for (int64_t block : {32, 50, 64, 100, 4096})
          checkReduction(ranks, block, whole, add);
}

// A gradient that is not finite must reach the checks of the step.
TEST(ReduceOneBit, ShowsWhatIsNotFinite) {
  for (float value : {NAN, INFINITY, -INFINITY}) {
    auto jobs = makeLocalJobs(1, 0);
    std::vector<Member> all = members();
    std::vector<float> gradient = gradientOf(0, 0, 0), residual(elements, 0.0f);
    std::vector<float> sum(elements);
    gradient[300] = value;
    std::vector<uint32_t> exchanged(elements);
    reduceCompressed(*jobs[0]->channel[reduceChannel],
                     {{"one-bit", 64},
                      gradient.data(),
                      WireType::f32,
                      elements,
                      all,
                      residual.data(),
                      nullptr,
                      reinterpret_cast<char *>(exchanged.data()),
                      sum.data(),
                      0,
                      elements,
                      false});
    EXPECT_FALSE(std::isfinite(sum[300]));
  }
}

} // namespace
