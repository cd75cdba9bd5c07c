// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of --reduce-hook=one-bit, with the bits of the host
// (runtime/comm/one_bit.cpp). A thread makes a word of signs, and another one
// adds a block's sums of magnitudes, so nothing depends on the grid.
#pragma once

#include "runtime/abi/one_bit.h"
#include "runtime/cuda/kernels/grid.h"
#include "runtime/numeric/sign_words.h"

namespace fsdpc::runtime {

/// Writes the signs of a member's values, by blocks that each begin with their
/// scale, and a sum of magnitudes for each word of signs.
struct SendSigns {
  const float *values = nullptr;
  int64_t elements = 0;
  int64_t block = 1, blocks = 0, signWords = 1; ///< words of a whole block
  uint32_t *words = nullptr;
  double *sums = nullptr; ///< signWords per block
};

/// Writes the scales of these blocks.
struct SendScales {
  int64_t elements = 0;
  int64_t block = 1, blocks = 0, signWords = 1;
  const double *sums = nullptr;
  uint32_t *words = nullptr;
};

/// Adds element first + i of a member to to[i], or subtracts it, once for each
/// of `ranks` ranks in their order. The words that one rank sent begin `stride`
/// words after those of the previous rank.
struct AddSigns {
  const uint32_t *words = nullptr;
  int64_t block = 1, signWords = 1;
  int64_t stride = 0, ranks = 1;
  int64_t first = 0, elements = 0;
  bool negated = false;
  float *to = nullptr;
};

FSDPC_SHARED inline int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

FSDPC_SHARED inline void body(const Grid &grid, const SendSigns &s) {
  for (int64_t i = grid.first(); i < s.blocks * s.signWords;
       i += grid.stride()) {
    int64_t block = i / s.signWords, word = i % s.signWords;
    int64_t begin = block * s.block + word * signsOfWord;
    int64_t end =
        least(least((block + 1) * s.block, s.elements), begin + signsOfWord);
    if (begin >= end)
      continue;
    SignWord found = signsOf(s.values + begin, end - begin);
    s.words[block * (1 + s.signWords) + 1 + word] = found.signs;
    s.sums[i] = found.magnitudes;
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const SendScales &s) {
  for (int64_t block = grid.first(); block < s.blocks; block += grid.stride()) {
    int64_t count = least(s.block, s.elements - block * s.block);
    double magnitudes = 0;
    for (int64_t word = 0; word * signsOfWord < count; ++word)
      magnitudes += s.sums[block * s.signWords + word];
    s.words[block * (1 + s.signWords)] = scaleBits(magnitudes, count);
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const AddSigns &a) {
  for (int64_t i = grid.first(); i < a.elements; i += grid.stride()) {
    int64_t place = (a.first + i) % a.block;
    const uint32_t *words =
        a.words + (a.first + i) / a.block * (1 + a.signWords);
    float sum = a.to[i];
    for (int64_t rank = 0; rank < a.ranks; ++rank, words += a.stride)
      sum += signedScale(words[0], words[1 + place / signsOfWord],
                         int(place % signsOfWord), a.negated);
    a.to[i] = sum;
  }
}

} // namespace fsdpc::runtime
