// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Expands math ops that LLVM would turn into slow calls, or calls of functions
// that do not exist for vectors.
#pragma once

#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::codegen::kernels {

/// Replaces exp, expm1, log, log1p, tanh and erf on f32 with arithmetic of at
/// most 2 ulp of error. Scalars get the same arithmetic as vectors, so that the
/// tail of a loop has the bits of its body. Other functions, and f64, become
/// calls of libm, one per lane.
void expandMath(mlir::ModuleOp module);

} // namespace fsdpc::codegen::kernels
