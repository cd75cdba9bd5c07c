// Muon's updates of whole matrices on the host, for host_update.cpp.
#pragma once

#include "runtime/core/rank.h"

#include <cstdint>
#include <vector>

namespace fsdpc::runtime {

// Returns the rank that orthogonalises each member of the layout: the next
// largest goes to the rank that has the least to do. It depends on the members'
// shapes and the number of ranks only.
std::vector<int> ownersOf(const Layout &layout, int ranks);

// Returns the operand of a kernel that reads the updates of a member and counts
// elements from the rank's part on. `updates` lists those of all members,
// without the gaps of the layout.
void *updatesOf(const LayoutBuffers &buffers, const Layout &layout,
                size_t member, const void *updates);

} // namespace fsdpc::runtime
