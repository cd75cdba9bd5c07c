// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles all kernels of a program to its device code.
#pragma once

#include "compiler/codegen/KernelCompiler.h"
#include "compiler/codegen/TargetOptions.h"
#include "compiler/codegen/nvvm/Toolkit.h"
#include "compiler/options/Options.h"

#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::codegen {

/// Compiles the kernels to one fat binary, for the architectures of `gpus`.
/// Each must have a grid (plan-grids). Work files stay in `folder`. If `report`
/// is not empty, it names a file that gets a row per kernel and architecture
/// with its registers, stack, spills and shared memory. The cache
/// has PTX.
mlir::FailureOr<std::string>
compileDeviceCode(mlir::ModuleOp module, llvm::ArrayRef<fsdp::Gpu> gpus,
                  const CudaToolkit &toolkit, llvm::StringRef folder,
                  llvm::StringRef report, const KernelHelp &help);

/// Compiles the kernels to objects whose functions run blocks of threads on the
/// host (--target=cuda-emulation). Their grids must have one thread per block.
mlir::FailureOr<std::vector<std::string>>
compileEmulatedCode(mlir::ModuleOp module, const TargetOptions &processor,
                    const KernelHelp &help);

} // namespace fsdpc::codegen
