// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `fsdpc diff A B`: how two schedules differ.
#pragma once

namespace fsdpc::plan {

/// Runs the command with its arguments. Returns the exit code: 0 if the
/// schedules are equal, 1 if they differ, 2 after an error.
int runDiff(int argc, char **argv);

} // namespace fsdpc::plan
