// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Hashes of the initial values that a program reads from files.
#pragma once

#include "runtime/abi/manifest.h"

#include "mlir/IR/Location.h"

namespace fsdpc::codegen {

/// Reads the values that `manifest` takes from files and fills in the hashes
/// that are absent, by which the program finds out that a file has changed
/// since. Emits an error at `loc` if a file cannot be read.
llvm::LogicalResult hashSources(mlir::Location loc, Manifest &manifest);

} // namespace fsdpc::codegen
