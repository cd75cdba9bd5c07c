// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The short form of dumps: all of a module, in lines that a person can read.
//
// Modules of the model move into locations, the estimates of an op become one
// text, and long lines are broken. What is printed stays MLIR's syntax.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace fsdpc::pipeline {

/// Lines are broken after this many characters, where a break is possible.
constexpr size_t kDumpWidth = 160;

/// Rewrites a module, which is a copy made for printing.
void shorten(mlir::ModuleOp module);
/// Undoes shorten on a module that was read. Emits an error if a location does
/// not list modules as shorten does.
llvm::LogicalResult restore(mlir::ModuleOp module);

/// Breaks the lines of a printed module that exceed `width`. A line that goes
/// on is indented by eight more than its first, and by two or less otherwise.
/// The attributes of the module get a line each.
std::string brokenLines(llvm::StringRef text, size_t width = kDumpWidth);

} // namespace fsdpc::pipeline
