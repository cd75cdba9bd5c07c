// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tokens stand for commands that a start has put on another stream. In ODS only
// waits have an operand of this type.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"

namespace fsdpc::fsdp {

/// Returns the token that the op waits for, or null if it is no wait. The
/// start, which defines the token, gives the results of the wait their memory.
inline mlir::Value awaitedToken(mlir::Operation *op) {
  for (mlir::Value operand : op->getOperands())
    if (llvm::isa<TokenType>(operand.getType()))
      return operand;
  return nullptr;
}

} // namespace fsdpc::fsdp
