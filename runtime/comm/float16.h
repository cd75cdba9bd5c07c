// IEEE half precision (f16) outside of libraries: widening to f32, which is
// exact, and rounding to nearest, ties to even. Like bf16 it is free of
// branches, so that loops over it vectorise on processors with and without F16C
// and AVX512-FP16, and the runtime's own CUDA kernels can compile the same
// functions. No step has a denormal operand: threads that flush denormals to
// zero get the same bits.
#pragma once

#include "runtime/comm/bfloat16.h"

namespace fsdpc::runtime {

// 1 sign bit, 5 bits of exponent (bias 15), 10 of mantissa.
struct Float16 {
  uint16_t bits;
};

// A choice by masks. With ?: compilers sink the float arithmetic of one arm
// into a branch, and the loop is not vectorised.
FSDPC_SHARED inline uint32_t choose(bool first, uint32_t a, uint32_t b) {
  uint32_t mask = -uint32_t(first);
  return (a & mask) | (b & ~mask);
}

FSDPC_SHARED inline float widen(Float16 value) {
  constexpr uint32_t rebias = (127 - 15) << 23;
  constexpr uint32_t smallest = (127 - 14) << 23; // 2^-14, the least normal f16
  uint32_t magnitude = uint32_t(value.bits & 0x7fff) << 13;
  uint32_t exponent = magnitude & (0x1fu << 23);
  // A subnormal's mantissa counts units of 2^-24: put it behind the mantissa of
  // 2^-14 and take 2^-14 away.
  uint32_t raised = magnitude | smallest;
  float least, difference;
  memcpy(&least, &smallest, sizeof least);
  memcpy(&difference, &raised, sizeof difference);
  difference -= least;
  uint32_t subnormal, normal = magnitude + rebias;
  memcpy(&subnormal, &difference, sizeof subnormal);
  // Infinity and NaN have the largest exponent in both formats.
  uint32_t special = magnitude | 0x7f800000;
  uint32_t bits = choose(exponent == 0, subnormal,
                         choose(exponent == (0x1fu << 23), special, normal));
  bits |= uint32_t(value.bits & 0x8000) << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

// Values past the largest f16 become infinity, as rounding to nearest says; a
// NaN stays one and becomes quiet.
template <> FSDPC_SHARED inline Float16 narrow<Float16>(float value) {
  constexpr uint32_t rebias = (127 - 15) << 23;
  constexpr uint32_t half = (127 - 1) << 23; // 0.5: its last bit is 2^-24
  uint32_t all;
  memcpy(&all, &value, sizeof all);
  uint32_t magnitude = all & 0x7fffffff, sign = (all >> 16) & 0x8000;
  // Rounds the 13 bits away that f16 lacks. A carry goes into the exponent, and
  // from the largest one to infinity.
  uint32_t odd = (magnitude >> 13) & 1;
  uint32_t normal = (magnitude - rebias + 0xfff + odd) >> 13;
  // Below 2^-14: adding 0.5 rounds to multiples of 2^-24, the subnormals.
  float small, halfValue;
  memcpy(&halfValue, &half, sizeof halfValue);
  memcpy(&small, &magnitude, sizeof small);
  small += halfValue;
  uint32_t subnormal;
  memcpy(&subnormal, &small, sizeof subnormal);
  subnormal -= half;
  uint32_t bits = choose(magnitude < ((127 - 14) << 23), subnormal, normal);
  bits = choose(magnitude >= ((127 + 16) << 23), 0x7c00, bits);
  bits = choose(magnitude > 0x7f800000, 0x7e00 | ((magnitude >> 13) & 0x3ff),
                bits);
  return {uint16_t(bits | sign)};
}

} // namespace fsdpc::runtime
