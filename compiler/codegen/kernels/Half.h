// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conversions between f32 and the 16-bit float types, for scalars and vectors.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"

namespace fsdpc::codegen::kernels {

/// Returns the bits (i16) of f32 lanes rounded to `half` (bf16 or f16), to
/// nearest, ties to even. Set `hardwareBf16` only if the processor has an
/// instruction for bf16; all targets have one for f16.
mlir::Value roundToHalfBits(mlir::OpBuilder &builder, mlir::Location loc,
                            mlir::Value value, mlir::Type half,
                            bool hardwareBf16);

/// Returns the f32 lanes that have the given bits (i16) of `half`. This is
/// exact.
mlir::Value widenHalfBits(mlir::OpBuilder &builder, mlir::Location loc,
                          mlir::Value bits, mlir::Type half);

/// Writes the roundings to bf16 beneath `root` that a program has written
/// itself, such as a user's optimizer, as integer arithmetic (roundToHalfBits).
/// For processors without such an instruction: LLVM would call a function of
/// the compiler's library, which not every version has.
void expandRoundingToBf16(mlir::Operation *root);

} // namespace fsdpc::codegen::kernels
