// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The walk decides gap by gap and never takes a decision back. So the exposed
// time does not grow with the budget, except for the anomalies of list
// scheduling, and a caller may search for the least budget that is enough.

#include "compiler/schedule/budget_walk.h"

#include <algorithm>
#include <map>

namespace fsdpc::schedule {

/// The state of a walk at position p and time now.
struct BudgetWalk::State {
  Schedule schedule;
  int p = 0;
  double now = 0;
  /// The next gather does not fit before this position. What is live never
  /// becomes less on the way, so it is asked for once and not at every op.
  int blockedUntil = 0;
  size_t nextGather = 0, nextWait = 0, nextFree = 0, nextReady = 0;
  std::map<int, double> channelFree;
  std::vector<double> finish;
  /// Collectives in flight, by the position of their wait.
  std::multimap<int, int> waits;
  /// The ranges that the walk has added to `bytes` and `count`.
  struct Lived {
    int begin, end;
    int64_t bytes;
    bool counts;
  };
  std::vector<Lived> lived;

  void act(ActionKind kind, int id) {
    schedule.actions.push_back({p, kind, id});
  }
  void start(const Problem &problem, int id) {
    act(ActionKind::Start, id);
    const Collective &c = problem.collectives[id];
    double &free = channelFree[c.channel];
    finish[id] = free = std::max(free, now) + c.durationUs;
  }
  void wait(int id) {
    act(ActionKind::Wait, id);
    now = std::max(now, finish[id]);
  }
};

BudgetWalk::BudgetWalk(const Problem &problem)
    : problem(problem), n(problem.numOps()), gathers(gathersByUse(problem)),
      bytes(leastLive(problem)), count(n) {
  for (size_t i = 0; i < problem.collectives.size(); ++i) {
    const Collective &c = problem.collectives[i];
    if (startsWhenReady(c))
      byReady.push_back(static_cast<int>(i));
    else
      count.add(c.latest, *c.lastUse + 1, 1);
  }
  byFree = gathers;
  std::stable_sort(byFree.begin(), byFree.end(), [&](int a, int b) {
    return problem.collectives[a].lastUse < problem.collectives[b].lastUse;
  });
  std::stable_sort(byReady.begin(), byReady.end(), [&](int a, int b) {
    return problem.collectives[a].earliest < problem.collectives[b].earliest;
  });
}

// Takes memory from here on, until the walk ends.
void BudgetWalk::live(State &state, int end, int64_t more, bool counts) const {
  bytes.add(state.p, end, more);
  if (counts)
    count.add(state.p, end, 1);
  state.lived.push_back({state.p, end, more, counts});
}

// Starts the reductions that are ready at this position, and decides where each
// is waited for.
void BudgetWalk::startReady(State &state, const Policy &policy,
                            int64_t budget) const {
  for (; state.nextReady < byReady.size(); ++state.nextReady) {
    int id = byReady[state.nextReady];
    const Collective &c = problem.collectives[id];
    if (c.earliest != state.p)
      return;
    state.start(problem, id);
    int wait = c.latest;
    if (c.kind == CollectiveKind::Reduce) {
      // The channel runs in order, so the finish is known. Where the ops are
      // by then is an estimate.
      const std::vector<double> &reach = policy.reach;
      auto done = std::lower_bound(reach.begin() + state.p, reach.end(),
                                   reach[state.p] + state.finish[id] -
                                       state.now - epsilonUs);
      wait = std::min(wait, static_cast<int>(done - reach.begin()));
      wait = bytes.furthest(state.p, wait, c.bytes(), budget);
      live(state, wait, c.bytes(), /*counts=*/false);
    }
    if (wait == state.p)
      state.wait(id);
    else
      state.waits.emplace(wait, id);
  }
}

// Starts the next gathers in the order of their uses. A gather whose first use
// is here must start, even over the budget.
void BudgetWalk::startGathers(State &state, const Policy &policy,
                              int64_t budget) const {
  int limit = problem.options.limitAllGathers;
  for (; state.nextGather < gathers.size(); ++state.nextGather) {
    int id = gathers[state.nextGather], p = state.p;
    const Collective &c = problem.collectives[id];
    if (c.latest > p) {
      if (p <
          std::max(policy.firstStarts[state.nextGather], state.blockedUntil))
        return;
      int above = bytes.lastAbove(p, c.latest, budget - c.bytes());
      if (limit > 0)
        above = std::max(above, count.lastAbove(p, c.latest, limit - 1));
      state.blockedUntil = above + 1;
      if (p < state.blockedUntil)
        return;
    }
    state.start(problem, id);
    state.blockedUntil = 0;
    live(state, c.latest, c.bytes(), /*counts=*/true);
  }
}

std::vector<int> BudgetWalk::lastStarts(const Timeline &timeline,
                                        double slack) const {
  const std::vector<double> &reach = timeline.reachUs;
  std::vector<int> last(gathers.size());
  double due = timeline.stepUs;
  for (size_t i = gathers.size(); i-- > 0;) {
    const Collective &c = problem.collectives[gathers[i]];
    // When the op that reads it begins, after the waits of its gap.
    double used = reach[c.latest + 1] - problem.ops[c.latest].durationUs;
    due = std::min(due, used) - slack * c.durationUs;
    auto after = std::upper_bound(reach.begin(), reach.end(), due + epsilonUs);
    last[i] = std::clamp(int(after - reach.begin()) - 1, c.earliest, c.latest);
  }
  return last;
}

// At each position waits come first, then frees, starts, and the waits of
// gathers that are used here: memory is released before it is taken.
Walk BudgetWalk::walk(const Policy &policy, int64_t budget) const {
  State state;
  state.finish.assign(problem.collectives.size(), 0);
  for (; state.p <= n; ++state.p) {
    for (; !state.waits.empty() && state.waits.begin()->first == state.p;
         state.waits.erase(state.waits.begin()))
      state.wait(state.waits.begin()->second);
    for (; state.nextFree < byFree.size(); ++state.nextFree) {
      int id = byFree[state.nextFree];
      if (*problem.collectives[id].lastUse + 1 != state.p)
        break;
      state.act(ActionKind::Free, id);
    }
    if (policy.gathersFirst)
      startGathers(state, policy, budget);
    startReady(state, policy, budget);
    if (!policy.gathersFirst)
      startGathers(state, policy, budget);
    for (; state.nextWait < gathers.size(); ++state.nextWait) {
      if (problem.collectives[gathers[state.nextWait]].latest != state.p)
        break;
      state.wait(gathers[state.nextWait]);
    }
    if (state.p < n)
      state.now += problem.ops[state.p].durationUs;
  }
  int64_t most = bytes.max(0, n);
  for (const State::Lived &each : state.lived) {
    bytes.add(each.begin, each.end, -each.bytes);
    if (each.counts)
      count.add(each.begin, each.end, -1);
  }
  return {std::move(state.schedule), most};
}

} // namespace fsdpc::schedule
