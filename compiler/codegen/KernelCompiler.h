// Compiles kernels to object files. Kernels are the functions marked
// `nn.kernel`: tensor functions of nn ops, the scalar programs of optimizers
// (`nn.optimizer`), and the rows of attention (`nn.rows`).
#pragma once

#include "compiler/codegen/TargetOptions.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc::codegen {

/// Calls `compile(group, text)` for each group of kernels, from several threads
/// at once; groups are numbered from 0 to countGroups - 1. `compile` returns an
/// error message, or "" on success. Emits the first error at the module.
llvm::LogicalResult
compileGroups(mlir::ModuleOp module,
              llvm::function_ref<std::string(size_t, llvm::StringRef)> compile);
// The number of groups that compileGroups makes of the kernels.
size_t countGroups(mlir::ModuleOp module);

/// Returns the objects of all groups, in the order of the groups. `compile`
/// sets either `object` (the bytes of the file) or `error`, and must be
/// thread-safe.
using CompileObject = llvm::function_ref<void(
    llvm::StringRef source, std::string &object, std::string &error)>;
llvm::FailureOr<std::vector<std::string>> compileKernels(mlir::ModuleOp module,
                                                         CompileObject compile);

/// Compiles every kernel for the host to relocatable object files, returned as
/// bytes. Each kernel must have a plan (plan-kernels). Each object defines
/// functions `void NAME(int64_t begin, int64_t end, void *const *buffers)`
/// (fsdpc_kernel in runtime/include/fsdpc.h), where NAME is the kernel's
/// symbol. They need libm.
llvm::FailureOr<std::vector<std::string>>
compileKernels(mlir::ModuleOp module, const TargetOptions &options);

} // namespace fsdpc::codegen
