// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Packs by replaying the program: at each position, buffers that have ended
// return to a free list, and those that begin take the smallest free block that
// holds them. This is what an allocator does at run time, so it fragments like
// one, but it takes near-linear time however many buffers are live. Replaying
// backwards is as valid and often better for activations, which are freed in
// the reverse order of their making.

#include "compiler/schedule/linear_scan.h"

#include "runtime/support/round_up.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <set>

namespace fsdpc::schedule {

namespace {

/// The free blocks below `top`; everything above it is free.
class FreeList {
public:
  // Best fit: takes the smallest free block that holds the bytes at their
  // alignment, and returns the rest of the block to the list.
  int64_t allocate(int64_t bytes, int64_t alignment) {
    for (auto it = bySize.lower_bound({bytes, 0}); it != bySize.end(); ++it) {
      auto [size, start] = *it;
      int64_t offset = roundUp(start, alignment);
      if (offset + bytes > start + size)
        continue; // only the alignment prevents it
      erase(start, size);
      insert(start, offset - start);
      insert(offset + bytes, start + size - offset - bytes);
      return offset;
    }
    // Grow the arena, from the last block if it is free.
    int64_t start = top;
    if (auto last = byStart.rbegin();
        last != byStart.rend() && last->first + last->second == top) {
      start = last->first;
      erase(last->first, last->second);
    }
    int64_t offset = roundUp(start, alignment);
    // Space that alignment skips stays in the list.
    insert(start, offset - start);
    top = offset + bytes;
    return offset;
  }

  // Merges the block with its free neighbours.
  void release(int64_t start, int64_t bytes) {
    // Free blocks never touch each other, so at most one on each side merges.
    auto next = byStart.lower_bound(start);
    if (next != byStart.end() && next->first == start + bytes) {
      bytes += next->second;
      auto merged = next++;
      erase(merged->first, merged->second);
    }
    if (next != byStart.begin()) {
      auto previous = std::prev(next);
      if (previous->first + previous->second == start) {
        start = previous->first;
        bytes += previous->second;
        erase(previous->first, previous->second);
      }
    }
    insert(start, bytes);
  }

private:
  void insert(int64_t start, int64_t bytes) {
    if (bytes == 0)
      return;
    byStart.emplace(start, bytes);
    bySize.emplace(bytes, start);
  }
  // Takes its arguments by value, since they may be read from the node that is
  // erased.
  void erase(int64_t start, int64_t bytes) {
    byStart.erase(start);
    bySize.erase({bytes, start});
  }

  // The same blocks, by address for merging and by size for best fit.
  std::map<int64_t, int64_t> byStart;
  std::set<std::pair<int64_t, int64_t>> bySize;
  int64_t top = 0;
};

} // namespace

std::vector<int64_t> linearScan(const std::vector<Interval> &intervals,
                                bool backwards) {
  // Backwards, positions are negated, so that an end becomes a beginning.
  auto begin = [&](size_t i) {
    return backwards ? -intervals[i].end : intervals[i].begin;
  };
  auto end = [&](size_t i) {
    return backwards ? -intervals[i].begin : intervals[i].end;
  };
  // Among buffers that begin together, the longest-lived come first.
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tuple(begin(a), -end(a), -intervals[a].bytes, a) <
           std::tuple(begin(b), -end(b), -intervals[b].bytes, b);
  });

  std::vector<int64_t> offsets(intervals.size(), 0);
  FreeList free;
  // Live buffers, those that end first on top.
  using Ending = std::pair<int, size_t>;
  std::priority_queue<Ending, std::vector<Ending>, std::greater<Ending>> live;
  for (size_t i : order) {
    if (intervals[i].bytes == 0)
      continue;
    // Ends are inclusive: a buffer that ends here is still live here.
    for (; !live.empty() && live.top().first < begin(i); live.pop())
      free.release(offsets[live.top().second],
                   intervals[live.top().second].bytes);
    offsets[i] = free.allocate(intervals[i].bytes, intervals[i].alignment);
    live.emplace(end(i), i);
  }
  return offsets;
}

} // namespace fsdpc::schedule
