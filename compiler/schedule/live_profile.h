// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bytes (or a count) live at each op, under range additions. A segment tree
// lets solvers ask in O(log n) whether a buffer may live longer, and from where
// on it fits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace fsdpc::schedule {

/// A segment tree with lazy additions. Negative additions take bytes off again.
/// Ranges may extend past the last position.
class LiveProfile {
public:
  /// All values are 0. Takes O(positions) memory, rounded up to a power of two.
  explicit LiveProfile(int positions) : positions(positions) {
    while (leaves < positions)
      leaves *= 2;
    highest.assign(2 * leaves, 0);
    pending.assign(2 * leaves, 0);
  }

  /// Adds to the positions [begin, end); an empty range is fine. O(log n),
  /// since nodes that lie within the range keep what was added to all of them.
  void add(int begin, int end, int64_t bytes) {
    add(1, 0, leaves, begin, std::min(end, positions), bytes);
  }

  /// Returns the largest value in [begin, end), or 0 for an empty range.
  /// O(log n).
  int64_t max(int begin, int end) const {
    end = std::min(end, positions);
    return begin < end ? max(1, 0, leaves, begin, end) : 0;
  }

  /// Returns the largest limit ≤ end such that adding `bytes` to [begin, limit)
  /// keeps all values within `budget`. O(log n). It is how solvers find the
  /// last op until which a buffer may live within the memory cap.
  int furthest(int begin, int end, int64_t bytes, int64_t budget) const {
    int first = above(/*fromEnd=*/false, 1, 0, leaves, begin,
                      std::min(end, positions), budget - bytes);
    return first < 0 ? end : first;
  }

  /// Returns the last position in [begin, end) whose value is above `limit`, or
  /// begin - 1 if none is. O(log n). A buffer that lives up to `end` cannot
  /// begin before the position after it.
  int lastAbove(int begin, int end, int64_t limit) const {
    int last = above(/*fromEnd=*/true, 1, 0, leaves, begin,
                     std::min(end, positions), limit);
    return last < 0 ? begin - 1 : last;
  }

private:
  /// A node covers [from, to); its children are 2 · node and 2 · node + 1.
  void add(int node, int from, int to, int begin, int end, int64_t bytes) {
    if (begin >= to || end <= from || begin >= end)
      return;
    if (begin <= from && to <= end) {
      highest[node] += bytes;
      pending[node] += bytes;
      return;
    }
    int middle = (from + to) / 2;
    add(2 * node, from, middle, begin, end, bytes);
    add(2 * node + 1, middle, to, begin, end, bytes);
    highest[node] =
        std::max(highest[2 * node], highest[2 * node + 1]) + pending[node];
  }

  int64_t max(int node, int from, int to, int begin, int end) const {
    if (begin >= to || end <= from)
      return std::numeric_limits<int64_t>::min() / 2; // plus what is pending
    if (begin <= from && to <= end)
      return highest[node];
    int middle = (from + to) / 2;
    return std::max(max(2 * node, from, middle, begin, end),
                    max(2 * node + 1, middle, to, begin, end)) +
           pending[node];
  }

  /// Returns the first position of [begin, end) whose value is above `limit`,
  /// the last one if `fromEnd`, or -1.
  int above(bool fromEnd, int node, int from, int to, int begin, int end,
            int64_t limit) const {
    if (begin >= to || end <= from || highest[node] <= limit)
      return -1;
    if (to - from == 1)
      return from;
    int middle = (from + to) / 2;
    limit -= pending[node];
    auto half = [&](bool right) {
      return above(fromEnd, 2 * node + right, right ? middle : from,
                   right ? to : middle, begin, end, limit);
    };
    int found = half(fromEnd);
    return found >= 0 ? found : half(!fromEnd);
  }

  int positions, leaves = 1;
  /// Per node: the maximum of its subtree, and what was added to all of it.
  std::vector<int64_t> highest, pending;
};

} // namespace fsdpc::schedule
