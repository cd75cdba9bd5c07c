// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dumps: modules as text that can be read, edited and compiled further.
//
// A dump carries locations and, in `fsdp.options` and `fsdp.done`, all that a
// compile needs in order to continue. Constants over 4 KiB are files beside it,
// named by their hash, and dense resources without data in the text.
#pragma once

#include "runtime/support/input_file.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <set>

namespace fsdpc::pipeline {

/// Short dumps are for people (ShortForm.h); full ones have each attribute on
/// its op and each op in one line, for tools. readDump reads both.
enum class DumpForm { Short, Full };

/// Writes the dump FOLDER/NN-NAME.mlir, and creates the folder if need be.
llvm::LogicalResult writeNumberedDump(mlir::ModuleOp module,
                                      llvm::StringRef folder, unsigned number,
                                      llvm::StringRef name, DumpForm form);
/// Writes the module to `path`, and its large constants beside it. On failure
/// an existing file at `path` stays as it was.
llvm::LogicalResult writeDump(mlir::ModuleOp module, llvm::StringRef path,
                              DumpForm form);
/// Returns the path of a numbered dump.
std::string dumpPath(llvm::StringRef folder, unsigned number,
                     llvm::StringRef name);
/// Reads a dump. Returns null after a single error, in particular if a constant
/// is elided, missing, or not the one that was written. Adds the files that it
/// has read to `files`, if given.
mlir::OwningOpRef<mlir::ModuleOp>
readDump(llvm::StringRef path, mlir::MLIRContext *context,
         std::set<FileIdentity> *files = nullptr);

} // namespace fsdpc::pipeline
