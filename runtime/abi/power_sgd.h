// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions that send factors of low rank in place of matrices
// (--reduce-hook=power-sgd; Vogels, Karimireddy and Jaggi, PowerSGD, 2019). The
// rules of what is compressed are those of torch's powerSGD_hook. Compiler and
// runtime compute the sizes by the functions below.
#pragma once

#include "runtime/abi/power_shape.h"

#include <cstdint>
#include <span>

namespace fsdpc {

constexpr int64_t mostPowerRank = 65536;

/// The other extents of an empty parameter may have a product beyond 64 bits.
inline PowerShape powerShapeOf(std::span<const int64_t> shape) {
  for (int64_t extent : shape)
    if (extent == 0)
      return {0, 0};
  PowerShape result;
  for (size_t axis = 0; axis < shape.size(); ++axis)
    (axis == 0 ? result.rows : result.columns) *= shape[axis];
  return result;
}

/// The elements of the two sums over ranks that a reduction of a layout takes.
struct PowerSizes {
  int64_t left = 0;  ///< of left factors, and of what is not compressed
  int64_t right = 0; ///< of right factors

  void add(PowerShape shape, int64_t rank) {
    if (shape.isCompressed(rank)) {
      left += shape.rows * rank;
      right += shape.columns * rank;
    } else {
      left += shape.rows * shape.columns;
    }
  }
};

/// Returns the elements of each rank's part of such a sum: whole lines of the
/// cache.
constexpr int64_t powerPart(int64_t elements, int64_t ranks) {
  constexpr int64_t line = 16;
  return ((elements + ranks - 1) / ranks + line - 1) / line * line;
}

/// Returns the bytes of such a sum with its padding.
constexpr int64_t powerBytes(int64_t elements, int64_t ranks) {
  return 4 * ranks * powerPart(elements, ranks);
}

} // namespace fsdpc
