// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bytes that a call touches behind each of its addresses, from the call's
// own plan, kernel and symbols. verify-rt compares them with what the pointers
// declare.
#pragma once

#include "mlir/IR/SymbolTable.h"

namespace fsdpc::passes {

/// Returns how many bytes the op of an rt function touches from the address in
/// `operand` on, or 0 if the module lacks the symbol that says so. The result
/// is a lower bound on what the pointer must declare. A gather's padding is not
/// counted.
int64_t reachOf(mlir::OpOperand &operand, const mlir::SymbolTable &symbols);

} // namespace fsdpc::passes
