// The memory packer: gives every interval (a buffer with a life time) an offset
// in one arena, so that two that are alive at once never share a byte. Dynamic
// storage allocation is NP-hard; the orders tried here are those of greedy
// offset assignment (Pisarchyk and Lee, "Efficient Memory Management for Deep
// Neural Net Inference", 2020) and of a linear scan with a best-fit free list.
#ifndef FSDPC_COMPILER_SCHEDULE_PACKER_H
#define FSDPC_COMPILER_SCHEDULE_PACKER_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdpc::schedule {

/// A buffer and the positions of the program at which it is alive. The caller
/// chooses what a position is; they are only compared.
struct Interval {
  int64_t bytes = 0;
  /// The offset is a multiple of this; at least 1, need not be a power of two.
  int64_t alignment = 1;
  /// First and last position at which it is alive, both inclusive.
  int begin = 0, end = 0;
  /// Where the buffer already lies. Never moved; two of these that collide make
  /// the packing an error.
  std::optional<int64_t> fixedOffset;
  /// How diagnostics name it.
  std::string label;
};

struct PackerOptions {
  /// Stop searching when peak ≤ (1 + gap) × lower bound …
  double gap = 0.01;
  /// … and, where set, peak ≤ cap: a hard cap is worth more search than the
  /// gap.
  std::optional<int64_t> cap;
  /// Upper bound of the placed intervals that the offline orders and the local
  /// search look at, in all (about 1 ns each). Work is counted, never timed, so
  /// that the result is the same on every machine. The linear scan, which is
  /// O(n log n), always runs.
  int64_t work = 100'000'000;
  /// Whether exact searches follow where the orders leave a gap. Solvers pack
  /// hundreds of schedules and do without; the arena is packed once.
  bool exact = false;
};

/// The offsets, one an interval, in the order of the input. An interval of no
/// bytes lies at 0.
struct Packing {
  std::vector<int64_t> offsets;
  /// Bytes of the arena: the largest offset + bytes.
  int64_t peak = 0;
  /// Most bytes alive at one position: no packing has a smaller peak.
  int64_t lowerBound = 0;
  /// Empty, or why there is no packing (an ill-formed interval, two fixed ones
  /// that overlap); the offsets are then empty.
  std::string error;
};

/// Packs `intervals`. Deterministic.
Packing pack(const std::vector<Interval> &intervals,
             const PackerOptions &options = {});

/// The empty string if `offsets` is a packing of `intervals`; otherwise a
/// message that names the interval that is misplaced or the two that overlap.
std::string verify(const std::vector<Interval> &intervals,
                   const std::vector<int64_t> &offsets);

/// Most bytes alive at one position, and the first such position (-1 if nothing
/// is ever alive).
struct LivePeak {
  int64_t bytes = 0;
  int position = -1;
};
LivePeak livePeak(const std::vector<Interval> &intervals);

} // namespace fsdpc::schedule

#endif // FSDPC_COMPILER_SCHEDULE_PACKER_H
