// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Places buffers from the bottom up, each as low as those below it allow, as in
// MiniMalloc (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
// Hardware-Accelerated Machine Learning", 2023).
//
// Every packing can be pushed down until each buffer lies at 0 or on another
// one, and can be listed by offset; so it suffices to try buffers one after
// another, at offsets that never decrease. At each position, the buffers still
// to come begin no lower than the lowest offset that one of them can have: if
// that offset plus all bytes still to come exceed the capacity, the branch is a
// dead end. A buffer that would leave room below it for a whole other one is
// not tried, since the other one could go first.

#include "compiler/schedule/exact_packer.h"

#include "runtime/support/round_up.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace fsdpc::schedule {

namespace {

class Search {
public:
  Search(const std::vector<Interval> &intervals, int64_t capacity,
         const SearchOptions &options);
  SearchResult run();

private:
  struct Buffer {
    size_t index; // of the interval
    int64_t bytes, alignment;
    int begin, end; // in compressed positions; end is exclusive
    /// Its offset if placed, else the lowest offset that the placed ones allow.
    int64_t offset = 0;
    bool placed = false;
  };
  struct Candidate {
    int64_t offset;
    int buffer;
    bool operator<(const Candidate &other) const {
      return std::pair(offset, buffer) < std::pair(other.offset, other.buffer);
    }
  };

  // Sorts `buffers` by the preference, once, before the search.
  void sortByPreference(const SearchOptions &options);
  // Returns true if all remaining buffers could be placed. extend() and tryAt()
  // leave the state as it was when they fail.
  bool extend(size_t count);
  std::optional<std::vector<Candidate>> candidates();
  bool tryAt(const Candidate &candidate, size_t count);

  size_t intervals;
  int64_t capacity, work;
  std::vector<Buffer> buffers; // most preferred first
  std::vector<int64_t> rest;   // by position: bytes still to be placed
  int64_t floor = 0;           // offset of the buffer placed last
  std::vector<Candidate> scratch;
  std::vector<int> unseen;
};

/// Returns a pseudo-random factor between 0.5 and 1.5, the same on every
/// machine.
double shake(unsigned seed, size_t index) {
  if (seed == 0)
    return 1;
  uint64_t bits =
      (index + 1) * 0x9E3779B97F4A7C15u + seed * 0xD1B54A32D192ED03u;
  bits = (bits ^ bits >> 29) * 0xBF58476D1CE4E5B9u; // splitmix64's mixing
  return 0.5 + double((bits ^ bits >> 32) % 1024) / 1024;
}

Search::Search(const std::vector<Interval> &all, int64_t capacity,
               const SearchOptions &options)
    : intervals(all.size()), capacity(capacity), work(options.work) {
  // The live bytes grow only where a buffer begins, so only those positions
  // count.
  std::vector<int> begins;
  for (const Interval &interval : all)
    if (interval.bytes > 0)
      begins.push_back(interval.begin);
  std::sort(begins.begin(), begins.end());
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  rest.assign(begins.size(), 0);
  for (size_t i = 0; i < all.size(); ++i) {
    const Interval &interval = all[i];
    if (interval.bytes == 0)
      continue;
    // Positions are indices into `begins`: a buffer covers those in its [begin,
    // end].
    auto position = [&](auto iterator) {
      return static_cast<int>(iterator - begins.begin());
    };
    Buffer buffer{
        i, interval.bytes, interval.alignment,
        position(
            std::lower_bound(begins.begin(), begins.end(), interval.begin)),
        position(std::upper_bound(begins.begin(), begins.end(), interval.end))};
    for (int p = buffer.begin; p < buffer.end; ++p)
      rest[p] += buffer.bytes;
    buffers.push_back(buffer);
  }
  sortByPreference(options);
}

void Search::sortByPreference(const SearchOptions &options) {
  // One per interval; buffers of 0 bytes have no entry in `buffers`.
  std::vector<double> value(intervals);
  for (const Buffer &b : buffers) {
    double length = b.end - b.begin;
    double v =
        options.preference == Preference::Length ? length
        : options.preference == Preference::Area
            ? length * b.bytes
            : *std::max_element(rest.begin() + b.begin, rest.begin() + b.end);
    value[b.index] = v * shake(options.seed, b.index);
  }
  std::sort(buffers.begin(), buffers.end(),
            [&](const Buffer &a, const Buffer &b) {
              return std::tuple(-value[a.index], -a.bytes, a.index) <
                     std::tuple(-value[b.index], -b.bytes, b.index);
            });
}

/// Returns the buffers that may be placed next, lowest first, or nullopt at a
/// dead end.
std::optional<std::vector<Search::Candidate>> Search::candidates() {
  scratch.clear();
  int64_t lowestTop = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Buffer &b = buffers[i];
    if (b.placed)
      continue;
    // Offsets never decrease, so no buffer can go below the one placed last.
    int64_t offset = std::max(b.offset, roundUp(floor, b.alignment));
    lowestTop = std::min(lowestTop, offset + b.bytes);
    scratch.push_back({offset, static_cast<int>(i)});
  }
  std::sort(scratch.begin(), scratch.end());
  work -= buffers.size() + 4 * scratch.size() + rest.size();

