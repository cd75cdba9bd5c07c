// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The last steps of a kernel: the LLVM dialect, LLVM's optimiser, an object.
#pragma once

#include "compiler/codegen/TargetOptions.h"

#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::codegen::kernels {

/// Registers what the translation to LLVM IR needs in the context.
void registerTranslations(mlir::DialectRegistry &registry);

/// Lowers scf, arith, math, vector, func and cf to the LLVM dialect.
llvm::LogicalResult lowerToLLVM(mlir::ModuleOp module);

/// Compiles a module of the LLVM dialect at -O3 and sets `object` to the bytes
/// of the file. Returns an error message, or "" on success.
std::string emitObject(mlir::ModuleOp module, const TargetOptions &options,
                       std::string &object);

} // namespace fsdpc::codegen::kernels
