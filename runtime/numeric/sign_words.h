// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The signs of up to 32 values as a word, and the sum of their magnitudes. The
// host and the runtime's own CUDA kernels share this arithmetic, so that none
// changes a bit.
#pragma once

#include "runtime/numeric/magnitude.h"

namespace fsdpc::runtime {

/// Bit i is set if value i is negative. The sum has its terms in lanes of a
/// fixed number.
struct SignWord {
  uint32_t signs;
  double magnitudes;
};

/// Reads up to 32 values.
FSDPC_SHARED inline SignWord signsOf(const float *values, int64_t count) {
  constexpr int lanes = 8;
  double sums[lanes] = {};
  SignWord word = {0, 0};
  for (int i = 0; i < int(count); ++i) {
    uint32_t bits, magnitude = magnitudeOf(values[i]);
    float size;
    memcpy(&bits, &values[i], sizeof bits);
    memcpy(&size, &magnitude, sizeof size);
    word.signs |= bits >> 31 << i;
    sums[i % lanes] += double(size);
  }
  for (int half = lanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane)
      sums[lane] += sums[lane + half];
  word.magnitudes = sums[0];
  return word;
}

/// Returns the bits of the mean of `count` magnitudes with this sum.
FSDPC_SHARED inline uint32_t scaleBits(double magnitudes, int64_t count) {
  auto scale = float(magnitudes / double(count));
  uint32_t bits;
  memcpy(&bits, &scale, sizeof bits);
  return bits;
}

/// Returns the scale with the sign of bit i of the word, or with the other one
/// if `negated`.
FSDPC_SHARED inline float signedScale(uint32_t scaleBits, uint32_t signs, int i,
                                      bool negated) {
  uint32_t bits = scaleBits ^ ((signs >> i ^ uint32_t(negated)) << 31);
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

} // namespace fsdpc::runtime
