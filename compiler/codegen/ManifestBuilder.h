// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The manifest of a program: the facts of the final module that the runtime
// needs, as plain data (runtime/abi/manifest.h).
#pragma once

#include "compiler/codegen/ProgramTables.h"
#include "runtime/abi/manifest.h"

namespace fsdpc::codegen {

/// Builds the manifest of `module`, whose indices agree with `tables`. The
/// caller adds what the module does not know: the command line and the
/// processor.
Manifest buildManifest(mlir::ModuleOp module, ProgramTables &tables);

/// Returns a hash of the module's text without locations, so that equal
/// programs have equal hashes.
std::string hashProgram(mlir::ModuleOp module);

} // namespace fsdpc::codegen
