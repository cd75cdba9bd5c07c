// Lists of buffers by offset: one of all, and one per window of positions. A
// short buffer is compared with those of one window.
#include "compiler/schedule/placed_buffers.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace fsdpc::schedule {

PlacedBuffers::PlacedBuffers(const std::vector<Interval> &intervals) {
  constexpr int64_t steps = 64;
  int last = 0;
  for (size_t i = 0; i < intervals.size(); ++i) {
    first = i ? std::min(first, intervals[i].begin) : intervals[i].begin;
    last = i ? std::max(last, intervals[i].end) : intervals[i].end;
  }
  step = (int64_t(last) - first) / steps + 1;
  windows.resize(size_t(windowOf(last)) + 1);
}

// Behind those of the same offset.
size_t PlacedBuffers::List::placeFor(int64_t offset) const {
  return size_t(std::upper_bound(bytes.begin(), bytes.end(), offset,
                                 [](int64_t offset, const Bytes &other) {
                                   return offset < other.offset;
                                 }) -
                bytes.begin());
}

void PlacedBuffers::List::insert(int64_t offset, const Interval &interval) {
  auto at = ptrdiff_t(placeFor(offset));
  bytes.insert(bytes.begin() + at, Bytes{offset, offset + interval.bytes});
  begins.insert(begins.begin() + at, interval.begin);
  ends.insert(ends.begin() + at, interval.end);
}

void PlacedBuffers::insert(int64_t offset, const Interval &interval) {
  all.insert(offset, interval);
  int64_t from = windowOf(interval.begin), to = windowOf(interval.end);
  for (int64_t k = std::max<int64_t>(from - 1, 0); k <= to; ++k)
    windows[size_t(k)].insert(offset, interval);
}

const PlacedBuffers::List &
PlacedBuffers::listFor(const Interval &interval) const {
  int64_t from = windowOf(interval.begin);
  return windowOf(interval.end) <= from + 1 ? windows[size_t(from)] : all;
}

// Marks them all first, many at a time, since a branch per buffer could not be
// predicted. Eight marks are then looked at together.
std::span<const PlacedBuffers::Bytes>
PlacedBuffers::liveWith(const Interval &interval) {
  const List &list = listFor(interval);
  size_t count = 0, placed = list.bytes.size();
  marks.assign((placed + 7) / 8 * 8, 0);
  live.resize(std::max(live.size(), placed));
  // Locals, since a store of bytes may change any member.
  const int *begin = list.begins.data(), *end = list.ends.data();
  const int first = interval.begin, last = interval.end;
  uint8_t *mark = marks.data();
  for (size_t i = 0; i < placed; ++i) {
    uint8_t begun = begin[i] <= last, lasts = end[i] >= first;
    mark[i] = begun & lasts;
  }
  for (size_t i = 0; i < placed; i += 8) {
    uint64_t eight;
    std::memcpy(&eight, mark + i, 8);
    for (; eight != 0; eight &= eight - 1)
      live[count++] = list.bytes[i + size_t(std::countr_zero(eight)) / 8];
  }
  return {live.data(), count};
}

} // namespace fsdpc::schedule
