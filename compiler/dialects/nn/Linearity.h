// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tells how ops depend on their operands: whether a sum of operands gives the
// sum of the results. Ops answer by LinearityOpInterface.
#pragma once

#include "compiler/dialects/nn/Interfaces.h"

namespace fsdpc::nn {

/// Returns how the results of an op depend on one of its operands. Ops of other
/// dialects are not linear.
Linearity linearityIn(mlir::OpOperand &operand);

/// Returns true if the results of `op` are linear in the operands for which
/// `isVariable` holds together, and 0 where these are 0. The other operands
/// count as constants, and those for which `isZero` holds as 0.
bool isLinearIn(mlir::Operation *op,
                llvm::function_ref<bool(mlir::OpOperand &)> isVariable,
                llvm::function_ref<bool(mlir::OpOperand &)> isZero);

/// Returns true if the result is the operand, in another type at most.
bool keepsValue(mlir::Operation *op);

} // namespace fsdpc::nn
