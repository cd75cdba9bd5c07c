// f8e4m3 (torch's float8_e4m3fn; Micikevicius et al., FP8 Formats for Deep
// Learning, 2022): widening to f32, which is exact, and rounding to nearest,
// ties to even. Like f16 it is free of branches, and no step has a denormal
// operand whose value matters.
#pragma once

#include "runtime/comm/float16.h"

namespace fsdpc::runtime {

// 1 sign bit, 4 bits of exponent (bias 7), 3 of mantissa. There is no infinity:
// the largest number is 448, and all ones below the sign are NaN.
struct Float8 {
  uint8_t bits;
};

FSDPC_SHARED inline float widen(Float8 value) {
  constexpr uint32_t rebias = (127 - 7) << 23;
  constexpr uint32_t smallest = (127 - 6) << 23; // 2^-6, the least normal one
  uint32_t magnitude = uint32_t(value.bits & 0x7f) << 20;
  // A subnormal's mantissa counts units of 2^-9: put it behind the mantissa of
  // 2^-6 and take 2^-6 away.
  uint32_t raised = magnitude | smallest;
  float least, difference;
  memcpy(&least, &smallest, sizeof least);
  memcpy(&difference, &raised, sizeof difference);
  difference -= least;
  uint32_t subnormal, normal = magnitude + rebias;
  memcpy(&subnormal, &difference, sizeof subnormal);
  uint32_t bits = choose(magnitude < (1u << 23), subnormal, normal);
  bits = choose(magnitude == (0x7fu << 20), 0x7fc00000, bits);
  bits |= uint32_t(value.bits & 0x80) << 24;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

// What rounds to more than 448 becomes NaN, as in torch.
template <> FSDPC_SHARED inline Float8 narrow<Float8>(float value) {
  constexpr uint32_t rebias = (127 - 7) << 23;
  constexpr uint32_t unit = (127 + 14) << 23; // 2^14: its last bit is 2^-9
  uint32_t all;
  memcpy(&all, &value, sizeof all);
  uint32_t magnitude = all & 0x7fffffff, sign = (all >> 24) & 0x80;
  // Rounds the 20 bits away that f8e4m3 lacks; a carry goes into the exponent.
  uint32_t odd = (magnitude >> 20) & 1;
  uint32_t normal = (magnitude - rebias + 0x7ffff + odd) >> 20;
  // Below 2^-6: adding 2^14 rounds to multiples of 2^-9, the subnormals.
  float small, unitValue;
  memcpy(&unitValue, &unit, sizeof unitValue);
  memcpy(&small, &magnitude, sizeof small);
  small += unitValue;
  uint32_t subnormal;
  memcpy(&subnormal, &small, sizeof subnormal);
  subnormal -= unit;
  uint32_t bits = choose(magnitude < ((127 - 6) << 23), subnormal, normal);
  // 464, the middle between 448 and what would follow, rounds to 448.
  bits = choose(magnitude > 0x43e80000, 0x7f, bits);
  return {uint8_t(bits | sign)};
}

} // namespace fsdpc::runtime
