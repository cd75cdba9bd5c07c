// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All commands of fsdpc with their flags, for `fsdpc completion`.
#pragma once

#include "tools/completion/completion.h"

namespace fsdpc::driver {

/// Returns the commands that the tables of flags describe. `fsdpc calibrate` is
/// a script, and has only its name here.
std::vector<completion::Command> allCommands();

} // namespace fsdpc::driver
