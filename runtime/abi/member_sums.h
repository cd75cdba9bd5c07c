// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums over the elements of a parameter, which kernels and the runtime compute
// together (fsdpc_member_sums). Members and shards begin at multiples of the
// group, so no group is cut among ranks and its sum has the same bits under
// every strategy.
#pragma once

#include <cstdint>

namespace fsdpc {

/// Elements whose sum a kernel computes, in a fixed order. The runtime adds up
/// the groups.
constexpr int64_t sumGroup = 16;
/// Sums per member that a program may yield at most.
constexpr int32_t mostSums = 8;

} // namespace fsdpc
