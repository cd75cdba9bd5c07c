// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Constant folding of nn ops during the import.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"

namespace fsdpc::frontend {

/// Returns the elements in row-major order, in the byte order of this machine,
/// with splats expanded.
std::vector<char> bytesOf(mlir::DenseElementsAttr value);
/// The inverse of bytesOf.
mlir::DenseElementsAttr constantFrom(mlir::RankedTensorType type,
                                     llvm::ArrayRef<char> bytes);

/// Returns the steps that evaluating the op takes, or INT64_MAX if they are too
/// many to count.
int64_t foldingCost(mlir::Operation *op);

/// Returns the result of a primitive nn op with a single result on constant
/// operands, which must have the types of the op's operands. Returns null if
/// the op does not fold.
mlir::DenseElementsAttr
foldConstants(mlir::Operation *op,
              llvm::ArrayRef<mlir::DenseElementsAttr> operands);

} // namespace fsdpc::frontend
