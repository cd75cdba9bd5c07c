// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Updates of whole matrices on the host, for host_update.cpp.
#pragma once

#include "runtime/core/rank.h"

#include <cstddef>

namespace fsdpc::runtime {

/// Returns the operand of a kernel that reads the updates of a member and
/// counts elements from the rank's part on. `updates` lists those of all
/// members, without the gaps of the layout.
void *updatesOf(const LayoutBuffers &buffers, const Layout &layout,
                size_t member, const void *updates);

} // namespace fsdpc::runtime
