// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rows of softmax and cross-entropy in primitives, shared by the
// decompositions of the composites and that of `nn.linear_cross_entropy`.
#pragma once

#include "compiler/dialects/nn/DecomposeBuilder.h"
#include "compiler/dialects/nn/LossOps.h"

namespace fsdpc::nn {

/// The parts of a softmax over the last axis: the maximum, exp(x - max), and
/// the sum of these. Softmax is exps / sum, and log-sum-exp is max + log(sum).
struct RowExp {
  mlir::Value max, exps, sum; ///< R×1, R×C, R×1
};
RowExp rowExp(DecomposeBuilder &b, mlir::Value x);

/// The targets of cross-entropy as columns, and the weight of each row, which
/// is 0 for ignored rows.
struct TargetRows {
  mlir::Value index, weight; ///< R×1, R×1
};
/// Builds them. `logits` is the R×C type in which statistics are computed.
TargetRows targetRows(DecomposeBuilder &b, mlir::RankedTensorType logits,
                      mlir::Value targets, mlir::Value weights,
                      std::optional<int64_t> ignoreIndex);

/// Returns the divisor of the summed loss: for a mean `valid`, or 1 if that is
/// 0; for a sum 1.
mlir::Value divisorOf(DecomposeBuilder &b, Reduction reduction,
                      mlir::Value valid);

} // namespace fsdpc::nn
