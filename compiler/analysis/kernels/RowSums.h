// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recognises sums over fixed blocks of rows. Outlining puts such a sum into a
// kernel that visits the rows anyway, and the planner lets that kernel add them
// up on the way. Both ask here, so they cannot disagree on what such a sum is.
#pragma once

#include "mlir/IR/Operation.h"

#include <optional>

namespace fsdpc::nn {
class ReduceOp;
} // namespace fsdpc::nn

namespace fsdpc::analysis {

/// Returns true if the op sums f32 or f64 values of blocks × rows × columns
/// over the rows, of which a block has few enough that both templates which can
/// compute the op (row, column) add them one after the other.
bool sumsBlocksOfRows(nn::ReduceOp op);

/// A sum over blocks of rows that were one tensor before a reshape
/// (passes/kernels/ExpandForGrouping.h splits sums into this form).
struct RowSums {
  mlir::Value rows; ///< the input of the reshape
  int64_t rowsPerBlock;
};
std::optional<RowSums> rowSumsOf(mlir::Operation *op);

} // namespace fsdpc::analysis
