// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conversions of the small IEEE formats, by their bits of exponent and
// mantissa: widening to f32, which is exact, and rounding to nearest, ties to
// even, of the numbers that both can hold. Infinity and NaN are left to the
// formats, which differ in these.
//
// All of it is free of branches, so that loops over it vectorise on processors
// with and without F16C and AVX512-FP16, and the runtime's own CUDA kernels can
// compile the same functions. No step has a denormal operand whose value
// matters: threads that flush denormals to zero get the same bits.
#pragma once

#include "runtime/numeric/bfloat16.h"

namespace fsdpc::runtime {

/// A choice by masks. With ?: compilers sink the float arithmetic of one arm
/// into a branch, and the loop is not vectorised.
FSDPC_SHARED inline uint32_t choose(bool first, uint32_t a, uint32_t b) {
  uint32_t mask = -uint32_t(first);
  return (a & mask) | (b & ~mask);
}

template <int exponentBits, int mantissaBits> struct SmallFloat {
  static constexpr int bias = (1 << (exponentBits - 1)) - 1;
  static constexpr int lacking = 23 - mantissaBits; ///< bits of f32's mantissa
  static constexpr uint32_t rebias = uint32_t(127 - bias) << 23;
  /// The least normal number, 2^(1 - bias), in f32.
  static constexpr uint32_t smallest = uint32_t(127 + 1 - bias) << 23;
  /// A power of two whose last bit in f32 counts the least subnormal number.
  static constexpr uint32_t unit = uint32_t(127 + 1 - bias - mantissaBits + 23)
                                   << 23;

  /// Returns the bits of a number in f32. `magnitude` is the number without its
  /// sign, moved to the place of f32's exponent and mantissa.
  FSDPC_SHARED static uint32_t widened(uint32_t magnitude) {
    // A subnormal's mantissa is put behind that of the least normal number,
    // which is then taken away.
    uint32_t raised = magnitude | smallest;
    float least, difference;
    uint32_t leastBits = smallest;
    memcpy(&least, &leastBits, sizeof least);
    memcpy(&difference, &raised, sizeof difference);
    difference -= least;
    uint32_t subnormal;
    memcpy(&subnormal, &difference, sizeof subnormal);
    return choose(magnitude < (1u << 23), subnormal, magnitude + rebias);
  }

  /// Returns the bits of the nearest number; `magnitude` has those of an f32
  /// without its sign. The format must have room for the result's exponent.
  FSDPC_SHARED static uint32_t narrowed(uint32_t magnitude) {
    // Rounds away the bits that the format lacks; a carry goes into the
    // exponent.
    constexpr uint32_t half = (1u << (lacking - 1)) - 1;
    uint32_t odd = (magnitude >> lacking) & 1;
    uint32_t normal = (magnitude - rebias + half + odd) >> lacking;
    // Below the least normal number the addition rounds to subnormals.
    float small, unitValue;
    uint32_t unitBits = unit;
    memcpy(&unitValue, &unitBits, sizeof unitValue);
    memcpy(&small, &magnitude, sizeof small);
    small += unitValue;
    uint32_t subnormal;
    memcpy(&subnormal, &small, sizeof subnormal);
    subnormal -= unit;
    return choose(magnitude < smallest, subnormal, normal);
  }
};

} // namespace fsdpc::runtime
