// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a function forward in time under a budget of live bytes, and writes the
// schedule on the way. Reductions start when they are ready, and gathers in the
// order of their uses. The walk chooses how early each gather starts and how
// late each reduction is waited for, both paid for in bytes: at
// each gap, the next gathers start if their buffers fit into the budget up to
// their first use, and a ready reduction keeps its buffer until it is done or
// as long as it fits. Live bytes are a segment tree, so a walk is O(n log n).
#pragma once

#include "compiler/schedule/placement.h"

#include <vector>

namespace fsdpc::schedule {

/// Says how a walk trades time for memory.
struct Policy {
  /// True if gathers go before reductions in a gap.
  bool gathersFirst;
  /// When the ops reach each position, by a schedule that may be similar.
  std::vector<double> reach;
  /// The position from which each gather may start, in the order of use.
  std::vector<int> firstStarts;
};

/// A schedule, and the most bytes that are live at one of its ops.
struct Walk {
  Schedule schedule;
  int64_t liveBytes = 0;
};

/// Data that all walks of one problem share: sorted ids, and the memory without
/// prefetch.
class BudgetWalk {
public:
  explicit BudgetWalk(const Problem &problem);
  /// Returns a schedule whose live bytes stay within the budget where that is
  /// possible: a gather that is needed starts in any case.
  Walk walk(const Policy &policy, int64_t budget) const;
  /// Returns, for each gather in the order of use, the last position from which
  /// it and the gathers after it are done in time, each taking `slack` times
  /// its duration, if the ops run at the times of `timeline`.
  std::vector<int> lastStarts(const Timeline &timeline, double slack) const;
  /// The peak of live bytes if nothing is prefetched and every reduction is
  /// waited for at once. No schedule needs less.
  int64_t leastBytes() const { return bytes.max(0, n); }

private:
  struct State;
  void startReady(State &state, const Policy &policy, int64_t budget) const;
  void startGathers(State &state, const Policy &policy, int64_t budget) const;
  void live(State &state, int end, int64_t more, bool counts) const;

  const Problem &problem;
  int n;
  /// Ids sorted by first use, by free, and by the position where they are
  /// ready.
  std::vector<int> gathers, byFree, byReady;
  /// The memory without prefetch, and the gathers that are live then. A walk
  /// adds to both and takes it off again, which is less than a copy per walk.
  mutable LiveProfile bytes, count;
};

} // namespace fsdpc::schedule
