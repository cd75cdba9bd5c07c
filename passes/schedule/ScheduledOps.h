// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops that scheduling moves, the ops that hold them in place, and how many
// elements their values have.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"

namespace fsdpc::passes {

/// Returns the number of elements of all values, which are tensors.
int64_t elementsOf(mlir::ValueRange values);

/// Returns the ops that read or write the memory of `value`: its users except
/// frees and waits, those of its views, and those of what is accumulated in it.
/// In no particular order, and an op may be listed more than once.
mlir::SmallVector<mlir::Operation *> usersOfMemory(mlir::Value value);

/// Returns true for collectives, in one piece or split, and frees: ops without
/// a position of their own.
bool isScheduled(mlir::Operation *op);

/// Copies unit and direction to an op that replaces `from`.
void copyUnit(mlir::Operation *from, mlir::Operation *to);

} // namespace fsdpc::passes
