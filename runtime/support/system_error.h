// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of system calls, from the numbers that they leave in errno.
#pragma once

#include "runtime/support/status.h"

#include <string>

namespace fsdpc {

/// Returns the text of an errno value, on any thread.
std::string systemText(int code);

/// Returns an error "what: text", or the text alone if `what` is empty. It is
/// wrong input if the number says that what was named does not exist, is of
/// another kind, or may not be used by this user; else the run failed, as on a
/// disk that is full or a machine that does not answer.
Error systemError(int code, const std::string &what = "");

} // namespace fsdpc
