// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The arithmetic of blocks of 8 and 4 bits (runtime/abi/blocks.h), element by
// element. The host's loops (blocks.h) and the runtime's own CUDA kernels
// compile the same functions, so that both write the same bits.
#pragma once

#include "runtime/abi/blocks.h"
#include "runtime/numeric/float8.h"

#include <cmath>

namespace fsdpc::runtime {

/// Returns the code of a block's largest magnitude.
FSDPC_SHARED inline float largestCode(BlockType type) {
  return type == BlockType::I4 ? 7 : type == BlockType::F8E4M3 ? 448 : 127;
}

/// The scale of a block, and the factor by which its elements are multiplied
/// before they are rounded to codes; 0: all codes are zero.
struct BlockScale {
  float scale, factor;
};

/// `largest` has the bits of the block's largest magnitude.
FSDPC_SHARED inline BlockScale blockScale(uint32_t largest, float code) {
  constexpr uint32_t infinity = 0x7f800000;
  constexpr float least = 0x1p-100f; // of a block that is not zero
  float magnitude;
  memcpy(&magnitude, &largest, sizeof magnitude);
  if (largest >= infinity)
    return {NAN, 0};
  if (magnitude < least)
    return {0, 0};
  return {magnitude / code, code / magnitude};
}

/// Round an element that has been multiplied by the factor. Adding 1.5 · 2^23
/// rounds to whole numbers, ties to even.
FSDPC_SHARED inline uint8_t roundToI8(float scaled) {
  float shifted = scaled + 12582912;
  uint32_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  return uint8_t(bits);
}
FSDPC_SHARED inline uint8_t roundToF8(float scaled) {
  return narrow<Float8>(scaled).bits;
}
/// Returns two codes of four bits in a byte, given as numbers from -7 to 7.
FSDPC_SHARED inline uint8_t joinI4(uint8_t even, uint8_t odd) {
  return uint8_t((even & 15) | odd << 4);
}

/// Widen a code. The result still has to be multiplied by the scale.
FSDPC_SHARED inline float widenI8(uint8_t code) { return float(int8_t(code)); }
FSDPC_SHARED inline float widenF8(uint8_t code) { return widen(Float8{code}); }
FSDPC_SHARED inline float evenOfI4(uint8_t codes) {
  return float(int8_t(uint8_t(codes << 4)) >> 4);
}
FSDPC_SHARED inline float oddOfI4(uint8_t codes) {
  return float(int8_t(codes) >> 4);
}

} // namespace fsdpc::runtime
