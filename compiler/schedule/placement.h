// What the solvers share: lining up actions that share a gap, and moving the
// waits of reductions to where they cost nothing.
#ifndef FSDPC_COMPILER_SCHEDULE_PLACEMENT_H
#define FSDPC_COMPILER_SCHEDULE_PLACEMENT_H

#include "compiler/schedule/problem.h"
#include "compiler/schedule/solvers.h"

#include <vector>

namespace fsdpc::schedule {

/// Exposed times closer than this count as equal, so that rounding decides
/// nothing.
constexpr double epsilonUs = 1e-6;

/// The order of actions in one gap. Memory is given back before it is taken;
/// reductions come before gathers, for their sources are alive already.
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
  /// Actions of one position and phase keep the order of their addition.
  Schedule build() &&;

private:
  struct Entry {
    Action action;
    Phase phase;
  };
  std::vector<Entry> entries;
};

/// Gathers that are freed, by first use: the order in which all solvers start
/// them, so that no channel runs a gather that is needed later first.
std::vector<int> gathersByUse(const Problem &problem);

/// A collective that starts as soon as it is ready: all but gathers that are
/// freed.
inline bool startsWhenReady(const Collective &c) {
  return c.kind == CollectiveKind::Reduce || !c.lastUse;
}

/// Moves the waits of reductions, each to the first position at which it is
/// done by the timeline. Nothing is exposed that was not.
Schedule waitWhenDone(const Problem &problem, const Schedule &schedule);

/// Moves the waits of reductions later, as far as the bytes alive nowhere
/// exceed the present peak: durations are estimates, and a late wait forgives.
Schedule waitAsLateAsHarmless(const Problem &problem, const Schedule &schedule);

/// `solved` with late waits if they cost no byte of the packed peak.
Solution withLateWaits(const Problem &problem, Solution solution);

/// The schedules of none_prefetch.cpp and pre_post.cpp, also candidates of the
/// auto solver. With `syncReduces` reductions are waited for where they start.
Schedule noneSchedule(const Problem &problem);
Schedule prePostSchedule(const Problem &problem, Prefetch mode,
                         bool syncReduces);

} // namespace fsdpc::schedule

#endif // FSDPC_COMPILER_SCHEDULE_PLACEMENT_H
