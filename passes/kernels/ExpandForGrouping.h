// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Expands ops that would need two kernels: losses, and sums of many rows.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fsdpc::passes {

/// Expands a loss into a kernel of rows and a sum over them. Splits the
/// gradients of biases and of the weights of norms into sums over blocks of
/// rows, which join the kernels that visit these rows anyway, and a short sum
/// over the blocks.
void expandForGrouping(mlir::func::FuncOp function);

} // namespace fsdpc::passes
