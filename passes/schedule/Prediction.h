// The step that the cost model expects of a scheduled module.
#pragma once

#include "passes/schedule/ScheduleIR.h"

namespace fsdpc::passes {

// Returns the µs that an update takes on the machine.
double predictUpdateUs(mlir::ModuleOp module, const schedule::Machine &machine);

// Writes `fsdp.predicted` on the module: the times of a microbatch and of an
// update at --plan-threads, for --plan-ranks and some other numbers of ranks.
// `ir` is the scheduled @microbatch, whose durations are those of the last
// number when this returns. The module must have its schedule and its
// communicated bytes.
void writePrediction(mlir::ModuleOp module, ScheduleIR &ir);

} // namespace fsdpc::passes
