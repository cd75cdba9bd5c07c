// The step that the cost model expects of a scheduled module.
#pragma once

#include "passes/schedule/ScheduleIR.h"

namespace fsdpc::passes {

// Returns by how many µs an update lengthens a step on the machine. `ir` is the
// scheduled @microbatch with the machine's durations, beside which a GPU
// gathers what the update has changed.
double predictUpdateUs(mlir::ModuleOp module, const ScheduleIR &ir,
                       const schedule::Machine &machine);

// Writes `fsdp.predicted` on the module: the times of a microbatch and of an
// update at --plan-threads, for --plan-ranks and some other numbers of ranks.
// `ir` is the scheduled @microbatch, whose durations are those of the last
// number when this returns. The module must have its schedule and its
// communicated bytes.
void writePrediction(mlir::ModuleOp module, ScheduleIR &ir);

} // namespace fsdpc::passes
