// What a product's sums start from: the accumulator is either a whole result,
// or one row for all rows.
#pragma once

#include "compiler/dialects/nn/NNDialect.h"

namespace fsdpc::nn {

/// The row that is added to each row of the result, or null.
inline mlir::Value biasOf(MatmulOp product) {
  mlir::Value start = product.getAccumulator();
  bool isRow =
      start &&
      llvm::cast<mlir::RankedTensorType>(start.getType()).getRank() == 1;
  return isRow ? start : mlir::Value();
}

/// The accumulator that the result is written over, or null.
inline mlir::Value overwrittenBy(MatmulOp product) {
  return biasOf(product) ? mlir::Value() : product.getAccumulator();
}

} // namespace fsdpc::nn
