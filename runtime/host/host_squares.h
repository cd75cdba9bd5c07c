// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of squares on the host, for norms.
#pragma once

#include "runtime/numeric/square_sum.h"

#include <cstdint>

namespace fsdpc::runtime {

/// SquareSum::addSquares with vectors: adds the squares of a part of a member
/// that begins with a group, and carries.
void addSquares(const float *values, int64_t count, SquareSum &sum);

} // namespace fsdpc::runtime
