// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The weights of an evaluation's microbatches in means over targets, and the
// factors that follow from them. All microbatches of the evaluation count as
// those of one step (loss_weights.h).
#pragma once

#include "runtime/core/rank.h"
#include "runtime/train/loss_weights.h"

#include <vector>

namespace fsdpc::runtime {

/// The samples of an evaluation stay the same, so weights are measured once.
class EvaluationWeights {
public:
  /// `groups` are the microbatches of each bucket that the loss is made of.
  /// Rank r measures microbatches r, r + N, … of each. A loss that reports its
  /// divisor needs no factors. `manifest` must outlive this.
  Status open(const Manifest &manifest, const std::vector<int64_t> &groups,
              int ranks);
  bool isOn() const { return !weights.empty(); }

  /// Returns a buffer per input for the samples of a microbatch; null for
  /// inputs that no weight depends on.
  void *const *buffers() const { return measuring.buffers(); }
  /// Measures microbatch j of a group from the buffers.
  void measure(size_t group, int64_t j, size_t bucket);

  /// Computes the factors. All ranks call it together, once they have measured
  /// theirs; further calls do nothing.
  void exchange(const Job &job);
  /// Writes the factors of microbatch j of a group that this rank has
  /// measured, or 1 for any other.
  void write(size_t group, int64_t j, float *factors) const;
  /// Returns true if some mean has a divisor of 0, so that the loss is not a
  /// number.
  bool lacksTargets() const { return lacks; }

private:
  size_t rowOf(size_t group, int64_t j) const;

  std::vector<LossWeight> weights; ///< none if the loss needs no factors
  LossWeights measuring;
  std::vector<int64_t> groups; ///< microbatches
  std::vector<size_t> firsts;  ///< of each group, the first row of a rank
  int64_t ranks = 1;
  std::vector<double> own;    ///< a row per microbatch that this rank measures
  std::vector<float> factors; ///< likewise; empty until `exchange`
  bool lacks = false;
};

} // namespace fsdpc::runtime
