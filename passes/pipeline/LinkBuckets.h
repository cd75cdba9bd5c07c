// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Joins the modules of a program's buckets, which the phases have made each by
// itself from the same model with other values of --dim.
#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <string>
#include <vector>

namespace fsdpc::pipeline {

/// Moves the entry functions of all modules, with their kernels and constants,
/// into the first one, which stands for bucket 0. The modules must have passed
/// the phase `runtime`. Emits an error if they do not share what outlives a
/// microbatch (parameters, layouts, buffers, @update), or if data could not
/// choose among them. `names` has the name of each bucket.
llvm::LogicalResult
linkBuckets(std::vector<mlir::OwningOpRef<mlir::ModuleOp>> &modules,
            const std::vector<std::string> &names);

} // namespace fsdpc::pipeline
