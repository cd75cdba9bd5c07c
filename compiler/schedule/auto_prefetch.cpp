// The auto solver: least exposed time, then least memory, under the limits.
//
// It offers walks (budget_walk.h) to the packer. A walk needs a budget of
// bytes, the position from which each gather may start, and an estimate of when
// the ops reach each position. The last two come from a timeline: that of the
// ops alone, then that of a step with unlimited memory, then that of the best
// schedule so far, which knows where the ops stall. Per timeline a gather may
// start at any time, or just in time, or in time for twice its duration.
//
// For each of these a binary search finds the least budget that exposes no more
// than the full one does. The packer only confirms: if the packed peak is above
// the cap, the budget shrinks, if necessary below what the function takes
// without prefetch. There is then no prefetch around the function's peak, and
// elsewhere holes between large buffers do no harm. The schedules of the other
// solvers are candidates too, so the result is never worse than theirs.
//
// At last, gathers start earlier and reductions are waited for later where that
// costs no memory, since durations are estimates.

#include "compiler/schedule/budget_walk.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace fsdpc::schedule {

namespace {

constexpr double unlimited = std::numeric_limits<double>::infinity();

class AutoSolver {
public:
  explicit AutoSolver(const Problem &problem)
      : problem(problem), walks(problem) {}
  Solved run();

private:
  double exposed(const Schedule &schedule) const {
    return simulate(problem, schedule).lostUs();
  }
  double exposed(const Policy &policy, int64_t budget) const {
    return exposed(walks.walk(policy, budget));
  }
  /// Returns roughly the least budget at which the policy exposes at most
  /// `most`.
  int64_t tighten(const Policy &policy, int64_t budget, double most) const;
  /// Offers walks of the policy under ever smaller budgets until one packs, or
  /// exposes more than the best solution.
  void search(const Policy &policy, int64_t budget);
  /// Searches with all policies that follow from a timeline. `atOnce` are the
  /// first positions at which the gathers can start.
  void searchAll(const Timeline &timeline, const std::vector<int> &atOnce,
                 int64_t budget);
  /// Packs the schedule and keeps it if it is feasible and better. Returns the
  /// bytes by which the packed peak exceeds the cap, 0 if it does not.
  int64_t offer(Schedule schedule, const PackerOptions &packer);
  /// Returns true if the schedule exposes as much as the best and would not
  /// need less memory however it is packed.
  bool cannotWin(const Schedule &schedule) const;
  /// Returns the solution with early starts where they cost neither time nor
  /// memory.
  Solution withEarlyStarts(Solution solution) const;

