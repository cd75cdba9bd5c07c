// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Eight rounds of two kernels find the threshold; three more kernels count and
// move what is above it.
#include "runtime/cuda/selection.h"

namespace fsdpc::runtime {

void Selection::use(void *memory, int64_t mostElements) {
  static_assert(sizeof(Threshold) == 16 && sizeof(SegmentCount) == 16,
                "TopK::deviceBytes counts two words for each");
  segments = static_cast<SegmentCount *>(memory);
  digits =
      reinterpret_cast<int64_t *>(segments + selectionSegments(mostElements));
  threshold = reinterpret_cast<Threshold *>(
      digits + selectionDigits * selectionStrips(mostElements));
}

void Selection::take(float *values, int64_t elements, int64_t count,
                     ChosenElement *chosen) {
  constexpr int stream = FSDPC_STREAM_REDUCE;
  int64_t strips = selectionStrips(elements);
  for (int shift = 32 - digitBits; shift >= 0; shift -= digitBits) {
    CountDigits digit;
    digit.values = values, digit.elements = elements;
    digit.shift = shift, digit.isFirst = shift == 32 - digitBits;
    digit.threshold = threshold;
    digit.strips = strips, digit.counts = digits;
    context.launchBlocks(digit, strips, stream);
    PickDigit pick;
    pick.counts = digits, pick.strips = strips, pick.count = count;
    pick.shift = shift, pick.isFirst = digit.isFirst;
    pick.threshold = threshold;
    context.launchBlocks(pick, 1, stream);
  }
  CountChosen counts;
  counts.values = values, counts.elements = elements;
  counts.threshold = threshold, counts.counts = segments;
  context.launchBlocks(counts, selectionSegments(elements), stream);
  context.launchBlocks(CountBefore{segments, selectionSegments(elements)}, 1,
                       stream);
  TakeChosen take;
  take.values = values, take.elements = elements, take.count = count;
  take.threshold = threshold, take.before = segments;
  take.chosen = chosen;
  context.launchBlocks(take, selectionSegments(elements), stream);
}

} // namespace fsdpc::runtime
