// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns grid kernels in the NVVM dialect into PTX.
#pragma once

#include "compiler/codegen/nvvm/GpuArch.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace fsdpc::codegen::kernels {

/// Registers what the translation to LLVM IR needs in the context.
void registerGpuTranslations(mlir::DialectRegistry &registry);

/// Compiles the gpu.module of `module` at -O3 and sets `ptx` to its text.
/// Returns an error message, or "".
std::string emitPtx(mlir::ModuleOp module, const GpuArch &arch,
                    std::string &ptx);

/// Joins several PTX modules for one architecture into one. Their symbols must
/// differ.
std::string joinPtx(llvm::ArrayRef<std::string> modules);

} // namespace fsdpc::codegen::kernels
