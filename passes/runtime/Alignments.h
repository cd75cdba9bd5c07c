// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The alignments of the addresses that kernels are launched with.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/MapVector.h"

namespace fsdpc::passes {

/// Returns, for each launched kernel and each of its buffers, the largest
/// number of bytes, up to those of the widest load of a GPU, that divides the
/// address in every launch. The beginning of each memory space is aligned, so
/// offsets decide.
llvm::MapVector<mlir::StringAttr, llvm::SmallVector<int64_t>>
launchAlignments(mlir::ModuleOp module);

} // namespace fsdpc::passes
