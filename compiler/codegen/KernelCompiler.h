// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles kernels to object files. Kernels are the functions marked
// `nn.kernel`: tensor functions of nn ops, the scalar programs of optimizers
// (`nn.optimizer`), and the rows of attention (`nn.rows`).
#pragma once

#include "compiler/codegen/KernelCache.h"
#include "compiler/codegen/TargetOptions.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc::codegen {

/// Adds passes that a group of kernels goes through.
using AddPasses = llvm::function_ref<void(mlir::OpPassManager &)>;

/// Sets `code` to that of a group after its passes. Returns an error message,
/// or "". Is called from several threads at once.
using TranslateGroup =
    llvm::function_ref<std::string(mlir::ModuleOp kernels, std::string &code)>;

/// Copies the kernels of `module` to groups, runs the passes that `lower` adds
/// on each group, then translates each. Returns their code in the order of the
/// kernels. Groups are modules in the context of `module`, which must have the
/// translations to LLVM IR that `translate` needs. `recipe` names all that
/// decides what `lower` and `translate` do. Takes from `cache` what it has, and
/// stores the rest there, unless it is null. The code does not depend on it.
llvm::FailureOr<std::vector<std::string>>
compileGroups(mlir::ModuleOp module, llvm::StringRef recipe, AddPasses lower,
              TranslateGroup translate, const KernelCache *cache);

/// Compiles every kernel for the host to relocatable object files, returned as
/// bytes. Each kernel must have a plan (plan-kernels). Each object defines
/// functions `void NAME(int64_t begin, int64_t end, void *const *buffers)`
/// (fsdpc_kernel in runtime/include/fsdpc.h), where NAME is the kernel's
/// symbol. They need libm. `cache` may be null.
llvm::FailureOr<std::vector<std::string>>
compileKernels(mlir::ModuleOp module, const TargetOptions &options,
               const KernelCache *cache = nullptr);

/// The same with other passes than emit-kernels: `emit` adds those that replace
/// each kernel with such a function. `recipe` names them; what they do may also
/// depend on `options`.
llvm::FailureOr<std::vector<std::string>>
compileKernels(mlir::ModuleOp module, const TargetOptions &options,
               llvm::StringRef recipe, AddPasses emit,
               const KernelCache *cache);

} // namespace fsdpc::codegen
