// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `fsdpc top`: shows running and finished jobs by their logs.
#pragma once

#include "runtime/support/status.h"
#include "tools/completion/completion.h"
#include "tools/top/run_log.h"

#include <string>
#include <vector>

namespace fsdpc::top {

/// Returns a table with a line per log. `now` is the time since the epoch.
std::string tableOf(const std::vector<RunLog> &logs, double now);

/// Returns an SVG image of the curves of all logs: losses, norm, learning rate
/// and throughput over the steps.
std::string plotOf(const std::vector<RunLog> &logs);

/// Writes the image as a PNG, for which it runs rsvg-convert.
Status writePng(const std::string &path, const std::string &svg);

/// Describes the command for `fsdpc completion`.
completion::Command describeTop();

/// Reads the command line `top …`, of which argv[0] is "top", and runs it.
/// Returns the exit code.
int runTop(int argc, char **argv);

} // namespace fsdpc::top
