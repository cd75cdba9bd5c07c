// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// IEEE half precision (f16) outside of libraries, like bf16 (small_float.h).
#pragma once

#include "runtime/numeric/small_float.h"

namespace fsdpc::runtime {

/// 1 sign bit, 5 bits of exponent (bias 15), 10 of mantissa.
struct Float16 {
  uint16_t bits;
};

FSDPC_SHARED inline float widen(Float16 value) {
  uint32_t magnitude = uint32_t(value.bits & 0x7fff) << 13;
  // Infinity and NaN have the largest exponent in both formats.
  uint32_t bits = choose(magnitude >= (0x1fu << 23), magnitude | 0x7f800000,
                         SmallFloat<5, 10>::widened(magnitude));
  bits |= uint32_t(value.bits & 0x8000) << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

/// Values past the largest f16 become infinity, as rounding to nearest says; a
/// NaN stays one and becomes quiet.
template <> FSDPC_SHARED inline Float16 narrow<Float16>(float value) {
  uint32_t all;
  memcpy(&all, &value, sizeof all);
  uint32_t magnitude = all & 0x7fffffff, sign = (all >> 16) & 0x8000;
  // A carry goes from the largest exponent to infinity.
  uint32_t bits = SmallFloat<5, 10>::narrowed(magnitude);
  bits = choose(magnitude >= ((127 + 16) << 23), 0x7c00, bits);
  bits = choose(magnitude > 0x7f800000, 0x7e00 | ((magnitude >> 13) & 0x3ff),
                bits);
  return {uint16_t(bits | sign)};
}

} // namespace fsdpc::runtime
