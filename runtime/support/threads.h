// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Threads that the system may refuse. The standard library throws then, and
// says no more than "Resource temporarily unavailable"; the errors here name
// the limits that apply.
#pragma once

#include "runtime/support/status.h"

#include <functional>
#include <string>
#include <thread>

namespace fsdpc {

/// Starts a thread that runs `work`. Returns 0, or the errno value with which
/// the system refused; `thread` then has no thread.
int tryThread(std::thread &thread, std::function<void()> work);

/// Returns the limits on threads and memory that apply to this process, as in
/// "limits: 64 processes and threads of this user (ulimit -u), …", or "" if the
/// system has no such limits.
std::string threadLimits();

/// Returns the error of a thread for `purpose` that the system refused with
/// `code`, such as EAGAIN.
Error threadError(int code, const std::string &purpose);

} // namespace fsdpc
