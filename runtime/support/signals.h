// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// nohup and background shells start a process with signals ignored. That choice
// stays: whoever takes a signal asks first.
#pragma once

namespace fsdpc {

/// Returns true if the process ignores the signal now.
bool isIgnored(int signal);

} // namespace fsdpc
