// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Converts values to blocks of 8 or 4 bits (runtime/abi/blocks.h) and back. All
// host backends share this arithmetic.
//
// A block's scale is its largest magnitude over the largest code, so that the
// largest element is exact up to rounding in f32. A block of which an element
// is not finite becomes NaN, and one whose elements are all below 2^-100
// becomes zero: no step then depends on whether a thread flushes denormals.
#pragma once

#include "runtime/abi/blocks.h"
#include "runtime/numeric/wire_type.h"

#include <cstddef>
#include <cstdint>

namespace fsdpc::runtime {

/// Blocks of one type in a row. Each has its codes, of 4 bits the even
/// element's in the low half of a byte, and then its scale.
struct Blocks {
  char *bytes; ///< at a multiple of 4
  BlockType type;

  /// Returns the blocks behind the first `count` ones.
  Blocks from(int64_t count) const {
    return {bytes + count * blockBytes(type), type};
  }
  uint8_t *codes() const { return reinterpret_cast<uint8_t *>(bytes); }
  float &scale() const {
    return *reinterpret_cast<float *>(bytes + blockBytes(type) - sizeof(float));
  }
};

/// Converts `elements` values, and pads the last of `count` blocks with zeros.
/// There may be fewer values than the blocks hold, and none at all.
void toBlocks(const void *values, WireType type, int64_t elements,
              Blocks blocks, int64_t count);

/// Writes the first `elements` values of the blocks in the type.
void fromBlocks(Blocks blocks, int64_t elements, WireType type, void *values);

/// Adds `count` whole blocks, widened to f32, to `to`; or writes them, if the
/// sum begins with them.
void sumBlocks(Blocks blocks, int64_t count, bool begins, float *to);

} // namespace fsdpc::runtime
