// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolutions of few channels per group (depthwise and grouped ones) as sums
// over taps (runtime/abi/host_products.h). Sums are in f32, in the order of the
// taps for results, and of rows for weights, so threads change no bit.
#pragma once

#include "runtime/abi/host_products.h"

#include <cstddef>
#include <vector>

namespace fsdpc::runtime {

/// All functions handle one group of one image; planes are dense. `scratch` has
/// the cut's matrixBytes.
class DirectKernel {
public:
  explicit DirectKernel(const ConvolutionCut &cut);
  /// Computes rows [begin, begin + count) of all filters. `weights` are those
  /// of the group as the model has them. For a cut of kind "input" `image` is
  /// dy, and the result dx.
  void run(const ConvolutionCut::Block &rows, const float *image,
           const float *weights, float *out, float *scratch) const;
  /// Adds the products of rows [begin, begin + count) of dy to the group's
  /// gradient of the weights.
  void addWeights(const ConvolutionCut::Block &rows, const float *image,
                  const float *dy, float *dw, float *scratch) const;

private:
  void copyRows(const ConvolutionCut::Block &rows, const float *image,
                float *copies) const;
  const float *orderWeights(const float *weights, float *ordered) const;

  DirectConvolution shape;
  bool turned; ///< the kernel is turned, its channels and filters exchanged
  /// For each tap, the element that it reads for the first result, in the
  /// copies of one block of `blockRows` rows.
  std::vector<int64_t> offsets;
  int64_t blockRows;
};

} // namespace fsdpc::runtime
