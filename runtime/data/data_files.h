// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The files of one --data or --tokens: one file, a pattern, or a list of both.
#pragma once

#include "runtime/support/status.h"

#include <string>
#include <vector>

namespace fsdpc::runtime {

/// Returns the files that `text` names, in the order in which their samples
/// count: a vector per entry of the list, of one file or of a pattern's
/// matches. A file of exactly this name is the only one. Otherwise commas
/// separate files and patterns of the shell (*, ?, [...]), whose matches come
/// in the order of their names, byte by byte. Fails if a pattern matches
/// nothing. A name without a pattern is returned as it is, whether or not it
/// exists.
Result<std::vector<std::vector<std::string>>>
dataFiles(const std::string &text);

} // namespace fsdpc::runtime
