// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The packer tries two linear scans, then offline orders with best fit, then a
// local search over orders, then exact searches, until the peak is within the
// gap of the lower bound or the work is used up.
//
// Offline placement knows all buffers placed so far, sorted by offset, and puts
// the next one into a hole between those that are live with it. Which order is
// best depends on the program, hence several. The local search starts from the
// best order and repeatedly moves the buffer that makes the peak to the front.

#include "compiler/schedule/packer.h"
#include "compiler/schedule/exact_packer.h"
#include "compiler/schedule/linear_scan.h"
#include "runtime/support/round_up.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <span>

namespace fsdpc::schedule {

namespace {

using Order = std::vector<size_t>;

// Placed buffers, sorted by offset. Their live ranges stand apart from their
// bytes, since most of the packer's time goes into finding those few that are
// live with a new buffer.
class Placement {
public:
  struct Bytes {
    int64_t offset, top; // [offset, top)
  };

  void insert(int64_t offset, const Interval &interval) {
    auto at = std::upper_bound(bytes.begin(), bytes.end(), offset,
                               [](int64_t offset, const Bytes &other) {
                                 return offset < other.offset;
                               }) -
              bytes.begin();
    bytes.insert(bytes.begin() + at, Bytes{offset, offset + interval.bytes});
    begins.insert(begins.begin() + at, interval.begin);
    ends.insert(ends.begin() + at, interval.end);
  }

  /// Returns the numbers of the buffers that are live with `interval`, in the
  /// order of their offsets. They are valid until the next call.
  std::span<const size_t> liveWith(const Interval &interval);

  size_t size() const { return bytes.size(); }
  const Bytes &operator[](size_t i) const { return bytes[i]; }

private:
  std::vector<Bytes> bytes;
  std::vector<int> begins, ends;
  std::vector<uint8_t> marks;
  std::vector<size_t> live;
};

// Marks them all first, many at a time, since a branch per buffer could not be
// predicted. Eight marks are then looked at together.
std::span<const size_t> Placement::liveWith(const Interval &interval) {
  size_t count = 0, placed = bytes.size();
  marks.assign((placed + 7) / 8 * 8, 0);
  live.resize(placed);
  // Locals, since a store of bytes may change any member.
  const int *begin = begins.data(), *end = ends.data();
  const int first = interval.begin, last = interval.end;
  uint8_t *mark = marks.data();
  size_t *number = live.data();
  for (size_t i = 0; i < placed; ++i) {
    uint8_t begun = begin[i] <= last, lasts = end[i] >= first;
    mark[i] = begun & lasts;
  }
  for (size_t i = 0; i < placed; i += 8) {
    uint64_t eight;
    std::memcpy(&eight, mark + i, 8);
    for (; eight != 0; eight &= eight - 1)
      number[count++] = i + std::countr_zero(eight) / 8;
  }
  return {live.data(), count};
}

class Packer {
public:
  Packer(const std::vector<Interval> &intervals, const PackerOptions &options)
      : intervals(intervals), options(options) {}

  Packing run();

private:
  enum class Fit { Best, Lowest };

  /// Sets up `fixed` and `movable`. Returns false if two fixed offsets collide.
  bool placeFixed();
  /// Places the movable intervals in the given order. Gives up, returning
  /// false, when the peak reaches `bound` or the work is used up.
  bool place(const Order &order, Fit fit, int64_t bound);
  int64_t findHole(const Interval &interval, Fit fit);
  /// Keeps `offsets` as the result if its peak is the smallest so far.
  bool keepIfBetter();
  // Meeting the lower bound ends the search even above the cap: no packing is
  // smaller.
  bool goodEnough() const {
    return best.peak <= (1 + options.gap) * double(best.lowerBound) &&
           (best.peak <= options.cap.value_or(best.peak) ||
            best.peak == best.lowerBound);
  }
  bool found() const {
    return best.peak != std::numeric_limits<int64_t>::max();
  }
  bool exhausted() const { return work > options.work; }

  /// The keys of the offline orders, the most promising first.
  enum class By { Length, Size, Peak, Area, Begin };
  Order sorted(By by, int peakPosition) const;
  void promote(Order order);
  void searchExactly();

