// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lowers grid kernels (gpu.func in arith, math, scf, vector, gpu and LLVM's
// loads and stores) to the LLVM and NVVM dialects.
#pragma once

#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::codegen::kernels {

/// Lowers each gpu.module of `module`. Run the expansions of math ops first
/// (ExpandMath.h, DeviceMath.h).
llvm::LogicalResult lowerToNVVM(mlir::ModuleOp module);

} // namespace fsdpc::codegen::kernels
