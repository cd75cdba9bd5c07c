// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The choice is a radix select over the bits of magnitudes: three histograms
// find the k-th largest one exactly, in time that does not depend on the
// values.
#include "runtime/numeric/top_k.h"
#include "runtime/numeric/magnitude.h"

#include <algorithm>
#include <array>

namespace fsdpc::runtime {

namespace {

// The k-th largest magnitude, and how many of the k are above it.
struct Threshold {
  uint32_t magnitude = 0;
  int64_t above = 0;
};

// Fixes the magnitude's bits from the highest to the lowest, some at a time:
// counts the values that agree with what is known by their next bits.
Threshold findThreshold(const float *values, int64_t elements, int64_t count) {
  constexpr int widths[] = {11, 10, 10};
  Threshold found;
  int shift = 31;
  uint32_t known = 0; // mask of the bits that are fixed
  for (int width : widths) {
    shift -= width;
    uint32_t mask = (1u << width) - 1;
    std::array<int64_t, 2048> counts = {};
    for (int64_t i = 0; i < elements; ++i) {
      uint32_t magnitude = magnitudeOf(values[i]);
      if ((magnitude & known) == found.magnitude)
        ++counts[(magnitude >> shift) & mask];
    }
    uint32_t digit = mask;
    while (found.above + counts[digit] < count)
      found.above += counts[digit--];
    found.magnitude |= digit << shift;
    known |= mask << shift;
  }
  return found;
}

} // namespace

void takeLargest(float *values, int64_t elements, int64_t count,
                 ChosenElement *chosen) {
  Threshold threshold = findThreshold(values, elements, count);
  int64_t equal = count - threshold.above; // taken of those that are equal
  for (int64_t i = 0, taken = 0; taken < count && i < elements; ++i) {
    uint32_t magnitude = magnitudeOf(values[i]);
    if (magnitude < threshold.magnitude ||
        (magnitude == threshold.magnitude && equal-- <= 0))
      continue;
    chosen[taken++] = {uint32_t(i), values[i]};
    values[i] = 0;
  }
}

} // namespace fsdpc::runtime
