// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every rank gets the weights of all microbatches and adds them in the same
// order, so the evaluation has the same bits at any number of ranks.
#include "runtime/train/evaluation_weights.h"

#include <algorithm>
#include <limits>

namespace fsdpc::runtime {

Status EvaluationWeights::open(const Manifest &manifest,
                               const std::vector<int64_t> &microbatches,
                               int size) {
  if (manifest.evaluatesMeans || manifest.lossWeights.empty())
    return {};
  FSDPC_TRY(measuring.open(manifest, /*accumulate=*/1, /*readsAll=*/false));
  weights = manifest.lossWeights;
  groups = microbatches;
  ranks = size;
  size_t rows = 0;
  for (int64_t count : groups) {
    firsts.push_back(rows);
    rows += size_t((count + ranks - 1) / ranks);
  }
  own.assign(rows * weights.size(), 0);
  return {};
}

size_t EvaluationWeights::rowOf(size_t group, int64_t j) const {
  return (firsts[group] + size_t(j / ranks)) * weights.size();
}

void EvaluationWeights::measure(size_t group, int64_t j, size_t bucket) {
  if (!isOn() || j >= groups[group])
    return;
  measuring.measure(0, bucket, measuring.buffers());
  for (size_t i = 0; i < weights.size(); ++i)
    own[rowOf(group, j) + i] = measuring.of(0, i);
}

void EvaluationWeights::exchange(const Job &job) {
  if (!isOn() || !factors.empty())
    return;
  std::vector<double> all(own.size() * size_t(ranks));
  job.channel[controlChannel]->allGather(own.data(), all.data(),
                                         own.size() * sizeof(double));
  auto weightOf = [&](size_t group, int64_t j, size_t i) {
    return all[size_t(j % ranks) * own.size() + rowOf(group, j) + i];
  };
  factors.assign(own.size(), 1);
  for (size_t i = 0; i < weights.size(); ++i) {
    WeightSum sum(weights[i]);
    for (size_t group = 0; group < groups.size(); ++group)
      for (int64_t j = 0; j < groups[group]; ++j)
        sum.add(weightOf(group, j, i));
    bool none = sum.divisor() == 0;
    lacks |= none;
    for (size_t group = 0; group < groups.size(); ++group)
      for (int64_t j = job.rank; j < groups[group]; j += ranks)
        factors[rowOf(group, j) + i] =
            none ? std::numeric_limits<float>::quiet_NaN()
                 : sum.factorOf(weightOf(group, j, i));
  }
}

void EvaluationWeights::write(size_t group, int64_t j, float *to) const {
  if (isOn() && j < groups[group])
    std::copy_n(factors.data() + rowOf(group, j), weights.size(), to);
  else
    std::fill_n(to, mostLossWeights, 1.0f);
}

} // namespace fsdpc::runtime
