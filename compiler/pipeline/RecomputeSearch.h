// The search behind --recompute=auto.
#pragma once

#include "compiler/pipeline/Pipeline.h"

namespace fsdpc::pipeline {

/// Marks the units of `module` that the pass `recompute` shall compute again so
/// that a step keeps --memory-limit in the least time. `steps` are the passes
/// from `recompute` to the schedule; they run on copies of the module. Does
/// nothing without --recompute=auto and a limit. If no choice keeps the limit,
/// all units are marked, and the schedule reports the least peak.
llvm::LogicalResult chooseRecomputed(mlir::ModuleOp module,
                                     llvm::ArrayRef<PipelineStep> steps);

} // namespace fsdpc::pipeline
