// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Constants in the types in which mixed-precision computes, and numbers that
// have no counterpart there.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

namespace fsdpc::passes {

/// Returns the tensor type of the same shape with another element type.
mlir::RankedTensorType withElement(mlir::Type type, mlir::Type element);

/// Returns true if the result is f32 and each of its numbers is 0 or one of an
/// operand's, with another sign at most.
bool keepsNumbers(mlir::Operation *op);

/// Returns true for a constant of f32 that has numbers by which masks hide keys
/// (compiler/dialects/nn/Sentinels.h).
bool holdsSentinel(mlir::Operation *op);

/// Returns true if the result is f32 and may have such numbers where an operand
/// has some: the op moves numbers, or computes each from those at its place.
bool handsOnSentinels(mlir::Operation *op);

/// Converts the constants of one function, each once per type.
class HalfConstants {
public:
  /// Converts a constant at compile time instead of casting it. An op on
  /// constants that computes no new numbers, such as a broadcast or a choice,
  /// is repeated on the converted ones. Returns null for other values.
  mlir::Value convert(mlir::Value value, mlir::Type element);

private:
  mlir::Value convertOperands(mlir::Operation *op, mlir::Type element);

  llvm::DenseMap<std::pair<mlir::Value, mlir::Type>, mlir::Value> converted;
};

} // namespace fsdpc::passes
