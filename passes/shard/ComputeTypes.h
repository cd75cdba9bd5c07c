// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rule by which ops compute in f32 or in the 16-bit type of --param-dtype.
// It is torch's type promotion with bf16 parameters and f32 inputs, where a
// file of f32 allows to tell: the casts of the module are not in it.
#pragma once

#include "compiler/dialects/nn/NNDialect.h"

namespace fsdpc::passes {

/// What a value is computed from. A result has the greatest of its operands.
enum class ValueOrigin {
  Data,      ///< inputs, constants, buffers and positions
  Parameter, ///< parameters as well, by arithmetic alone
  Activation ///< a product with a parameter, or rows looked up in one
};

/// Returns true if the operand stays in its type, whatever the op computes in.
bool keepsType(mlir::Operation *op, mlir::Value operand);
/// Returns true if the result is f32 for itself, as statistics and losses are;
/// what reads it is not.
bool isStatistic(mlir::OpResult result);

/// Follows the values of one function. Ops are noted in program order, once
/// their operands are final.
class ComputeTypes {
public:
  /// With `castInputs`, float inputs count as activations in 16 bits.
  explicit ComputeTypes(bool castInputs) : castInputs(castInputs) {}

  /// Returns true if the op computes in the 16-bit type:
  ///  - a product, if an operand is in 16 bits or computed from parameters;
  ///  - an op that moves elements, if an operand is in 16 bits;
  ///  - arithmetic, if an operand is an activation in 16 bits and none is an
  ///    f32 value that depends on parameters. Arithmetic of parameters, and of
  ///    parameters and data, is f32.
  bool computesInHalf(mlir::Operation *op) const;
  /// Returns true if an operand depends on parameters.
  bool readsParameters(mlir::Operation *op) const;
  /// Returns true if the op computes no new numbers: it moves elements, or
  /// chooses between operands.
  static bool onlyMoves(mlir::Operation *op);

  /// Notes the origin of the op's results.
  void note(mlir::Operation *op);
  /// Notes that others read the f32 value as one in 16 bits: --keep-f32 keeps
  /// the module that computes it.
  void keep(mlir::Value value) { kept.insert(value); }

private:
  ValueOrigin originOf(mlir::Value value) const;
  bool isInHalf(mlir::Value value) const;
  bool isWide(mlir::Value value) const;

  bool castInputs;
  llvm::DenseSet<mlir::Value> kept;
  llvm::DenseMap<mlir::Value, ValueOrigin> origins; ///< Data is left out
};

} // namespace fsdpc::passes
