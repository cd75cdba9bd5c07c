// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The form of an exact sum between the ops of @update: of squares for the norm,
// over whole parameters, and along rows and columns.
#pragma once

namespace fsdpc {

/// f64 per sum: the digits of an exact sum (runtime/numeric/square_sum.h).
constexpr int normDigits = 16;

} // namespace fsdpc
