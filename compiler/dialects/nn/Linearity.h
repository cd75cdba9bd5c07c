// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tells how ops depend on their operands: whether a sum of operands gives the
// sum of the results, and which of their elements belong together.
#pragma once

#include "compiler/dialects/nn/Interfaces.h"

#include <optional>

namespace fsdpc::nn {

/// How the result of an op depends on one of its operands.
enum class Linearity {
  None,  ///< not linearly
  Term,  ///< linear in all its operands of this kind together
  Factor ///< linear in it as long as the other factors are fixed
};

/// Returns how the result of an op depends on one of its operands.
Linearity linearityIn(mlir::OpOperand &operand);

/// Returns true if the results of `op` are linear in the operands for which
/// `isVariable` holds together, and 0 where these are 0. The other operands
/// count as constants.
bool isLinearIn(mlir::Operation *op,
                llvm::function_ref<bool(mlir::OpOperand &)> isVariable);

/// Returns true if the result is the operand, in another type at most.
bool keepsValue(mlir::Operation *op);

/// Returns the axis of a library call's result that follows the operand's axis
/// element by element. Returns nothing if the call combines elements along it.
std::optional<int64_t> resultAxis(LibraryCallOpInterface call, unsigned operand,
                                  int64_t axis);

} // namespace fsdpc::nn
