// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Registers every dialect and pass that the tools know.
#pragma once

#include "mlir/IR/DialectRegistry.h"

namespace fsdpc::pipeline {

/// The dialects that a dump may contain.
void registerDialects(mlir::DialectRegistry &registry);
/// Makes the passes known to fsdpc-opt by name. Call it once per process.
void registerPasses();

} // namespace fsdpc::pipeline
