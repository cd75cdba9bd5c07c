// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The schedules that the auto solver chooses from: walks (budget_walk.h) under
// a ladder of budgets that does not depend on the memory limit. So a schedule
// that fits a limit is a candidate under larger ones too, and more memory does
// not make the best of them worse. (Of budgets far below the limit only one in
// four is tried, since a walk there wins only if all above it cannot be
// packed.)
#pragma once

#include "compiler/schedule/budget_walk.h"

#include <algorithm>
#include <memory>

namespace fsdpc::schedule {

using SharedPolicy = std::shared_ptr<const Policy>;

/// A walk, with what it costs before it is packed.
struct Candidate {
  SharedPolicy policy;
  int64_t budget = 0;
  double lostUs = 0;
  int64_t liveBytes = 0; ///< no packing of it is smaller

  /// Returns the bytes up to which prefetching fills the memory. Live bytes
  /// exceed a budget only where the function itself does.
  int64_t filledBytes() const { return std::min(budget, liveBytes); }
};

class PrefetchCandidates {
public:
  explicit PrefetchCandidates(const Problem &problem);

  /// Returns walks whose live bytes, when they are tightened, may be within
  /// `limit`: the fastest first, and among equals those of least memory.
  std::vector<Candidate> within(int64_t limit) const;
  /// Returns the time beyond its ops that a step has if all that is live within
  /// the limit can be packed; infinity if that is nothing.
  double hopedUs(int64_t limit) const;
  /// Returns the time beyond its ops that a step of unlimited memory has.
  double freeUs() const { return unlimited.front().lostUs; }
  /// Returns the walk of the same policy under the least budget above `fails`
  /// that loses no more, or under about as much.
  Candidate tightened(const Candidate &walk, int64_t fails) const;
  /// Returns the walk of a policy under any budget.
  Candidate make(SharedPolicy policy, int64_t budget) const;
  Schedule schedule(const Candidate &candidate) const {
    return walks.walk(*candidate.policy, candidate.budget).schedule;
  }
  /// Returns the next budget of the ladder above this one, or this one if there
  /// is none.
  int64_t above(int64_t budget) const;
  /// Returns the last budget of the ladder below this one, or this one if there
  /// is none.
  int64_t below(int64_t budget) const;
  /// Returns the policies that follow from a timeline.
  std::vector<SharedPolicy> policiesOf(const Timeline &timeline) const;
  /// As BudgetWalk's.
  std::vector<int> lastStarts(const Timeline &timeline, double slack) const {
    return walks.lastStarts(timeline, slack);
  }
  int64_t leastBytes() const { return walks.leastBytes(); }
  /// Returns the budget beyond which nothing gets faster.
  int64_t mostBytes() const { return ladder.back(); }

private:
  void makeLadder(int64_t most);
  /// Returns the walks under the first budgets below the limit and the one
  /// above it, and further below under one in `stride` of them
  /// (0: none).
  std::vector<Candidate> under(int64_t limit, int near, int stride) const;
  /// Adds the walks of all policies under one budget.
  void add(int64_t budget, std::vector<Candidate> &candidates) const;

  const Problem &problem;
  BudgetWalk walks;
  std::vector<int> atOnce; ///< the first positions at which gathers can start
  std::vector<SharedPolicy> policies; ///< that do not depend on a budget
  std::vector<int64_t> ladder;        ///< ascending
  std::vector<Candidate> unlimited;   ///< walks that no budget limits
};

} // namespace fsdpc::schedule
