// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parts of a batch norm and of its gradient, shared by the decompositions
// of the composites and by the pass that sums between the parts over all ranks.
#pragma once

#include "compiler/dialects/nn/DecomposeBuilder.h"

namespace fsdpc::nn {

class BatchNormGradOp;
class BatchNormOp;

/// Returns a vector of channels in the shape in which it broadcasts to `like`.
mlir::Value channels(DecomposeBuilder &b, mlir::Value vector, mlir::Value like);

/// Holds the input less its mean per channel, and its statistics, in the shape
/// of `channels`. The variance divides by the number of elements.
struct BatchMoments {
  mlir::Value mean, centred, variance;
};
/// Builds them for the input, which has entered (DecomposeBuilder::enter).
BatchMoments batchMoments(DecomposeBuilder &b, mlir::Value input);

/// Returns the norm's result from the centred input and the variance.
mlir::Value normalised(DecomposeBuilder &b, BatchNormOp op, mlir::Value centred,
                       mlir::Value variance);

/// Holds values that the parts of the gradient share: operands that have
/// entered, the deviation's reciprocal, the normalised input, and the sums that
/// are the cotangents of bias and weight.
struct BatchNormSums {
  mlir::Value input, grad, rstd, normal, dbias, dweight;
};
BatchNormSums batchNormSums(DecomposeBuilder &b, BatchNormGradOp op);

/// Returns the input's cotangent. `dbias` and `dweight` are the sums that it
/// takes: those of `sums`, or their means over ranks.
mlir::Value inputCotangent(DecomposeBuilder &b, BatchNormGradOp op,
                           const BatchNormSums &sums, mlir::Value dbias,
                           mlir::Value dweight);

} // namespace fsdpc::nn
