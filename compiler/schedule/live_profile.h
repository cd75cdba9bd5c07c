// The bytes (or a count) live at each op, under range additions. A segment tree
// lets solvers ask in O(log n) whether a buffer may live longer.
#ifndef FSDPC_COMPILER_SCHEDULE_LIVE_PROFILE_H
#define FSDPC_COMPILER_SCHEDULE_LIVE_PROFILE_H

#include <algorithm>
#include <cstdint>
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
    return max(1, 0, leaves, begin, std::min(end, positions));
  }

  /// Returns the largest limit ≤ end such that adding `bytes` to [begin, limit)
  /// keeps all values within `budget`.
  /// Costs O(log² n): a binary search over range maxima. It is how solvers find
  /// the last op until which a buffer may live within the memory cap.
  int furthest(int begin, int end, int64_t bytes, int64_t budget) const {
    if (max(begin, end) + bytes <= budget)
      return end;
    int fits = begin, fails = end; // [begin, fits) fits, [begin, fails) not
    while (fails - fits > 1) {
      int middle = fits + (fails - fits) / 2;
      (max(fits, middle) + bytes <= budget ? fits : fails) = middle;
    }
    return fits;
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
    if (begin >= to || end <= from || begin >= end)
      return 0;
    if (begin <= from && to <= end)
      return highest[node];
    int middle = (from + to) / 2;
    return std::max(max(2 * node, from, middle, begin, end),
                    max(2 * node + 1, middle, to, begin, end)) +
           pending[node];
  }

  int positions, leaves = 1;
  /// Per node: the maximum of its subtree, and what was added to all of it.
  std::vector<int64_t> highest, pending;
};

} // namespace fsdpc::schedule

#endif // FSDPC_COMPILER_SCHEDULE_LIVE_PROFILE_H
