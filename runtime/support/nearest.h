// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Suggestions for misspelt names, for messages of fsdpc and of its programs.
#pragma once

#include <string>
#include <vector>

namespace fsdpc {

/// Returns the candidate with the fewest edits from `text`, or an empty string
/// if none is close.
std::string nearest(const std::string &text,
                    const std::vector<std::string> &candidates);
/// Returns "; did you mean 'x'?", or an empty string if no candidate is close.
std::string meant(const std::string &text,
                  const std::vector<std::string> &candidates);

} // namespace fsdpc
