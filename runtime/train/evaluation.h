// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Evaluation: the loss of held-out samples, computed by the program's entry
// function `evaluate`. Microbatch j takes samples j·b to (j+1)·b-1, whatever
// the number of ranks. The losses are added in the order of j. So the result
// has the same bits at any number of ranks and any --accumulate. Buckets are
// evaluated one after the other.
#pragma once

#include "runtime/core/rank.h"
#include "runtime/data/samples.h"
#include "runtime/train/evaluation_weights.h"
#include "runtime/train/predictions.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc::runtime {

/// The figures of one evaluation, as printed and logged.
struct EvaluationRecord {
  int64_t step = 0; ///< steps that were done before it
  double loss = 0;
  int64_t samples = 0;
  std::vector<double> metrics; ///< in the order of --metric; NaN: of no sample
  double milliseconds = 0;
};

/// Call open and check before the run, then run on all ranks together whenever
/// an evaluation is due.
class Evaluation {
public:
  /// Opens the files of --eval and checks them against the inputs, as those of
  /// --data. Does nothing without --eval.
  Status open(const Manifest &manifest, const fsdpc_program &program,
              const Options &options);
  /// Checks the values of this rank's samples, so that a bad one is reported
  /// before the run begins.
  Status check(const Job &job);
  bool isOn() const { return microbatches > 0; }
  const Samples &data() const { return samples; }
  /// Says which samples are left out, or is empty.
  const std::string &note() const { return leftOut; }

  /// Computes the loss on all ranks. The device must be idle. Reads samples
  /// into the input slot that holds none of the next step. The caller must end
  /// the job if it fails, because the other ranks may be waiting for this one.
  Status run(fsdpc_rank &rank, EvaluationRecord &record);
  /// Gives the files of --predict their names after `run`.
  Status commitPredictions() {
    return predictions ? predictions->commit() : Status();
  }
  /// Says what in the data gave a loss that is not finite, as far as that is
  /// found in the first few thousand samples, or returns an empty string.
  std::string describeNonFinite() const;

private:
  /// The samples of one bucket, which are a part of the data.
  struct Group {
    size_t part = 0, bucket = 0;
    int64_t samples = 0;
    /// The microbatches, over all ranks, that the loss is made of.
    int64_t microbatches = 0;
    /// Those that run: also the last one that is not full, if its outputs are
    /// written.
    int64_t computed = 0;
  };
  Status addGroup(size_t part, const Options &options, int64_t &steps);
  Status runRound(fsdpc_rank &rank, const Group &group, int64_t step,
                  int64_t first);
  Status fill(fsdpc_rank &rank, const Group &group, int64_t k, int64_t j);
  void mask(const fsdpc_rank &rank, size_t bucket, int64_t row);
  double finishMetric(size_t m) const;
  int64_t samplesOf(const Group &group, int64_t count) const;
  int64_t samplesOfLoss() const;
  void add(fsdpc_rank &rank, const Group &group, int64_t first);

  const Manifest *manifest = nullptr;
  Samples samples;
  std::vector<Group> groups;
  int64_t microbatches = 0; ///< of all groups
  int64_t rounds = 0;       ///< so far, in the evaluation that runs
  std::string leftOut;
  const std::vector<Metric> *metrics = nullptr;
  EvaluationWeights weights;
  std::unique_ptr<Predictions> predictions; ///< null without --predict
  /// The sums of the evaluation that runs: the loss of each microbatch times
  /// its weight, and the weights; and the metrics.
  double sum = 0, weight = 0;
  std::vector<double> metricSums;
  StepResults results;
  std::vector<double> own, all;
};

} // namespace fsdpc::runtime
