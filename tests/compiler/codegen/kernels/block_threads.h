// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a grid of threads on the host, with one thread of the operating system
// per thread of a block.
#pragma once

#include "compiler/codegen/simt/HostThreads.h"

#include <cstdint>
#include <functional>

namespace fsdpc::testing {

/// Calls `body` for blocks [begin, end), one after the other, on each of
/// `threads` threads. Meanwhile the functions of HostThreads.h work on these
/// threads.
void runBlocks(int64_t threads, int64_t begin, int64_t end,
               const std::function<void(int64_t)> &body);

} // namespace fsdpc::testing
