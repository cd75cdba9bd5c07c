// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Estimates the time that --persist saves: how long a microbatch would wait for
// gathers if nothing were kept whole for it.
#pragma once

#include "passes/schedule/ScheduleIR.h"

namespace fsdpc::passes {

/// Returns the problem of `function` in which each segment also gathers what it
/// reads of the layouts that --persist keeps whole. `ir` is the function's.
schedule::Problem gatherPersistent(mlir::ModuleOp module,
                                   mlir::func::FuncOp function,
                                   const ScheduleIR &ir);

} // namespace fsdpc::passes
