// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Large memory of this process, in whole pages.
#pragma once

#include <cstddef>

namespace fsdpc {

/// Returns zeroed memory of `bytes` bytes, or null if there is none left. From
/// 4 MiB on it is aligned to huge pages and requests them. The kernel backs a
/// page when it is touched first. The caller unmaps it.
void *mapPages(size_t bytes);
/// Gives memory of mapPages back, with the number of bytes that it was asked
/// for.
void unmapPages(void *memory, size_t bytes);

} // namespace fsdpc
