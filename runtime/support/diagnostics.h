// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lines on stderr for the user, and what happens if nobody reads them.
#pragma once

#include "runtime/support/status.h"

#include <string>

namespace fsdpc::runtime {

/// Prints "error: message" to stderr in a single write, so that lines of
/// several ranks do not mix. An error without a message is another rank's to
/// print. Returns the error's code.
ExitCode printError(const Error &error);
/// Prints "warning: message" likewise.
void printWarning(const std::string &message);

/// From now on the process goes on if nobody reads what it prints, as with
/// `PROGRAM 2>&1 | head`: for whatever writes files, which are worth more than
/// its messages. What only prints ends by SIGPIPE, as other tools do.
void outliveReaders();

} // namespace fsdpc::runtime