  // Each position is tested once, with the lowest remaining buffer that is live
  // there. `unseen` is a union-find list that skips positions already tested.
  unseen.resize(rest.size() + 1);
  std::iota(unseen.begin(), unseen.end(), 0);
  auto nextUnseen = [&](int p) {
    while (unseen[p] != p)
      p = unseen[p] = unseen[unseen[p]];
    return p;
  };
  for (const Candidate &c : scratch)
    for (int p = nextUnseen(buffers[c.buffer].begin); p < buffers[c.buffer].end;
         p = nextUnseen(p)) {
      if (c.offset + rest[p] > capacity)
        return std::nullopt;
      unseen[p] = p + 1;
    }
  // A buffer at or above `lowestTop` would leave room below it for a whole
  // other one.
  auto end =
      std::lower_bound(scratch.begin(), scratch.end(), Candidate{lowestTop, 0});
  return std::vector<Candidate>(scratch.begin(), end);
}

/// Places the buffer and continues; undoes it if that leads nowhere.
bool Search::tryAt(const Candidate &candidate, size_t count) {
  Buffer &b = buffers[candidate.buffer];
  work -= b.end - b.begin;
  // candidates() has tested each position with the lowest buffer there; this
  // one may begin higher.
  for (int p = b.begin; p < b.end; ++p)
    if (candidate.offset + rest[p] > capacity)
      return false;
  std::vector<std::pair<int, int64_t>> raised;
  work -= buffers.size();
  int64_t top = candidate.offset + b.bytes;
  // Lifts the buffers that are live with this one above it, and remembers how
  // they were.
  for (size_t i = 0; i < buffers.size(); ++i) {
    Buffer &other = buffers[i];
    if (other.placed || other.offset >= top || other.begin >= b.end ||
        b.begin >= other.end || &other == &b)
      continue;
    raised.emplace_back(i, other.offset);
    other.offset = roundUp(top, other.alignment);
  }
  // From here on `rest` counts only what is still to come.
  for (int p = b.begin; p < b.end; ++p)
    rest[p] -= b.bytes;
  int64_t lowest = std::exchange(b.offset, candidate.offset);
  b.placed = true;
  int64_t floorBefore = std::exchange(floor, candidate.offset);
  if (extend(count + 1))
    return true;
  floor = floorBefore;
  b.placed = false;
  b.offset = lowest;
  for (int p = b.begin; p < b.end; ++p)
    rest[p] += b.bytes;
  for (auto [i, offset] : raised)
    buffers[i].offset = offset;
  return false;
}

// Places the remaining buffers, of which `count` are placed already.
// Depth-first, until the work is used up.
bool Search::extend(size_t count) {
  if (count == buffers.size())
    return true;
  std::optional<std::vector<Candidate>> next = candidates();
  return next && std::any_of(next->begin(), next->end(), [&](auto &candidate) {
           return work > 0 && tryAt(candidate, count);
         });
}

SearchResult Search::run() {
  int64_t budget = work;
  SearchResult result;
  if (extend(0)) {
    result.offsets.assign(intervals, 0);
    for (const Buffer &b : buffers)
      result.offsets[b.index] = b.offset;
  } else {
    // Without work left, the search has proved nothing.
    result.impossible = work > 0;
  }
  result.work = budget - work;
  return result;
}

} // namespace

SearchResult packWithin(const std::vector<Interval> &intervals,
                        int64_t capacity, const SearchOptions &options) {
  return Search(intervals, capacity, options).run();
}

} // namespace fsdpc::schedule
