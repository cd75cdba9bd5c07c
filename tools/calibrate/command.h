// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `fsdpc calibrate`: measures this machine for --machine.
#pragma once

namespace fsdpc::calibrate {

/// Runs calibrate.py, which reads the command line `calibrate …`, in place of
/// this process. Returns the exit code if it cannot.
int runCalibrate(int argc, char **argv);

} // namespace fsdpc::calibrate
