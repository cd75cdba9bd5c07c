// Rows of softmax and cross-entropy in primitives: what decompositions of the
// composites share with that of `nn.linear_cross_entropy`.
#pragma once

#include "compiler/dialects/nn/DecomposeBuilder.h"

namespace fsdpc::nn {

struct RowExp {
  mlir::Value max, exps, sum; // R×1, R×C, R×1
};
RowExp rowExp(DecomposeBuilder &b, mlir::Value x);

/// What a row of cross-entropy counts: its target as a column, the row's
/// weight, 0 where it is ignored.
struct TargetRows {
  mlir::Value index, weight; // R×1, R×1
};
/// `logits` is R×C of the type that statistics are computed in.
TargetRows targetRows(DecomposeBuilder &b, mlir::RankedTensorType logits,
                      mlir::Value targets, mlir::Value weights,
                      std::optional<int64_t> ignoreIndex);

/// What the summed loss is divided by: `valid` of a mean, 1 where it is 0.
mlir::Value divisorOf(DecomposeBuilder &b, Reduction reduction,
                      mlir::Value valid);

} // namespace fsdpc::nn
