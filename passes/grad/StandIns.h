// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Knows the rows that fsdpc.export puts in the place of those that a mask does
// not select.
#pragma once

#include "mlir/IR/Operation.h"

namespace fsdpc::passes {

/// Returns true if the op looks up a placeholder: a row without gradient that
/// is only read where a mask leaves rows out. What is computed of these rows
/// counts nothing, so they combine no samples.
bool looksUpStandIn(mlir::Operation &op);

} // namespace fsdpc::passes
