// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The scalar program of an optimizer on a grid of threads. Each block updates
// one segment of a shard: a run of elements of one parameter, whose rates they
// share.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace fsdpc::codegen::simt {

/// Returns the number of buffers of an optimizer's kernel. After those of its
/// program come: the bf16 copy of the parameter, if there is one; `scale`
/// (f32); the segments (int64[3] each: from, to, member); the rates (double[4]
/// per member: lr times the member's rate, step from 1, the member's decay,
/// unused). Last, if the program takes sums, these (a double per member and
/// sum); if its results are summed, doubles that the kernel writes: a sum for
/// each result of each 16 elements, from 256 of these on per block.
int64_t optimizerBuffers(mlir::func::FuncOp program);

/// Builds the body of the function; block b takes segment b. A segment counts
/// elements of the rank's part, whose buffers are aligned to 16 bytes.
void emitOptimizer(mlir::OpBuilder &builder, mlir::func::FuncOp program,
                   mlir::gpu::GPUFuncOp function, int64_t blockThreads,
                   bool roundsBf16);

} // namespace fsdpc::codegen::simt
