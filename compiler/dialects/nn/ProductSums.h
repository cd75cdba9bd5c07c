// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The gradient of a weight that many small products share.
#pragma once

#include "mlir/IR/Builders.h"

#include "llvm/ADT/DenseSet.h"

namespace fsdpc::nn {

class MatmulOp;

/// One object serves one sweep, in which no op is erased: it remembers values
/// by their address.
class ProductSums {
public:
  /// Returns one product over the rows of all terms, built at the builder's
  /// insertion point, if `sum` adds many products Aᵀ·B of few rows each, as the
  /// gradient of a recurrence's weights does; else returns `sum`.
  mlir::Value merge(mlir::OpBuilder &builder, mlir::Value sum);

private:
  /// Collects the products that `sum` adds, from the first one added on. Fails
  /// if it adds anything else.
  llvm::LogicalResult collectTerms(mlir::Value sum,
                                   llvm::SmallVectorImpl<MatmulOp> &terms);

  /// Sums that add anything else, as every sum does that adds one of them. The
  /// gradients along a chain of values may be ever longer parts of one sum.
  llvm::DenseSet<mlir::Value> others;
};

} // namespace fsdpc::nn