  const Problem &problem;
  BudgetWalk walks;
  int offers = 0;
  std::optional<Solution> best;
  std::optional<Infeasible> nearest; ///< the smallest peak above the cap
};

bool AutoSolver::cannotWin(const Schedule &schedule) const {
  if (!best || exposed(schedule) < best->timeline.lostUs() - epsilonUs)
    return false;
  int64_t live = livePeak(liveIntervals(problem, schedule)).bytes;
  return problem.baseBytes + live >= best->peakBytes;
}

int64_t AutoSolver::offer(Schedule schedule, const PackerOptions &packer) {
  if (cannotWin(schedule))
    return 0;
  Solved solved = evaluate(problem, std::move(schedule), packer);
  if (auto *failed = std::get_if<Infeasible>(&solved)) {
    int64_t excess = failed->peakBytes - failed->capBytes;
    if (!nearest || failed->peakBytes < nearest->peakBytes)
      nearest = std::move(*failed);
    return excess;
  }
  Solution &found = std::get<Solution>(solved);
  double gain =
      best ? best->timeline.lostUs() - found.timeline.lostUs() : unlimited;
  if (gain > epsilonUs ||
      (gain >= -epsilonUs && found.peakBytes < best->peakBytes))
    best = std::move(found);
  return 0;
}

int64_t AutoSolver::tighten(const Policy &policy, int64_t budget,
                            double most) const {
  // The lower end is slightly below the function's own peak: prefetch around
  // the peak costs nothing then, and the packer gets room elsewhere.
  constexpr int64_t share = 32;
  int64_t fails = walks.leastBytes() - walks.leastBytes() / share - 1,
          works = budget;
  // Differences below a thousandth of the peak drown in alignment.
  while (works - fails > std::max<int64_t>(1, works / 1000)) {
    int64_t middle = fails + (works - fails) / 2;
    (exposed(policy, middle) <= most + epsilonUs ? works : fails) = middle;
  }
  return works;
}

void AutoSolver::search(const Policy &policy, int64_t budget) {
  // Below the least bytes nothing can be saved at the peak itself; prefetch
  // shrinks in a neighbourhood of the peak that grows with each attempt.
  int64_t below = walks.leastBytes() / 128;
  constexpr int attempts = 8;
  for (int i = 0; i < attempts; ++i) {
    double least = exposed(policy, budget);
    if (best && least > best->timeline.lostUs() + epsilonUs)
      return;
    int64_t room = budget - walks.leastBytes();
    if (room > 0)
      budget = tighten(policy, budget, least);
    // Later offers are less likely to be better, so they get less work; the sum
    // stays bounded.
    PackerOptions quick;
    quick.work = 20'000'000 / (1 + offers++ / 4);
    int64_t excess = offer(walks.walk(policy, budget), quick);
    if (excess <= 0)
      return;
    room = budget - walks.leastBytes();
    if (i == 0 && room > excess) {
      budget -= excess;
    } else if (room > 0) {
      budget = walks.leastBytes();
    } else {
      budget -= below;
      below *= 2;
    }
  }
}

// The most promising policy goes first, so that the others are often skipped.
void AutoSolver::searchAll(const Timeline &timeline,
                           const std::vector<int> &atOnce, int64_t budget) {
  std::vector<std::pair<double, Policy>> ranked;
  for (const std::vector<int> &firstStarts :
       {atOnce, walks.lastStarts(timeline, 2), walks.lastStarts(timeline, 1)})
    for (bool gathersFirst : {false, true}) {
      Policy policy{gathersFirst, timeline.reachUs, firstStarts};
      double least = exposed(policy, budget);
      ranked.emplace_back(least, std::move(policy));
    }
  std::stable_sort(
      ranked.begin(), ranked.end(),
      [](const auto &a, const auto &b) { return a.first < b.first; });
  for (const auto &[least, policy] : ranked)
    search(policy, budget);
}

Solved AutoSolver::run() {
  // Without a cap, the budget is the sum of all buffers.
  int64_t budget = 0;
  for (const Tensor &t : problem.tensors)
    budget += t.bytes;
  for (const Collective &c : problem.collectives)
    budget += c.bytes();
  int64_t all = budget;
  if (problem.options.memoryLimit)
    budget = std::min(budget, *problem.options.memoryLimit - problem.baseBytes);

  if (budget < walks.leastBytes())
    return evaluate(problem, noneSchedule(problem));

  // Where the gathers may start is derived from the times at which their uses
  // are reached: those of the ops alone, of a step with unlimited memory, and
  // of the best schedule so far.
  std::vector<int> atOnce;
  for (int id : gathersByUse(problem))
    atOnce.push_back(problem.collectives[id].earliest);
  Timeline compute = simulate(problem, Schedule());
  Timeline free =
      simulate(problem, walks.walk({true, compute.reachUs, atOnce}, all));
  searchAll(compute, atOnce, budget);
  searchAll(free, atOnce, budget);
  for (int round = 0; round < 2 && best; ++round) {
    double before = best->timeline.lostUs();
    searchAll(Timeline(best->timeline), atOnce, budget);
    if (best->timeline.lostUs() > before - epsilonUs)
      break;
  }

  // The schedules of the other solvers get the packer's full work, as in those
  // solvers: what fits there must fit here.
  std::vector<Schedule> rules;
  for (Prefetch mode : {Prefetch::Pre, Prefetch::Post})
    for (bool syncReduces : {false, true})
      rules.push_back(prePostSchedule(problem, mode, syncReduces));
  rules.push_back(noneSchedule(problem));
  for (Schedule &schedule : rules)
    if (!best || exposed(schedule) < best->timeline.lostUs() - epsilonUs)
      offer(std::move(schedule), PackerOptions());

  if (!best)
    return std::move(*nearest);
  return withLateWaits(problem, withEarlyStarts(std::move(*best)));
}

// The schedule found may start gathers just in time. Where memory is left, they
// start earlier, so that a gather may take a multiple of what was estimated.
// With each multiple the packer gets another try.
Solution AutoSolver::withEarlyStarts(Solution solution) const {
  PackerOptions quick;
  quick.work = 10'000'000;
  for (double slack : {1.5, 3.0}) {
    std::vector<int> firstStarts = walks.lastStarts(solution.timeline, slack);
    Schedule early =
        startAsEarlyAsHarmless(problem, solution.schedule, firstStarts);
    solution =
        unlessWorse(problem, std::move(solution), std::move(early), quick);
  }
  return solution;
}

} // namespace

Solved solveAuto(const Problem &problem) { return AutoSolver(problem).run(); }

} // namespace fsdpc::schedule
