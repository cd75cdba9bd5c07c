// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `fsdpc run`: compiles a model if needed, starts the program under a launcher,
// watches the job and starts it again after a fault.
#pragma once

namespace fsdpc::run {

/// Reads the command line `run …`, of which argv[0] is "run", and runs the job
/// to its end. Returns the job's exit code.
int runCommand(int argc, char **argv);

} // namespace fsdpc::run
