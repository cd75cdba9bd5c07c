// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of --reduce-hook=top-k, which choose what the host chooses
// (runtime/numeric/top_k.h). A radix select finds the k-th largest magnitude:
// each round counts the values that agree with what is known by the next four
// bits. Counts are whole numbers, and no thread adds to another's, so nothing
// depends on the grid.
#pragma once

#include "runtime/abi/top_k.h"
#include "runtime/cuda/kernels/grid.h"
#include "runtime/numeric/magnitude.h"

namespace fsdpc::runtime {

constexpr int digitBits = 4;
static_assert(selectionDigits == 1 << digitBits);

/// The k-th largest magnitude as far as it is known, and how many of the k are
/// above it.
struct Threshold {
  uint32_t magnitude = 0;
  int64_t above = 0;
};

/// How many values of a segment have a larger magnitude than the threshold, and
/// how many the same.
struct SegmentCount {
  int64_t above = 0, equal = 0;
};

/// Writes for each strip of the values how many of them have which digit, of
/// those whose bits above the digit are the threshold's.
struct CountDigits {
  const float *values = nullptr;
  int64_t elements = 0;
  int shift = 0;        ///< of the digit
  bool isFirst = false; ///< nothing is known yet
  const Threshold *threshold = nullptr;
  int64_t strips = 1;
  int64_t *counts = nullptr; ///< selectionDigits per strip
};

/// Adds the digit to the threshold of the `count` largest. One block of
/// threads.
struct PickDigit {
  const int64_t *counts = nullptr;
  int64_t strips = 1, count = 0;
  int shift = 0;
  bool isFirst = false;
  Threshold *threshold = nullptr;
};

/// Counts the values of each segment of selectionSegment.
struct CountChosen {
  const float *values = nullptr;
  int64_t elements = 0;
  const Threshold *threshold = nullptr;
  SegmentCount *counts = nullptr;
};

/// Replaces the counts by those of all segments in front. One block of threads.
struct CountBefore {
  SegmentCount *counts = nullptr;
  int64_t segments = 0;
};

/// Moves the `count` largest values out of `values`, in the order of places. Of
/// equal magnitudes the lower places come first.
struct TakeChosen {
  float *values = nullptr;
  int64_t elements = 0, count = 0;
  const Threshold *threshold = nullptr;
  const SegmentCount *before = nullptr; ///< by segment
  ChosenElement *chosen = nullptr;
};

/// Adds what one rank has sent to elements [begin, begin + elements) of the
/// sum.
struct AddChosen {
  const ChosenElement *chosen = nullptr;
  int64_t count = 0;
  float *sum = nullptr;
  int64_t begin = 0, elements = 0;
};

FSDPC_SHARED inline void body(const Grid &grid, const CountDigits &c) {
  uint32_t known = c.isFirst ? 0 : ~0u << (c.shift + digitBits);
  uint32_t wanted = c.isFirst ? 0 : c.threshold->magnitude;
  for (int64_t strip = grid.block; strip < c.strips; strip += grid.blocks) {
    int64_t counts[selectionDigits] = {};
    int64_t end = c.elements * (strip + 1) / c.strips;
    for (int64_t i = c.elements * strip / c.strips + grid.thread; i < end;
         i += grid.threads) {
      uint32_t magnitude = magnitudeOf(c.values[i]);
      if ((magnitude & known) == wanted)
        ++counts[(magnitude >> c.shift) & (selectionDigits - 1)];
    }
    for (int digit = 0; digit < selectionDigits; ++digit) {
      int64_t total = grid.sum(counts[digit]);
      if (grid.thread == 0)
        c.counts[strip * selectionDigits + digit] = total;
    }
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const PickDigit &p) {
  if (grid.block != 0)
    return;
  int64_t counts[selectionDigits];
  for (int digit = 0; digit < selectionDigits; ++digit) {
    int64_t own = 0;
    for (int64_t strip = grid.thread; strip < p.strips; strip += grid.threads)
      own += p.counts[strip * selectionDigits + digit];
    counts[digit] = grid.sum(own);
  }
  if (grid.thread != 0)
    return;
  Threshold found;
  if (!p.isFirst)
    found = *p.threshold;
  uint32_t digit = selectionDigits - 1;
  while (digit > 0 && found.above + counts[digit] < p.count)
    found.above += counts[digit--];
  found.magnitude |= digit << p.shift;
  *p.threshold = found;
}

/// The part [from, to) of a segment that a thread works on.
struct SegmentPart {
  int64_t from = 0, to = 0;
};
FSDPC_SHARED inline SegmentPart partOfSegment(const Grid &grid, int64_t segment,
                                              int64_t elements) {
  int64_t begin = segment * selectionSegment;
  int64_t end = begin + selectionSegment;
  int64_t length = selectionSegment / grid.threads;
  SegmentPart part;
  part.from = begin + grid.thread * length, part.to = part.from + length;
  if (grid.thread == grid.threads - 1)
    part.to = end;
  part.to = part.to < elements ? part.to : elements;
  return part;
}

FSDPC_SHARED inline SegmentCount countIn(SegmentPart part, const float *values,
                                         uint32_t threshold) {
  SegmentCount count;
  for (int64_t i = part.from; i < part.to; ++i) {
    count.above += magnitudeOf(values[i]) > threshold;
    count.equal += magnitudeOf(values[i]) == threshold;
  }
  return count;
}

FSDPC_SHARED inline void body(const Grid &grid, const CountChosen &c) {
  int64_t segments = (c.elements + selectionSegment - 1) / selectionSegment;
  for (int64_t segment = grid.block; segment < segments;
       segment += grid.blocks) {
    SegmentCount own = countIn(partOfSegment(grid, segment, c.elements),
                               c.values, c.threshold->magnitude);
    own.above = grid.sum(own.above);
    own.equal = grid.sum(own.equal);
    if (grid.thread == 0)
      c.counts[segment] = own;
  }
}

/// Each thread takes adjacent segments.
FSDPC_SHARED inline void body(const Grid &grid, const CountBefore &c) {
  if (grid.block != 0)
    return;
  int64_t from = c.segments * grid.thread / grid.threads;
  int64_t to = c.segments * (grid.thread + 1) / grid.threads;
  SegmentCount own;
  for (int64_t i = from; i < to; ++i) {
    own.above += c.counts[i].above;
    own.equal += c.counts[i].equal;
  }
  SegmentCount before = {grid.sumBefore(own.above), grid.sumBefore(own.equal)};
  for (int64_t i = from; i < to; ++i) {
    SegmentCount count = c.counts[i];
    c.counts[i] = before;
    before.above += count.above;
    before.equal += count.equal;
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const TakeChosen &t) {
  int64_t segments = (t.elements + selectionSegment - 1) / selectionSegment;
  Threshold threshold = *t.threshold;
  int64_t equals = t.count - threshold.above; // taken of those that are equal
  for (int64_t segment = grid.block; segment < segments;
       segment += grid.blocks) {
    SegmentPart part = partOfSegment(grid, segment, t.elements);
    SegmentCount own = countIn(part, t.values, threshold.magnitude);
    SegmentCount before = t.before[segment];
    before.above += grid.sumBefore(own.above);
    before.equal += grid.sumBefore(own.equal);
    for (int64_t i = part.from; i < part.to; ++i) {
      float value = t.values[i];
      bool above = magnitudeOf(value) > threshold.magnitude;
      bool equal = magnitudeOf(value) == threshold.magnitude;
      int64_t taken = before.equal < equals ? before.equal : equals;
      if (above || (equal && before.equal < equals)) {
        t.chosen[before.above + taken] = {uint32_t(i), value};
        t.values[i] = 0;
      }
      before.above += above;
      before.equal += equal;
    }
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const AddChosen &a) {
  for (int64_t i = grid.first(); i < a.count; i += grid.stride()) {
    int64_t place = int64_t(a.chosen[i].index) - a.begin;
    if (place >= 0 && place < a.elements)
      a.sum[place] += a.chosen[i].value;
  }
}

} // namespace fsdpc::runtime
