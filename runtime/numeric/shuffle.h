// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order of samples under --shuffle: one permutation of [0, count) per
// epoch, evaluated one index at a time. It is a Feistel network over the
// smallest even number of bits that holds count, with Philox as its round
// function. Results outside [0, count) are permuted again until one lies inside
// (cycle walking; Black and Rogaway, 2002). So nothing is stored, and nothing
// depends on the number of ranks.
#pragma once

#include "runtime/numeric/philox.h"

namespace fsdpc::runtime {

/// Returns the sample at position `index` of `epoch`; index < count. The domain
/// of the network is less than four times `count`, so fewer than four rounds of
/// cycle walking are expected.
inline uint64_t shuffled(uint64_t index, uint64_t count, uint64_t epoch,
                         uint64_t seed) {
  int half = 1;
  while (half < 32 && (uint64_t(1) << (2 * half)) < count)
    ++half;
  uint64_t mask = (uint64_t(1) << half) - 1;
  do {
    uint64_t left = index >> half, right = index & mask;
    for (uint32_t round = 0; round < 8; ++round) {
      PhiloxBlock block = philox(
          {uint32_t(right), round, uint32_t(epoch), uint32_t(epoch >> 32)},
          seed);
      uint64_t next = left ^ (block[0] & mask);
      left = right;
      right = next;
    }
    index = left << half | right;
  } while (index >= count);
  return index;
}

} // namespace fsdpc::runtime
