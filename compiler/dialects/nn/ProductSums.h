// The gradient of a weight that many small products share.
#pragma once

#include "compiler/dialects/nn/NNDialect.h"

#include "llvm/ADT/DenseSet.h"

namespace fsdpc::nn {

// One object serves one sweep, in which no op is erased: it remembers values by
// their address.
class ProductSums {
public:
  /// Returns one product over the rows of all terms, built at the builder's
  /// insertion point, if `sum` adds many products Aᵀ·B of few rows each, as the
  /// gradient of a recurrence's weights does; else returns `sum`.
  mlir::Value merge(mlir::OpBuilder &builder, mlir::Value sum);

private:
  /// Sums of anything else. The gradient of many values may be one long sum.
  llvm::DenseSet<mlir::Value> others;
};

} // namespace fsdpc::nn
