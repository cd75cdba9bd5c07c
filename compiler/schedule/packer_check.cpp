// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks a packing in one sweep over the positions. It keeps the sum of live
// bytes for the lower bound, and an ordered set of the live buffers, in which
// two that overlap are always neighbours.

#include "compiler/schedule/packer.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace fsdpc::schedule {

namespace {

// Returns how messages name an interval, with its bytes and positions.
std::string name(const std::vector<Interval> &intervals, size_t i) {
  const Interval &interval = intervals[i];
  std::string text = interval.label.empty() ? concat("interval ", i)
                                            : "'" + interval.label + "'";
  return concat(text, " (", interval.bytes, " bytes, positions ",
                interval.begin, " to ", interval.end, ")");
}

// Checks one interval by itself: well-formed, aligned, at its fixed offset.
std::string checkPlace(const std::vector<Interval> &intervals, size_t i,
                       int64_t offset) {
  const Interval &interval = intervals[i];
  if (interval.bytes < 0 || interval.alignment < 1 ||
      interval.begin > interval.end)
    return name(intervals, i) + " is malformed: expected bytes >= 0, alignment "
                                ">= 1 and begin <= end";
  if (offset < 0 || offset % interval.alignment != 0)
    return concat(name(intervals, i), " has offset ", offset,
                  ", expected a multiple of ", interval.alignment);
  if (interval.fixedOffset && *interval.fixedOffset != offset)
    return concat(name(intervals, i), " has offset ", offset,
                  ", but must be at the fixed offset ", *interval.fixedOffset);
  return "";
}

} // namespace

// A sweep over the 2n changes of the live bytes, O(n log n).
LivePeak livePeak(const std::vector<Interval> &intervals) {
  // A buffer adds its bytes at `begin` and removes them after `end`.
  std::vector<std::pair<int64_t, int64_t>> changes;
  changes.reserve(2 * intervals.size());
  for (const Interval &interval : intervals) {
    changes.emplace_back(interval.begin, interval.bytes);
    changes.emplace_back(int64_t(interval.end) + 1, -interval.bytes);
  }
  std::sort(changes.begin(), changes.end()); // releases before new ones
  LivePeak peak;
  int64_t live = 0;
  for (auto [position, bytes] : changes) {
    live += bytes;
    if (live > peak.bytes)
      peak = {live, static_cast<int>(position)};
  }
  return peak;
}

// A sweep over positions, O(n log n). Live buffers are disjoint as long as no
// overlap has been found, so a new one can only overlap its neighbours by
// offset.
std::string verify(const std::vector<Interval> &intervals,
                   const std::vector<int64_t> &offsets) {
  if (intervals.size() != offsets.size())
    return concat(offsets.size(), " offsets given for ", intervals.size(),
                  " intervals");
  for (size_t i = 0; i < intervals.size(); ++i)
    if (std::string message = checkPlace(intervals, i, offsets[i]);
        !message.empty())
      return message;

  std::vector<size_t> byBegin(intervals.size()), byEnd;
  std::iota(byBegin.begin(), byBegin.end(), size_t(0));
  byEnd = byBegin;
  std::sort(byBegin.begin(), byBegin.end(), [&](size_t a, size_t b) {
    return std::pair(intervals[a].begin, a) < std::pair(intervals[b].begin, b);
  });
  std::sort(byEnd.begin(), byEnd.end(), [&](size_t a, size_t b) {
    return std::pair(intervals[a].end, a) < std::pair(intervals[b].end, b);
  });

  std::map<int64_t, size_t> live; // by offset
  auto top = [&](size_t i) { return offsets[i] + intervals[i].bytes; };
  size_t ended = 0;
  for (size_t i : byBegin) {
    // Ends are inclusive, so a buffer leaves when the next one begins after its
    // end.
    for (; intervals[byEnd[ended]].end < intervals[i].begin; ++ended)
      if (intervals[byEnd[ended]].bytes > 0)
        live.erase(offsets[byEnd[ended]]);
    if (intervals[i].bytes == 0)
      continue;
    auto above = live.lower_bound(offsets[i]);
    std::optional<size_t> other;
    if (above != live.end() && above->first < top(i))
      other = above->second;
    else if (above != live.begin() &&
             top(std::prev(above)->second) > offsets[i])
      other = std::prev(above)->second;
    if (other)
      return concat(name(intervals, *other), " at offset ", offsets[*other],
                    " overlaps ", name(intervals, i), " at offset ",
                    offsets[i]);
    live.emplace(offsets[i], i);
  }
  return "";
}

} // namespace fsdpc::schedule
