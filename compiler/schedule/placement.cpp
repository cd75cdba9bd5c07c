// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds schedules from actions, and moves the waits of reductions. A wait may
// move freely between the position where the reduction is done and its latest
// position; the choice trades live bytes for tolerance of wrong estimates.

#include "compiler/schedule/placement.h"

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

LiveProfile leastLive(const Problem &problem) {
  int n = problem.numOps();
  LiveProfile live(n);
  for (const Tensor &t : problem.tensors)
    live.add(t.begin, t.end + 1, t.bytes);
  for (const Collective &c : problem.collectives)
    if (c.kind == CollectiveKind::Reduce)
      for (const Buffer &buffer : c.buffers)
        live.add(buffer.definition, c.earliest, buffer.bytes);
    else
      live.add(c.lastUse ? c.latest : c.earliest,
               c.lastUse ? *c.lastUse + 1 : n, c.bytes());
  return live;
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

/// Returns the live bytes of the schedule as it is.
static LiveProfile liveBytes(const Problem &problem, const Schedule &schedule) {
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
    else if (action.kind == ActionKind::Wait && isReduce)
      // The buffer lives from the definition to the present wait.
      for (const Buffer &buffer : c.buffers)
        live.add(buffer.definition, action.position, buffer.bytes);
  }
  return live;
}

// Greedy, in the order of the starts: each reduction keeps its buffer as long
// as the profile stays within the peak that the schedule has anyway.
Schedule waitAsLateAsHarmless(const Problem &problem,
                              const Schedule &schedule) {
  std::vector<int> wait(problem.collectives.size(), 0);
  for (const Action &action : schedule.actions)
    if (action.kind == ActionKind::Wait)
      wait[action.collective] = action.position;
  LiveProfile live = liveBytes(problem, schedule);
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

// Greedy, in the order of use. A gather that moves does not pass the one before
// it on the channel, so the order of starts stays the same on all ranks.
Schedule startAsEarlyAsHarmless(const Problem &problem,
                                const Schedule &schedule,
                                const std::vector<int> &firstStarts) {
  std::vector<int> start(problem.collectives.size());
  LiveProfile live = liveBytes(problem, schedule), count(problem.numOps());
  for (const Action &action : schedule.actions) {
    const Collective &c = problem.collectives[action.collective];
    if (action.kind != ActionKind::Start)
      continue;
    start[action.collective] = action.position;
    if (!startsWhenReady(c))
      count.add(action.position, *c.lastUse + 1, 1);
  }
  int64_t budget = live.max(0, problem.numOps());
  int limit = problem.options.limitAllGathers;
  std::vector<int> gathers = gathersByUse(problem), moved = start;
  for (size_t i = 0; i < gathers.size(); ++i) {
    const Collective &c = problem.collectives[gathers[i]];
    int &position = moved[gathers[i]], previous = i ? moved[gathers[i - 1]] : 0;
    int first = std::max({firstStarts[i], previous, c.earliest});
    if (first >= position)
      continue;
    int above = live.lastAbove(first, position, budget - c.bytes());
    if (limit > 0)
      above = std::max(above, count.lastAbove(first, position, limit - 1));
    live.add(above + 1, position, c.bytes());
    count.add(above + 1, position, 1);
    position = above + 1;
  }
  // A start that has moved comes last in its gap, after what frees memory.
  ScheduleBuilder builder;
  for (Action action : schedule.actions) {
    bool moves = action.kind == ActionKind::Start &&
                 moved[action.collective] < action.position;
    if (moves)
      action.position = moved[action.collective];
    builder.add(action, moves ? Phase::GatherWait : Phase::EarlyStart);
  }
  return std::move(builder).build();
}

Solution unlessWorse(const Problem &problem, Solution solution, Schedule other,
                     const PackerOptions &packer) {
  if (other.actions == solution.schedule.actions)
    return solution;
  Solved solved = evaluate(problem, std::move(other), packer);
  auto *found = std::get_if<Solution>(&solved);
  // A moved action can shift a stall to a later collective; the sum must not
  // grow.
  if (found && found->peakBytes <= solution.peakBytes &&
      found->timeline.lostUs() <= solution.timeline.lostUs() + epsilonUs)
    return std::move(*found);
  return solution;
}

Solution withLateWaits(const Problem &problem, Solution solution) {
  Schedule late = waitAsLateAsHarmless(problem, solution.schedule);
  return unlessWorse(problem, std::move(solution), std::move(late));
}

} // namespace fsdpc::schedule
