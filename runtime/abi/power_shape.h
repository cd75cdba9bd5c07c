// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The matrices of --reduce-hook=power-sgd (runtime/abi/power_sgd.h), and how
// their products are summed. A header of its own, which the runtime's CUDA
// kernels include: nvcc compiles them in an older C++.
#pragma once

#include <cstdint>

namespace fsdpc {

/// How sums are formed, the same on all devices. Products of a matrix's rows
/// are f32 sums in powerRowLanes lanes, and those of a factor's vectors f64
/// sums in powerLanes: element i in lane i modulo that. The lanes are then
/// added in halves. A GPU has a thread for each of the latter.
constexpr int64_t powerRowLanes = 16, powerLanes = 256;

/// A vector that keeps less than this of its length depends on those before it:
/// what is left is rounding.
constexpr double powerDependent = 1e-6;

/// A parameter as a matrix: its first axis by all others.
struct PowerShape {
  int64_t rows = 1, columns = 1;

  /// Returns true if both factors together have less than half of the elements.
  /// Any other parameter is reduced as it is.
  bool isCompressed(int64_t rank) const {
    return 2 * (rows + columns) * rank < rows * columns;
  }
};

} // namespace fsdpc
