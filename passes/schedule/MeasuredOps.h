// Finds the ops of a function in the trace of a run of its program. The
// function's ops run on one stream in their order, so the n-th op that takes
// time is the n-th command of each microbatch.
#pragma once

#include "compiler/schedule/trace.h"
#include "passes/schedule/ScheduleIR.h"

#include <string>
#include <vector>

namespace fsdpc::passes {

struct MeasuredOp {
  int position;           // in ScheduleIR::ops
  std::vector<double> us; // of each microbatch of the trace
};

// Returns the ops that take time with what a trace has measured for each. The
// trace of a program with other ops is an error, which names the first
// difference.
Result<std::vector<MeasuredOp>> measuredOps(const ScheduleIR &ir,
                                            const schedule::Trace &trace);

} // namespace fsdpc::passes
