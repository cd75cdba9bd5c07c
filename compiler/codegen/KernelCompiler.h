// Kernels to object files. Kernels are the module's functions marked
// `nn.kernel`: tensor functions of nn ops, the scalar programs of optimizers
// (`nn.optimizer`), and the rows of attention (`nn.rows`).
#pragma once

#include "compiler/codegen/TargetOptions.h"

#include "mlir/IR/BuiltinOps.h"

namespace fsdpc {

/// Decomposes the kernels' composites, and sets on each kernel `nn.extent` and
/// `nn.grain` (the outer range and its least piece worth a thread), and
/// `nn.stack` (bytes of its stack) where it needs memory of its own. Emits
/// an error where a kernel fits none of the templates. Optimizers carry
/// `nn.compute` (convert-to-rt): bf16 where they also write a copy.
llvm::LogicalResult prepareKernels(mlir::ModuleOp module,
                                   const TargetOptions &options);

/// Compiles every kernel, in parallel, to relocatable object files, returned as
/// bytes. Each defines functions `void NAME(int64_t begin, int64_t end,
/// void *const *buffers)`, NAME being the kernel's symbol (fsdpc_kernel of
/// runtime/include/fsdpc.h). They need libm. After prepareKernels.
llvm::FailureOr<std::vector<std::string>>
compileKernels(mlir::ModuleOp module, const TargetOptions &options);

} // namespace fsdpc
