// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rt program as an LLVM module: `main`, the manifest, constants, and the
// two entry functions as straight lines of calls of the C ABI.
#pragma once

#include "compiler/codegen/ProgramTables.h"

#include "mlir/Support/LLVM.h"

#include <memory>

namespace llvm {
class LLVMContext;
class Module;
} // namespace llvm

namespace fsdpc::codegen {

/// Builds the LLVM module in `context`. `manifest` is the manifest's JSON text.
/// `deviceCode` is the fat binary of a CUDA program, whose kernels have no host
/// code, and empty for other targets, whose kernels are declared here and
/// defined by the objects of compileKernels.
std::unique_ptr<llvm::Module> emitProgram(mlir::ModuleOp module,
                                          ProgramTables &tables,
                                          llvm::StringRef manifest,
                                          llvm::StringRef deviceCode,
                                          llvm::LLVMContext &context);

} // namespace fsdpc::codegen
