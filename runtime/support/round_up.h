// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sizes of memory and of blocks, which the compiler and the runtime round
// alike. In C++17, as kernels for GPUs include it.
#pragma once

#include <type_traits>

namespace fsdpc {

/// Returns the smallest multiple of `step` (over 0) that is at least `value`,
/// which is not negative.
template <typename T> constexpr T roundUp(T value, std::common_type_t<T> step) {
  return (value + step - 1) / step * step;
}

/// The same for the 64 bytes of a cache line.
template <typename T> constexpr T roundUp64(T bytes) {
  return roundUp(bytes, 64);
}

} // namespace fsdpc
