// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011), a counter-based generator. It has no state to keep or to save: a
// number depends on what it is for, never on who draws it or when. The key is
// (seed low, seed high); each use defines its own counter (dropout,
// init_values.h, shuffle.h).
#pragma once

#include <array>
#include <cstdint>

namespace fsdpc::runtime {

/// A counter, or the four words that belong to it.
using PhiloxBlock = std::array<uint32_t, 4>;

/// Returns the four random words of a counter. Equal counters of one seed give
/// equal words, so a use must put whatever tells its numbers apart into the
/// counter: a step, an element, and a mark of the use itself.
inline PhiloxBlock philox(PhiloxBlock counter, uint64_t seed) {
  uint32_t key0 = uint32_t(seed), key1 = uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t product0 = uint64_t(0xD2511F53) * counter[0];
    uint64_t product1 = uint64_t(0xCD9E8D57) * counter[2];
    counter = {uint32_t(product1 >> 32) ^ counter[1] ^ key0, uint32_t(product1),
               uint32_t(product0 >> 32) ^ counter[3] ^ key1,
               uint32_t(product0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

} // namespace fsdpc::runtime
