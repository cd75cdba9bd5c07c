// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory packer: gives every interval (a buffer with a live range) an
// offset in one arena, such that two buffers that are live at once never share
// a byte. Dynamic storage allocation is NP-hard; the orders tried here are
// those of greedy offset assignment (Pisarchyk and Lee, "Efficient Memory
// Management for Deep Neural Net Inference", 2020) and of a linear scan with a
// best-fit free list.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdpc::schedule {

/// A buffer and the positions of the program at which it is live. Positions are
/// only compared, so the caller chooses what they mean.
struct Interval {
  int64_t bytes = 0;
  /// The offset is a multiple of this. At least 1, not necessarily a power of
  /// two.
  int64_t alignment = 1;
  /// The first and last position at which it is live, both inclusive.
  int begin = 0, end = 0;
  /// The offset of a buffer that is placed already. It is never moved; two such
  /// buffers that collide make the packing an error.
  std::optional<int64_t> fixedOffset;
  /// Its name in diagnostics.
  std::string label;
};

struct PackerOptions {
  /// Stop searching when peak ≤ (1 + gap) × lower bound …
  double gap = 0.01;
  /// … and, if set, peak ≤ cap: meeting a hard cap is worth more search than
  /// meeting the gap.
  std::optional<int64_t> cap;
  /// Upper bound on the number of placed intervals that the offline orders and
  /// the local search look at (about 1 ns each). Work is counted, never timed,
  /// so the result is the same on every machine. The linear scan, which is O(n
  /// log n), always runs.
  int64_t work = 100'000'000;
  /// Also runs exact searches if the orders leave a gap. Solvers pack hundreds
  /// of schedules and do without; the arena is packed once.
  bool exact = false;
};

/// One offset per interval, in the order of the input. An interval of 0 bytes
/// has offset 0.
struct Packing {
  std::vector<int64_t> offsets;
  /// Bytes of the arena: the largest offset + bytes.
  int64_t peak = 0;
  /// The most bytes live at one position: no packing has a smaller peak.
  int64_t lowerBound = 0;
  /// Empty, or why there is no packing (an ill-formed interval, two fixed ones
  /// that overlap), in which case the offsets are empty.
  std::string error;
};

/// Packs `intervals`. Deterministic.
Packing pack(const std::vector<Interval> &intervals,
             const PackerOptions &options = {});

/// Returns "" if `offsets` is a packing of `intervals`, else a message that
/// names the misplaced interval or the two that overlap.
std::string verify(const std::vector<Interval> &intervals,
                   const std::vector<int64_t> &offsets);

/// The most bytes live at one position, and the first such position (-1 if
/// nothing is ever live).
struct LivePeak {
  int64_t bytes = 0;
  int position = -1;
};
LivePeak livePeak(const std::vector<Interval> &intervals);

} // namespace fsdpc::schedule
