// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sizes of memory and of blocks, which the compiler and the runtime round
// alike.
#pragma once

#include <cstdint>

namespace fsdpc {

/// Returns the smallest multiple of `step` (over 0) that is at least `value`,
/// which is not negative.
constexpr int64_t roundUp(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

/// The same for the 64 bytes of a cache line.
constexpr int64_t roundUp64(int64_t bytes) { return roundUp(bytes, 64); }

} // namespace fsdpc
