// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lines on stderr for the user, and what happens if nobody reads them.
#pragma once

#include "runtime/support/status.h"

#include <functional>
#include <string>

namespace fsdpc::runtime {

/// Prints "error: message" to stderr in a single write, so that lines of
/// several ranks do not mix. An error without a message is another rank's to
/// print. Returns the error's code.
ExitCode printError(const Error &error);
/// Prints "warning: message" likewise.
void printWarning(const std::string &message);

/// Runs the body of a `main`, and returns its exit code. An exception of a
/// library ends the process with a line and not with a signal, whatever thread
/// throws it. A limit of file sizes is an error of a write, as a full disk is,
/// and no signal (SIGXFSZ).
int guarded(const std::function<int()> &body);

/// Ends the process with the code of a run that failed, from any thread. Prints
/// "error: reason" without allocating memory, and removes temporary folders.
[[noreturn]] void endWithoutMemory(const char *reason);

/// For whatever writes files, which are worth more than its messages: from now
/// on the process goes on if nobody reads what it prints (SIGPIPE).
void outliveReaders();

} // namespace fsdpc::runtime
