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

#include <functional>

namespace fsdpc::codegen {

/// Adds passes that a group of kernels goes through.
using AddPasses = llvm::function_ref<void(mlir::OpPassManager &)>;

/// Sets `code` to that of a group after its passes. Returns an error message,
/// or "". Is called from several threads at once.
using TranslateGroup =
    llvm::function_ref<std::string(mlir::ModuleOp kernels, std::string &code)>;

/// What a compile of kernels uses. Nothing here changes its result.
struct KernelHelp {
  /// Code of earlier compiles; null: all kernels are compiled. Not owned.
  const KernelCache *cache = nullptr;
  /// Called when a part of code generation begins, with its name for --timing;
  /// may be null. A part may be continued.
  std::function<void(llvm::StringRef part)> begin;

  void beginPart(llvm::StringRef part) const {
    if (begin)
      begin(part);
  }
};

/// Copies the kernels of `module` to groups, runs the passes that `lower` adds
/// on each group, then translates each. Returns their code in the order of the
/// kernels. Groups are modules in the context of `module`, which must have the
/// translations to LLVM IR that `translate` needs. `recipe` names all that
/// decides what `lower` and `translate` do.
llvm::FailureOr<std::vector<std::string>>
compileGroups(mlir::ModuleOp module, llvm::StringRef recipe, AddPasses lower,
              TranslateGroup translate, const KernelHelp &help);

/// Compiles every kernel for the host to relocatable object files, returned as
/// bytes. Each kernel must have a plan (plan-kernels). Each object defines
/// functions `void NAME(int64_t begin, int64_t end, void *const *buffers)`
/// (fsdpc_kernel in runtime/include/fsdpc.h), where NAME is the kernel's
/// symbol. They need libm.
llvm::FailureOr<std::vector<std::string>>
compileKernels(mlir::ModuleOp module, const TargetOptions &options,
               const KernelHelp &help = {});

/// The same with other passes than emit-kernels: `emit` adds those that replace
/// each kernel with such a function. `recipe` names them; what they do may also
/// depend on `options`.
llvm::FailureOr<std::vector<std::string>>
compileKernels(mlir::ModuleOp module, const TargetOptions &options,
               llvm::StringRef recipe, AddPasses emit, const KernelHelp &help);

} // namespace fsdpc::codegen