  const std::vector<Interval> &intervals;
  const PackerOptions &options;
  int64_t work = 0;
  Packing best;
  /// The current placement, what is in all of them, and the offset of each
  /// interval.
  Placement placed, fixed;
  std::vector<int64_t> offsets;
  Order movable;
};

Packing Packer::run() {
  LivePeak live = livePeak(intervals);
  best.lowerBound = live.bytes;
  best.peak = std::numeric_limits<int64_t>::max();
  if (!placeFixed())
    return std::move(best);

  if (fixed.size() == 0)
    for (bool backwards : {false, true}) {
      offsets = linearScan(intervals, backwards);
      keepIfBetter();
    }
  // The linear scan cannot handle fixed offsets. Without its result, the first
  // order is tried whatever it costs.
  Order bestOrder = movable;
  for (By by : {By::Length, By::Size, By::Peak, By::Area, By::Begin}) {
    // Sorted only when it is its turn: the scans suffice for most programs.
    if (found() && (goodEnough() || exhausted()))
      break;
    Order order = sorted(by, live.position);
    if (place(order, Fit::Best, best.peak) && keepIfBetter())
      bestOrder = std::move(order);
  }
  promote(bestOrder);
  if (options.exact && fixed.size() == 0)
    searchExactly();
  return std::move(best);
}

bool Packer::placeFixed() {
  offsets.assign(intervals.size(), 0);
  std::vector<Interval> pinned;
  std::vector<int64_t> pinnedOffsets;
  // Buffers of 0 bytes overlap nothing and are neither fixed nor movable.
  for (size_t i = 0; i < intervals.size(); ++i) {
    const Interval &interval = intervals[i];
    if (interval.fixedOffset) {
      offsets[i] = *interval.fixedOffset;
      pinned.push_back(interval);
      pinnedOffsets.push_back(offsets[i]);
      if (interval.bytes > 0)
        fixed.insert(offsets[i], interval);
    } else if (interval.bytes > 0) {
      movable.push_back(i);
    }
  }
  // Fixed buffers are checked among themselves here; movable ones avoid them by
  // construction.
  best.error = verify(pinned, pinnedOffsets);
  return best.error.empty();
}

// Returns the offset of the smallest (or the lowest) hole between the placed
// buffers that are live together with `interval`, or the end of the last of
// them. These come by offset, so one pass suffices.
int64_t Packer::findHole(const Interval &interval, Fit fit) {
  int64_t bestOffset = -1, smallest = std::numeric_limits<int64_t>::max();
  int64_t cursor = 0, alignment = interval.alignment;
  auto aligned = [&] { return roundUp(cursor, alignment); };
  for (size_t i : placed.liveWith(interval)) {
    const Placement::Bytes &other = placed[i];
    if (other.offset > cursor) {
      // The hole begins at the cursor, moved up to the alignment.
      int64_t hole = other.offset - aligned();
      if (hole >= interval.bytes && hole < smallest) {
        smallest = hole;
        bestOffset = aligned();
        if (fit == Fit::Lowest) {
          work += static_cast<int64_t>(i) + 1;
          return bestOffset;
        }
      }
    }
    cursor = std::max(cursor, other.top);
  }
  work += static_cast<int64_t>(placed.size());
  return bestOffset >= 0 ? bestOffset : aligned();
}

// Reaching the bound is a failure: the packing would be no better than the
// best.
bool Packer::place(const Order &order, Fit fit, int64_t bound) {
  placed = fixed;
  for (size_t i : order) {
    const Interval &interval = intervals[i];
    int64_t offset = findHole(interval, fit);
    // A first placement is finished even if the work is used up, so that there
    // is always a result.
    if (offset + interval.bytes >= bound || (exhausted() && found()))
      return false;
    offsets[i] = offset;
    placed.insert(offset, interval);
  }
  return true;
}

bool Packer::keepIfBetter() {
  int64_t peak = 0;
  for (size_t i = 0; i < intervals.size(); ++i)
    peak = std::max(peak, offsets[i] + intervals[i].bytes);
  if (peak >= best.peak)
    return false;
  best.peak = peak;
  best.offsets = offsets;
  return true;
}

// The orders to try, most promising first.
Order Packer::sorted(By by, int peakPosition) const {
  // Ties are broken by index, so the order is the same on every machine.
  auto sortedBy = [&](auto key) {
    Order order = movable;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::pair(key(intervals[a]), a) < std::pair(key(intervals[b]), b);
    });
    return order;
  };
  // In double, since ends may be far apart and lengths are multiplied by bytes.
  auto length = [](const Interval &i) { return double(i.end) - i.begin + 1; };
  switch (by) {
  // Saved activations nest: with the longest at the bottom, the space above
  // them stays contiguous for gathered weights and gradients.
  case By::Length:
    return sortedBy(
        [&](const Interval &i) { return std::pair(-length(i), -i.bytes); });
  case By::Size:
    return sortedBy(
        [&](const Interval &i) { return std::pair(-i.bytes, -length(i)); });
  case By::Peak:
    return sortedBy([&](const Interval &i) {
      bool atPeak = i.begin <= peakPosition && peakPosition <= i.end;
      return std::pair(!atPeak, -i.bytes);
    });
  case By::Area:
    return sortedBy(
        [&](const Interval &i) { return -double(i.bytes) * length(i); });
  case By::Begin:
    break;
  }
  return sortedBy(
      [](const Interval &i) { return std::pair(i.begin, -i.bytes); });
}

