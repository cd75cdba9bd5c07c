// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the ops and parameters that stay in f32 beside --param-dtype.
#pragma once

#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::passes {

/// Sets `fsdp.keep_f32` on the ops of the modules that --keep-f32 names, on the
/// parameters that they read, and on those that are f32 in the model's file
/// (`nn.type`). Emits an error if a glob matches no module.
llvm::LogicalResult markKeptF32(mlir::ModuleOp module, mlir::Block &body);

} // namespace fsdpc::passes
