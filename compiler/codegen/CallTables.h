// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The commands that each stream of a program executes, in order. They are part
// of the manifest, where --trace finds the names for the times that streams
// keep.
#pragma once

#include "compiler/codegen/ProgramTables.h"
#include "runtime/abi/manifest.h"

namespace fsdpc::codegen {

/// Fills `manifest.commands` and `manifest.sequences` from the entry functions
/// of `module`, which must consist of rt ops. Adds the plans and layouts that
/// it meets to `tables`.
void addCalls(mlir::ModuleOp module, ProgramTables &tables, Manifest &manifest);

} // namespace fsdpc::codegen
