// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The threads of a rank. The standard library throws if the system has no more
// threads, and ends the process without a word if a thread's function throws.
// Here both end the job with an error.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace fsdpc::runtime {

/// Runs `work`. What it throws ends the job with an error, as fail() does.
void runOrFail(const std::function<void()> &work);

/// Starts a thread that runs `work`, as runOrFail does. If the system has no
/// more threads, the job ends with an error that names `purpose` and the
/// limits.
std::thread startThread(const std::string &purpose, std::function<void()> work);

} // namespace fsdpc::runtime
