// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Averages of squares along rows and columns of parameters. host_update.cpp
// multiplies them for the elements that a kernel is about to read.
#pragma once

#include "runtime/core/rank.h"

#include <cstdint>
#include <vector>

namespace fsdpc::runtime {

/// Returns the number of rows and columns of a layout's members.
int64_t countOf(const std::vector<MemberFactors> &members);

/// Writes the averages of squares of the elements [from, to) of a member to
/// `values`; positions are in elements of the layout. `factors` are the
/// layout's. Returns the operand of a kernel that counts elements from the
/// rank's part on.
void *variancesOf(const LayoutBuffers &buffers, const Member &member,
                  size_t index, const double *factors, int64_t from, int64_t to,
                  float *values);

} // namespace fsdpc::runtime
