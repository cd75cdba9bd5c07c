// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bytes that elements and tensors take in memory. No other place of the
// compiler turns the width of a type into bytes.
#pragma once

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

namespace fsdpc::nn {

/// Returns the bytes of an element of a float or integer type, or of the
/// element type of a tensor or vector. A type narrower than a byte takes one.
inline int64_t elementBytes(mlir::Type type) {
  return llvm::divideCeil(
      mlir::getElementTypeOrSelf(type).getIntOrFloatBitWidth(), 8);
}

/// Says whether integers of a type, or of a tensor or vector of it, have no
/// sign. i1 has none: true is 1, not -1.
inline bool isUnsigned(mlir::Type type) {
  mlir::Type element = mlir::getElementTypeOrSelf(type);
  return element.isUnsignedInteger() || element.isInteger(1);
}

/// Returns the bytes of all elements of a tensor or vector, without gaps.
inline int64_t tensorBytes(mlir::Type type) {
  return llvm::cast<mlir::ShapedType>(type).getNumElements() *
         elementBytes(type);
}

} // namespace fsdpc::nn
