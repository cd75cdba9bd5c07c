// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The weights of a step's microbatches in means over targets (--loss-mean), and
// the factors that follow from them. A microbatch's mean is multiplied by its
// factor. The mean of these products over the microbatches is then the mean
// over all targets of the step.
#pragma once

#include "runtime/numeric/weight_program.h"

#include <functional>

namespace fsdpc::runtime {

/// The sum of one weight over microbatches, which are added in their order, so
/// the bits do not depend on the ranks.
class WeightSum {
public:
  explicit WeightSum(const LossWeight &weight) : weight(&weight) {}
  void add(double own);
  /// Returns the divisor of the mean over the targets of all microbatches.
  double divisor() const { return divisorOf(sum, double(microbatches)); }
  /// Returns the factor of a microbatch with this weight. Equal weights give
  /// exactly 1, unless the divisor has a bound above them or a number added
  /// that does not grow with V. A divisor of 0 counts as 1, and all factors are
  /// 0 if the step's divisor is 0.
  float factorOf(double own) const;

private:
  double divisorOf(double value, double several) const;

  const LossWeight *weight;
  int64_t microbatches = 0;
  double sum = 0, first = 0;
  bool equal = true;
};

/// Used by the thread of the loop. Allocates nothing after `open`.
class LossWeights {
public:
  /// `manifest` must outlive this. `readsAll`: a microbatch is read whole to
  /// measure it, since what a sample is depends on all of its inputs
  /// (--skip-corrupt).
  Status open(const Manifest &manifest, int64_t accumulate, bool readsAll);

  bool isOn() const { return !manifest->lossWeights.empty(); }
  size_t count() const { return manifest->lossWeights.size(); }

  /// Returns a buffer per input of the model for the samples of a microbatch;
  /// null for inputs that no weight depends on.
  void *const *buffers() const { return pointers.data(); }
  /// Measures this rank's microbatch k of the next step from a buffer per
  /// input.
  void measure(int64_t k, size_t bucket, void *const *samples);
  /// Returns a measured weight.
  double of(int64_t k, size_t weight) const {
    return own[size_t(k) * count() + weight];
  }

  /// Computes the factors of this rank's microbatches from the weights of all
  /// microbatches of the step. `weightOf(j, i)` is weight i of microbatch j,
  /// which is microbatch j / ranks of rank j mod ranks.
  void combine(int64_t microbatches, int ranks, int rank,
               const std::function<double(int64_t, size_t)> &weightOf);
  /// Writes the factors of microbatch k.
  void write(int64_t k, float *factors) const;

private:
  const Manifest *manifest = nullptr;
  /// Per bucket and weight.
  std::vector<std::vector<WeightInterpreter>> interpreters;
  struct Argument {
    size_t input; ///< of the model
    std::vector<double> *elements;
  };
  std::vector<std::vector<Argument>> arguments; ///< per bucket
  std::vector<std::vector<char>> scratch;       ///< per input
  std::vector<void *> pointers;
  std::vector<double> own; ///< of the next step, a row per microbatch
  std::vector<float> factors;
};

} // namespace fsdpc::runtime
