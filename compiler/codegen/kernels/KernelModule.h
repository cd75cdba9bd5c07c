// A few kernels as text to one object file.
#pragma once

#include "compiler/codegen/TargetOptions.h"

namespace fsdpc::kernels {

inline constexpr llvm::StringLiteral kOptimizerAttr = "nn.optimizer";
inline constexpr llvm::StringLiteral kRowsAttr = "nn.rows"; // of attention
inline constexpr llvm::StringLiteral kComputeAttr =
    "nn.compute"; // bf16: a copy
inline constexpr llvm::StringLiteral kExtentAttr = "nn.extent";
inline constexpr llvm::StringLiteral kGrainAttr = "nn.grain";
inline constexpr llvm::StringLiteral kStackAttr = "nn.stack";

/// Parses kernels of primitives, emits, lowers and compiles them. Sets `object`
/// to the file's bytes, or `error`. Thread-safe.
void compileModule(llvm::StringRef source, const TargetOptions &options,
                   std::string &object, std::string &error);

} // namespace fsdpc::kernels
