// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns grids of threads into functions that the host calls.
#pragma once

#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::codegen::simt {

/// Replaces each gpu.func that emit-grids made with a function `void
/// NAME(int64_t begin, int64_t end, void *const *buffers)` that runs what one
/// thread does, for the blocks [begin, end). With one thread per block, that is
/// the whole kernel; with more, the function calls those of HostThreads.h.
void lowerGridToHost(mlir::ModuleOp module);

} // namespace fsdpc::codegen::simt
