// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What `fsdpc --version` prints.
#pragma once

#include <string>

namespace fsdpc::driver {

/// Returns version and commit, the versions of the libraries that decide what a
/// program computes, and the targets whose runtimes are installed, one per
/// line.
std::string versionText();

} // namespace fsdpc::driver
