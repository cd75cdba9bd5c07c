// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Helpers of the solvers: ordering the actions of one gap, and moving the waits
// of reductions to where they cost nothing.
#pragma once

#include "compiler/schedule/live_profile.h"
#include "compiler/schedule/problem.h"
#include "compiler/schedule/solvers.h"

#include <vector>

namespace fsdpc::schedule {

/// Exposed times that differ by less count as equal, so that rounding errors do
/// not decide.
constexpr double epsilonUs = 1e-6;

/// The order of actions in one gap. Memory is released before it is taken.
/// Reductions come before gathers, since their sources are alive already.
enum class Phase {
  EarlyStart, ///< a gather that `post` starts before the free and the reduction
  ReduceWait, ///< of a reduction started at an earlier position
  Free,
  ReadyStart, ///< of a reduction or persistent gather, and its wait if at once
  GatherStart,
  GatherWait,
};

/// Collects actions in any order and lists them in program order.
class ScheduleBuilder {
public:
  void add(Action action, Phase phase) { entries.push_back({action, phase}); }
  /// Returns the schedule. Actions with equal position and phase keep the order
  /// in which they were added.
  Schedule build() &&;

private:
  struct Entry {
    Action action;
    Phase phase;
  };
  std::vector<Entry> entries;
};

/// Returns the gathers that are freed, sorted by first use. All solvers start
/// them in this order, so that no channel is busy with a gather that is needed
/// later.
std::vector<int> gathersByUse(const Problem &problem);

/// Returns true for a collective that starts as soon as it is ready: all except
/// gathers that are freed.
inline bool startsWhenReady(const Collective &c) {
  return c.kind == CollectiveKind::Reduce || !c.lastUse;
}

/// Returns the bytes at each op that are live under every schedule: tensors,
/// gathers from their first to their last use, and reductions until they are
/// ready.
LiveProfile leastLive(const Problem &problem);

/// Moves each wait of a reduction to the first position at which the timeline
/// has it done. This adds no exposed time.
Schedule waitWhenDone(const Problem &problem, const Schedule &schedule);

/// Moves the waits of reductions later, as far as the live bytes stay within
/// the present peak. Durations are estimates, and a late wait forgives an
/// error.
Schedule waitAsLateAsHarmless(const Problem &problem, const Schedule &schedule);

/// Moves the starts of gathers earlier, not before `firstStarts` (a position
/// for each of `gathersByUse`) and as far as the live bytes stay within the
/// present peak. An early start forgives an error of the estimates as well.
Schedule startAsEarlyAsHarmless(const Problem &problem,
                                const Schedule &schedule,
                                const std::vector<int> &firstStarts);

/// Returns the solution with the schedule `other` if that exposes no more and
/// needs no more memory, else the solution as it is.
Solution unlessWorse(const Problem &problem, Solution solution, Schedule other,
                     const PackerOptions &packer = {});

/// Returns the solution with late waits if they do not raise the packed peak,
/// else the solution as it is.
Solution withLateWaits(const Problem &problem, Solution solution);

/// The schedules of none_prefetch.cpp and pre_post.cpp, which are also
/// candidates of the auto solver. With `syncReduces`, reductions are waited for
/// where they start.
Schedule noneSchedule(const Problem &problem);
Schedule prePostSchedule(const Problem &problem, Prefetch mode,
                         bool syncReduces);

} // namespace fsdpc::schedule
