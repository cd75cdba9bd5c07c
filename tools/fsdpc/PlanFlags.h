// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The flags that `fsdpc simulate` and `fsdpc tune` take besides a compile's.
#pragma once

#include "tools/fsdpc/CommandLine.h"

namespace CLI {
class App;
}

namespace fsdpc::driver {

/// Adds the flags of `line.command`, which write to `line`.
void addPlanFlags(CLI::App &app, CommandLine &line);

/// Lets --ranks stand for the options of the table that it decides. The options
/// of `line` have been set.
void setRanks(CommandLine &line);

} // namespace fsdpc::driver
