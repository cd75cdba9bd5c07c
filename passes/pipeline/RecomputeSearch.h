// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The search behind --recompute=auto.
#pragma once

#include "passes/pipeline/Pipeline.h"

namespace fsdpc::pipeline {

/// Marks the ops of `module` that the pass `recompute` shall compute again so
/// that a step keeps --memory-limit in the least time. `steps` are the passes
/// from `recompute` to the one before the schedule; they run on copies of the
/// module. Does nothing without --recompute=auto and a limit, or if ops are
/// marked already. If no choice keeps the limit, the one of the least peak
/// found is marked, which the schedule then reports.
llvm::LogicalResult chooseRecomputed(mlir::ModuleOp module,
                                     llvm::ArrayRef<PipelineStep> steps);

} // namespace fsdpc::pipeline
