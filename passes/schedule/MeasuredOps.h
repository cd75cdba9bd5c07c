// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
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
  int position;           ///< in ScheduleIR::ops
  std::vector<double> us; ///< of each microbatch of the trace
};

struct MeasuredTrace {
  schedule::Trace trace;
  std::vector<MeasuredOp> ops; ///< those that take time
};

/// Reads the file of a trace and finds the ops in it. A file that cannot be
/// read is an error, and so is the trace of a program with other ops, whose
/// first difference the error names. Errors are the ends of sentences about the
/// file.
Result<MeasuredTrace> readTrace(const ScheduleIR &ir, llvm::StringRef path);

} // namespace fsdpc::passes
