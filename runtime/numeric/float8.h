// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// f8e4m3 (torch's float8_e4m3fn; Micikevicius et al., FP8 Formats for Deep
// Learning, 2022), like f16 (small_float.h).
#pragma once

#include "runtime/numeric/small_float.h"

namespace fsdpc::runtime {

/// 1 sign bit, 4 bits of exponent (bias 7), 3 of mantissa. There is no
/// infinity: the largest number is 448, and all ones below the sign are NaN.
struct Float8 {
  uint8_t bits;
};

FSDPC_SHARED inline float widen(Float8 value) {
  uint32_t magnitude = uint32_t(value.bits & 0x7f) << 20;
  uint32_t bits = SmallFloat<4, 3>::widened(magnitude);
  bits = choose(magnitude == (0x7fu << 20), 0x7fc00000, bits);
  bits |= uint32_t(value.bits & 0x80) << 24;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

/// A value that rounds to more than 448 becomes NaN, as in torch.
template <> FSDPC_SHARED inline Float8 narrow<Float8>(float value) {
  uint32_t all;
  memcpy(&all, &value, sizeof all);
  uint32_t magnitude = all & 0x7fffffff, sign = (all >> 24) & 0x80;
  uint32_t bits = SmallFloat<4, 3>::narrowed(magnitude);
  // 464, the middle between 448 and what would follow, rounds to 448.
  bits = choose(magnitude > 0x43e80000, 0x7f, bits);
  return {uint8_t(bits | sign)};
}

} // namespace fsdpc::runtime
