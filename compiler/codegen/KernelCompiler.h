// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles kernels to object files. Kernels are the functions marked
// `nn.kernel`: tensor functions of nn ops, the scalar programs of optimizers
// (`nn.optimizer`), and the rows of attention (`nn.rows`).
#pragma once

#include "compiler/codegen/TargetOptions.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc::codegen {

/// Adds passes that a group of kernels goes through.
using AddPasses = llvm::function_ref<void(mlir::OpPassManager &)>;

/// Translates group number `group` after its passes. Returns an error message,
/// or "". Is called from several threads at once.
using TranslateGroup =
    llvm::function_ref<std::string(size_t group, mlir::ModuleOp kernels)>;

/// Copies the kernels of `module` to groups, runs the passes that `lower` adds
/// on each group, then translates each. Groups are modules in the context of
/// `module` and are numbered from 0 to countGroups - 1. The context must have
/// the translations to LLVM IR that `translate` needs.
llvm::LogicalResult compileGroups(mlir::ModuleOp module, AddPasses lower,
                                  TranslateGroup translate);
/// Returns the number of groups that compileGroups makes of the kernels.
size_t countGroups(mlir::ModuleOp module);

/// Compiles every kernel for the host to relocatable object files, returned as
/// bytes in the order of the groups. Each kernel must have a plan
/// (plan-kernels). Each object defines functions `void NAME(int64_t begin,
/// int64_t end, void *const *buffers)` (fsdpc_kernel in
/// runtime/include/fsdpc.h), where NAME is the kernel's symbol. They need libm.
llvm::FailureOr<std::vector<std::string>>
compileKernels(mlir::ModuleOp module, const TargetOptions &options);

/// The same with other passes than emit-kernels: `emit` adds those that replace
/// each kernel with such a function.
llvm::FailureOr<std::vector<std::string>>
compileKernels(mlir::ModuleOp module, const TargetOptions &options,
               AddPasses emit);

} // namespace fsdpc::codegen
