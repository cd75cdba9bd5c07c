// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The files that fsdpc needs beside itself. An installation may lack some, as
// after a copy that broke off; each command names what it misses.
#pragma once

#include "runtime/support/status.h"

#include <string>
#include <vector>

namespace fsdpc {

/// Returns what the installation in the folder `root` lacks, as paths from
/// `root`: the runtime for the host, what programs are linked with
/// ("lib/link/crti.o"), scripts ("lib/ckpt/torch_convert.py") and, outside of a
/// build folder, the headers of the C ABI. Without its list, the folder
/// lib/link lacks "lib/link/complete" only.
std::vector<std::string> missingParts(const std::string &root);

/// Fails if the installation of this process lacks a part in `folder`, which is
/// a path from its root ("lib/ckpt").
Status checkParts(const std::string &folder);

} // namespace fsdpc
