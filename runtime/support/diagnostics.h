// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lines on stderr for the user.
#pragma once

#include <string>

namespace fsdpc::runtime {

/// Prints "error: message" to stderr in a single write, so that lines of
/// several ranks do not mix.
void printError(const std::string &message);
/// Prints "warning: message" likewise.
void printWarning(const std::string &message);

} // namespace fsdpc::runtime
