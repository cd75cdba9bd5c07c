// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `--report`: a page about a plan that a browser shows without a network.
#pragma once

#include "tools/plan/Plan.h"

namespace fsdpc::plan {

/// Writes the page to `path`. Its title names the file of the model. `trace`,
/// if it is not empty, is the file of `--trace` of a run of this program; that
/// of another one is an error.
llvm::LogicalResult writeReport(Plan &plan, const Estimate &estimate,
                                llvm::StringRef model, llvm::StringRef path,
                                llvm::StringRef trace);

/// Reads a trace and returns what the page shows of it: the commands of one
/// microbatch on their streams, and the measured time of each op of the plan.
mlir::FailureOr<llvm::json::Object> readTrace(const Plan &plan,
                                              llvm::StringRef path);

} // namespace fsdpc::plan
