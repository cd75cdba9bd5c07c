// Compiles a few kernels, given as text, to one object file.
#pragma once

#include "compiler/codegen/TargetOptions.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"

namespace fsdpc::codegen::kernels {

inline constexpr llvm::StringLiteral kComputeAttr =
    "nn.compute"; // bf16: a copy

/// Registers the dialects of kernels, from nn ops down to the LLVM dialect.
void registerKernelDialects(mlir::DialectRegistry &registry);

/// Adds the passes that replace each kernel with a function `void NAME(i64,
/// i64, ptr)`.
using AddPasses = llvm::function_ref<void(mlir::OpPassManager &)>;

/// Parses kernels that have plans, runs the passes that `emit` adds, lowers the
/// result and compiles it. Sets either `object` (the bytes of the file) or
/// `error`. Uses contexts of its own, so it is thread-safe if `emit` is.
void compileModule(llvm::StringRef source, const TargetOptions &options,
                   AddPasses emit, std::string &object, std::string &error);

/// The same for the host, with emit-kernels.
void compileModule(llvm::StringRef source, const TargetOptions &options,
                   std::string &object, std::string &error);

} // namespace fsdpc::codegen::kernels
