// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What `fsdpc run` says about a job, on stderr between the job's own lines.
#pragma once

#include <string>

namespace fsdpc::run {

/// Prints "fsdpc run: TEXT" in a single write.
void note(const std::string &text);

} // namespace fsdpc::run
