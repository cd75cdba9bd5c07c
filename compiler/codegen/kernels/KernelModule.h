// Compiles a few kernels, given as text, to one object file.
#pragma once

#include "compiler/codegen/TargetOptions.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace fsdpc::codegen::kernels {

inline constexpr llvm::StringLiteral kComputeAttr =
    "nn.compute"; // bf16: a copy

/// Returns a module with a function `void NAME(i64, i64, ptr)` for each kernel,
/// or null after it has emitted an error.
using EmitFunctions =
    llvm::function_ref<mlir::OwningOpRef<mlir::ModuleOp>(mlir::ModuleOp)>;

/// Parses kernels that consist of primitives, calls `emit`, lowers the result
/// and compiles it. Sets either `object` (the bytes of the file) or `error`.
/// Uses contexts of its own, so it is thread-safe if `emit` is.
void compileModule(llvm::StringRef source, const TargetOptions &options,
                   EmitFunctions emit, std::string &object, std::string &error);

/// The same for the host, with emitLoops as `emit`.
void compileModule(llvm::StringRef source, const TargetOptions &options,
                   std::string &object, std::string &error);

} // namespace fsdpc::codegen::kernels
