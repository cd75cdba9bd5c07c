// Builds schedules from actions, and moves the waits of reductions. A wait may
// move freely between the position where the reduction is done and its latest
// position; the choice trades live bytes for tolerance of wrong estimates.

#include "compiler/schedule/placement.h"
#include "compiler/schedule/live_profile.h"

#include <algorithm>

namespace fsdpc::schedule {

// Stable: what shares a position and a phase keeps the order of addition.
Schedule ScheduleBuilder::build() && {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry &a, const Entry &b) {
                     return std::pair(a.action.position, a.phase) <
                            std::pair(b.action.position, b.phase);
                   });
  Schedule schedule;
  schedule.actions.reserve(entries.size());
  for (const Entry &entry : entries)
    schedule.actions.push_back(entry.action);
  return schedule;
}

std::vector<int> gathersByUse(const Problem &problem) {
  std::vector<int> gathers;
  for (size_t i = 0; i < problem.collectives.size(); ++i)
    if (!startsWhenReady(problem.collectives[i]))
      gathers.push_back(static_cast<int>(i));
  std::stable_sort(gathers.begin(), gathers.end(), [&](int a, int b) {
    return problem.collectives[a].latest < problem.collectives[b].latest;
  });
  return gathers;
}

/// Returns the schedule with the waits of reductions at the positions `wait`. A
/// wait at a later gap than the start comes first in its gap; others keep their
/// place.
static Schedule moveReduceWaits(const Problem &problem,
                                const Schedule &schedule,
                                const std::vector<int> &wait) {
  std::vector<int> start(problem.collectives.size());
  for (const Action &action : schedule.actions)
    if (action.kind == ActionKind::Start)
      start[action.collective] = action.position;
  ScheduleBuilder builder;
  for (Action action : schedule.actions) {
    int id = action.collective;
    bool isReduce = problem.collectives[id].kind == CollectiveKind::Reduce;
    // EarlyStart is the first phase of a gap, so a moved wait goes in front.
    // All other actions get one phase, in which they keep their order.
    Phase phase = Phase::ReduceWait;
    if (action.kind == ActionKind::Wait && isReduce) {
      if (wait[id] > start[id])
        phase = Phase::EarlyStart;
      action.position = wait[id];
    }
    builder.add(action, phase);
  }
  return std::move(builder).build();
}

Schedule waitWhenDone(const Problem &problem, const Schedule &schedule) {
  Timeline timeline = simulate(problem, schedule);
  std::vector<int> wait(problem.collectives.size(), 0);
  for (const Action &action : schedule.actions) {
    const Collective &c = problem.collectives[action.collective];
    if (action.kind != ActionKind::Start || c.kind != CollectiveKind::Reduce)
      continue;
    const std::vector<double> &reach = timeline.reachUs;
    auto done = std::lower_bound(reach.begin() + action.position, reach.end(),
                                 timeline.finishUs[action.collective]);
    wait[action.collective] =
        std::min(c.latest, static_cast<int>(done - reach.begin()));
  }
  return moveReduceWaits(problem, schedule, wait);
}

// Greedy, in the order of the starts: each reduction keeps its buffer as long
// as the profile stays within the peak that the schedule has anyway.
Schedule waitAsLateAsHarmless(const Problem &problem,
                              const Schedule &schedule) {
  std::vector<int> wait(problem.collectives.size(), 0);
  // The live bytes of the schedule as it is.
  LiveProfile live(problem.numOps());
  for (const Tensor &t : problem.tensors)
    live.add(t.begin, t.end + 1, t.bytes);
  for (const Action &action : schedule.actions) {
    const Collective &c = problem.collectives[action.collective];
    bool isReduce = c.kind == CollectiveKind::Reduce;
    // From the start on; the free takes the bytes off again.
    if (action.kind == ActionKind::Start && !isReduce)
      live.add(action.position, problem.numOps(), c.bytes());
    else if (action.kind == ActionKind::Free)
      live.add(action.position, problem.numOps(), -c.bytes());
    else if (action.kind == ActionKind::Wait && isReduce) {
      // From the definition to the present wait.
      for (const Buffer &buffer : c.buffers)
        live.add(buffer.definition, action.position, buffer.bytes);
      wait[action.collective] = action.position;
    }
  }
  int64_t budget = live.max(0, problem.numOps());
  for (const Action &action : schedule.actions) {
    const Collective &c = problem.collectives[action.collective];
    int &position = wait[action.collective];
    if (action.kind != ActionKind::Start || c.kind != CollectiveKind::Reduce)
      continue;
    int later = live.furthest(position, c.latest, c.bytes(), budget);
    live.add(position, later, c.bytes());
    position = later;
  }
  return moveReduceWaits(problem, schedule, wait);
}

Solution withLateWaits(const Problem &problem, Solution solution) {
  Solved late =
      evaluate(problem, waitAsLateAsHarmless(problem, solution.schedule));
  auto *other = std::get_if<Solution>(&late);
  // A moved wait can shift a stall to a later collective; the sum must not
  // grow.
  if (other && other->peakBytes <= solution.peakBytes &&
      other->timeline.totalExposedUs <=
          solution.timeline.totalExposedUs + epsilonUs)
    return std::move(*other);
  return solution;
}

} // namespace fsdpc::schedule
