// The choice is a radix select over the bits of magnitudes: three histograms
// find the k-th largest one exactly, in time that does not depend on the
// values.
#include "runtime/comm/top_k.h"
#include "runtime/comm/magnitude.h"
#include "runtime/comm/reduce.h"

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

void addGradient(const TopKReduction &reduction) {
  for (const Member &member : reduction.members) {
    Addend own = {static_cast<const char *>(reduction.gradient) +
                      size_t(member.offset) * wireBytes(reduction.type),
                  reduction.type};
    sumRanks(&own, 1, WireType::f32, member.elements,
             reduction.residual + member.offset, /*add=*/true);
  }
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

void reduceTopK(Communicator &ranks, const TopKReduction &reduction,
                ChosenElement *exchanged) {
  addGradient(reduction);
  ChosenElement *own = exchanged + ranks.rank() * reduction.chosen;
  takeLargest(reduction.residual, reduction.elements, reduction.chosen, own);
  ranks.allGather(own, exchanged, size_t(chosenBytes(reduction.chosen)));
  if (!reduction.add)
    std::fill_n(reduction.sum, reduction.sumElements, 0.0f);
  int64_t all = ranks.size() * reduction.chosen;
  for (int64_t i = 0; i < all; ++i) {
    int64_t place = int64_t(exchanged[i].index) - reduction.sumBegin;
    if (place >= 0 && place < reduction.sumElements)
      reduction.sum[place] += exchanged[i].value;
  }
}

} // namespace fsdpc::runtime
