// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the values of a row that cost more to compute again than to store and
// read back: the results of exp and the like that several loops over the row
// need. In softmax that is exp(x - max), which the sum and the quotient both
// read.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fsdpc::analysis {

struct KeptValue {
  mlir::Value value;
  /// The level of the first loop that needs the value, which stores it.
  int level;
  /// The result whose memory the value occupies until that result is written,
  /// or -1 if the call keeps the value in a row of its own.
  int output = -1;
};

/// Returns the values to keep: those of the ops that `isWanted` chooses, if a
/// row of them can be kept and a later loop reads it. `level` returns how many
/// reductions must be complete, one after the other, before a value. `count` is
/// the number of elements of the kernel's whole domain.
llvm::SmallVector<KeptValue, 2>
valuesToKeep(mlir::func::FuncOp kernel, int64_t count,
             llvm::function_ref<int(mlir::Value)> level,
             llvm::function_ref<bool(mlir::Operation *)> isWanted);

/// Returns true if the op's value costs more to compute again than to read.
bool isCostly(mlir::Operation *op);

} // namespace fsdpc::analysis
