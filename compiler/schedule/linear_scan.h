// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The packer's fast path; see linear_scan.cpp.
#pragma once

#include "compiler/schedule/packer.h"

namespace fsdpc::schedule {

/// Returns offsets found by allocating and freeing in the order of positions,
/// or in reverse, in the order of the intervals and in bytes. No interval may
/// have a fixed offset. O(n log n). A heuristic: the packer tries both orders,
/// and other ways if neither comes near the lower bound.
std::vector<int64_t> linearScan(const std::vector<Interval> &intervals,
                                bool backwards);

} // namespace fsdpc::schedule
