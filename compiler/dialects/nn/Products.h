// The accumulator of a product, from which its sums start: either a full
// result, or one row that is added to every row (a bias). Passes and the
// runtime treat the two in different ways: memory of a full result becomes the
// result's, a row is only read.
#pragma once

#include "compiler/dialects/nn/NNDialect.h"

namespace fsdpc::nn {

/// Returns the row that is added to each row of the result, or null.
inline mlir::Value biasOf(MatmulOp product) {
  mlir::Value start = product.getAccumulator();
  bool isRow =
      start &&
      llvm::cast<mlir::RankedTensorType>(start.getType()).getRank() == 1;
  return isRow ? start : mlir::Value();
}

/// Returns the accumulator whose memory the result overwrites, or null.
inline mlir::Value overwrittenBy(MatmulOp product) {
  return biasOf(product) ? mlir::Value() : product.getAccumulator();
}

} // namespace fsdpc::nn
