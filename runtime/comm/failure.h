// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The end of a rank that failed: one line on stderr that begins with "error:",
// then the abort function that the runtime has set (MPI_Abort, or the end of
// the process). Streams, library calls and communicators end ranks this way,
// because they run on threads that have no caller to report to. So do the
// functions of the C ABI, whose caller is compiled code. Every other function
// returns a Status or Result (runtime/support/status.h).
#pragma once

#include "runtime/support/status.h"

#include <functional>
#include <string>

namespace fsdpc::runtime {

/// Sets the function that fail() calls after printing, with the error's code.
/// By default the process exits with that code.
void setAbort(std::function<void(ExitCode code)> abort);

/// Sets what says where this rank is ("rank 0 is at step 3: …"), for the line
/// about a rank that was lost. Called on any thread.
void setWhereabouts(std::function<std::string()> where);
/// Returns "; " and that text, or an empty string.
std::string whereabouts();

/// Sets what writes this rank's flight record. Called on any thread.
void setRecord(std::function<void()> write);
/// Writes that record, if a machine or link has failed; waits for it for two
/// seconds at most. fail() does so by itself.
void leaveRecord(ExitCode code);

/// Prints "error: message" and ends the job with the error's code. If several
/// threads fail, only the first prints; the others sleep until the process
/// ends.
[[noreturn]] void fail(const Error &error);

} // namespace fsdpc::runtime