// Alternates between lowest and best fit, and places the buffer on top first in
// the next round.
void Packer::promote(Order order) {
  constexpr int maxRounds = 200;
  for (int round = 0; round < maxRounds && !goodEnough() && !exhausted();
       ++round) {
    // Continues from worse packings too, in order to leave local minima.
    if (!place(order, round % 2 ? Fit::Best : Fit::Lowest,
               std::numeric_limits<int64_t>::max()))
      return;
    keepIfBetter();
    auto highest =
        std::max_element(order.begin(), order.end(), [&](size_t a, size_t b) {
          return offsets[a] + intervals[a].bytes <
                 offsets[b] + intervals[b].bytes;
        });
    // Moves the buffer on top to the front and keeps the order of the others.
    std::rotate(order.begin(), highest, highest + 1);
  }
}

// Looks for packings at the lower bound, within the gap, and better than the
// best, each from several preferences and for longer in each round. A smaller
// capacity is not always harder, since more of the search is known to be a dead
// end.
void Packer::searchExactly() {
  int64_t count = movable.size(), smallest = best.lowerBound;
  // The work of a search that never backtracks.
  int64_t straight = 8 * count * count;
  constexpr unsigned maxRounds = 20;
  // Rounds differ in their seed and their share of work.
  for (SearchOptions search; search.seed < maxRounds && !goodEnough();
       ++search.seed) {
    int64_t goal = (1 + options.gap) * double(best.lowerBound);
    if (options.cap)
      goal = std::max(best.lowerBound, std::min(goal, *options.cap));
    // The targets go from the lower bound to just below the best peak.
    int64_t targets[] = {best.lowerBound, goal, goal + (best.peak - goal) / 2,
                         best.peak - 1};
    for (int64_t target : targets)
      for (Preference preference :
           {Preference::Contention, Preference::Length, Preference::Area}) {
        if (target < smallest || target >= best.peak || goodEnough())
          break;
        search.preference = preference;
        search.work =
            std::min(straight * (1 + search.seed), options.work - work);
        if (search.work < straight)
          return;
        SearchResult result = packWithin(intervals, target, search);
        work += result.work;
        // No packing has this size, hence none is smaller.
        if (result.impossible)
          smallest = target + 1;
        if (result.offsets.empty())
          continue;
        offsets = result.offsets;
        keepIfBetter();
      }
    if (smallest >= best.peak)
      return; // proven optimal
  }
}

} // namespace

Packing pack(const std::vector<Interval> &intervals,
             const PackerOptions &options) {
  for (const Interval &interval : intervals) {
    if (interval.fixedOffset)
      continue; // checked with the other fixed ones
    if (std::string error = verify({interval}, {0}); !error.empty()) {
      Packing failed;
      failed.error = error;
      return failed;
    }
  }
  return Packer(intervals, options).run();
}

} // namespace fsdpc::schedule
