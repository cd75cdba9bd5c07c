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
  LiveProfile bytes, count;
  int p = 0;
  double now = 0;
  size_t nextGather = 0, nextWait = 0, nextFree = 0, nextReady = 0;
  std::map<int, double> channelFree;
  std::vector<double> finish;
  /// Collectives in flight, by the position of their wait.
  std::multimap<int, int> waits;

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
      wait = state.bytes.furthest(state.p, wait, c.bytes(), budget);
      state.bytes.add(state.p, wait, c.bytes());
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
    bool needed = c.latest == p;
    bool allowed = policy.firstStarts[state.nextGather] <= p &&
                   state.bytes.max(p, c.latest) + c.bytes() <= budget &&
                   (limit == 0 || state.count.max(p, c.latest) + 1 <= limit);
    if (!needed && !allowed)
      return;
    state.start(problem, id);
    state.bytes.add(p, c.latest, c.bytes());
    state.count.add(p, c.latest, 1);
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
  State state{{}, bytes, count, 0, 0, 0, 0, 0, 0, {}, {}, {}};
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
  return {std::move(state.schedule), state.bytes.max(0, n)};
}

} // namespace fsdpc::schedule
