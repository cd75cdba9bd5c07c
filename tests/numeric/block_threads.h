// Runs a grid of threads on the host: a thread of the operating system for each
// of a block's.
#pragma once

#include "compiler/codegen/simt/HostThreads.h"

#include <cstdint>
#include <functional>

namespace fsdpc::testing {

/// Calls `body` for blocks [begin, end), one after the other, on each of
/// `threads` threads, for which the functions of HostThreads.h hold meanwhile.
void runBlocks(int64_t threads, int64_t begin, int64_t end,
               const std::function<void(int64_t)> &body);

} // namespace fsdpc::testing
