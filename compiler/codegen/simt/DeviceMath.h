// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Math functions that the host takes from its C library, as arithmetic for
// GPUs.
#pragma once

#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::codegen::simt {

/// Replaces sin, cos and pow (f32 and f64) and exp, expm1, log, log1p and tanh
/// (f64) with arithmetic in f64, within about 4 ulp. The error is absolute, not
/// relative, for tanh near 0 and for sin and cos of large arguments. Emits an
/// error for erf on f64.
llvm::LogicalResult expandDeviceMath(mlir::ModuleOp module);

} // namespace fsdpc::codegen::simt
