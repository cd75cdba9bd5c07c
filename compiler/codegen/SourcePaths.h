// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Paths in a program: relative, so that equal models in different folders give
// the same bytes, and a program may move together with its model.
#pragma once

#include "runtime/abi/manifest.h"

#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::codegen {

/// Makes the paths of sources relative to the folder of the program that will
/// be written to `program`, or absolute. Emits an error if a folder cannot be
/// resolved.
mlir::LogicalResult setSourcePaths(mlir::Location loc, Manifest &manifest,
                                   llvm::StringRef program, bool absolute);

/// Returns the module with file names in place of the paths of sources.
mlir::OwningOpRef<mlir::ModuleOp> withoutFolders(mlir::ModuleOp module);

} // namespace fsdpc::codegen
