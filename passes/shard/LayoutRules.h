// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rules of verify-shard on layouts: what each computes in and keeps, and
// that every parameter has one place in them.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"

namespace fsdpc::passes {

/// Checks all layouts of the module. Each parameter is a member of one layout,
/// of its unit and as dense as the alignment allows. The op's own verifier
/// checks the rest: members are aligned, disjoint, and all trainable or all
/// frozen. Emits an error.
llvm::LogicalResult verifyLayouts(mlir::ModuleOp module,
                                  const mlir::SymbolTable &symbols);

} // namespace fsdpc::passes
