// Constant folding of nn ops while they are imported.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"

namespace fsdpc::frontend {

// No constant is made beyond this size: larger ones stay computed.
constexpr int64_t kFoldedBytes = 64 << 20;

// Bytes of one element outside of attributes, where an i1 has one too.
inline int64_t elementBytes(mlir::RankedTensorType type) {
  return std::max<int64_t>(1, type.getElementTypeBitWidth() / 8);
}
std::vector<char> bytesOf(mlir::DenseElementsAttr value); // splats expanded
mlir::DenseElementsAttr constantFrom(mlir::RankedTensorType type,
                                     llvm::ArrayRef<char> bytes);

// The only result of a primitive nn op on constant operands (of the operands'
// types), or null where it does not fold.
mlir::DenseElementsAttr
foldConstants(mlir::Operation *op,
              llvm::ArrayRef<mlir::DenseElementsAttr> operands);

} // namespace fsdpc::frontend
