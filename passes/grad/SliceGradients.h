// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The gradient of a value that is split into slices.
#pragma once

#include "mlir/IR/Builders.h"

#include "llvm/ADT/DenseSet.h"

namespace fsdpc::passes {

/// One object serves one sweep, in which no op is erased: it remembers values
/// by their address.
class SliceGradients {
public:
  /// Returns the concatenation of the parts, built at the builder's insertion
  /// point, if `sum` adds padded parts that cover an axis without overlap, as
  /// the gradient of a split does; else returns `sum`.
  mlir::Value concat(mlir::OpBuilder &builder, mlir::Value sum);

private:
  /// Sums of anything else. The gradient of many values may be one long sum.
  llvm::DenseSet<mlir::Value> others;
};

} // namespace fsdpc::passes
