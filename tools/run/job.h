// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The life of a job: start, watch, start again.
#pragma once

#include "tools/run/arguments.h"

#include <string>

namespace fsdpc::run {

/// Returns true if a job that ended with this code may succeed when it is
/// started again (docs/jobs.md).
bool startsAgain(int code);

/// Returns the step of the newest checkpoint in a folder, or -1.
int64_t newestCheckpoint(const std::string &folder);

/// Runs the program to its end, with as many restarts as the arguments allow.
/// Returns its exit code, or an error if it could not be started.
Result<int> runJob(const Arguments &arguments, const std::string &program);

} // namespace fsdpc::run
