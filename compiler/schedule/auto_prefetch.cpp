// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The auto solver: least exposed time, then least memory, under the limits.
//
// The walks that may fit (prefetch_candidates.h) are known with their times
// before anything is packed. They are packed in the order of their times, and
// the first that keeps the limit is the best of them. Which walks there are
// does not depend on the limit, and what packs under a limit packs under a
// larger one, so more memory makes their best no slower. Then the winner is
// refined: its budget between two steps of the ladder, and its policy by its
// own timeline. The gain depends on the winner (the tests allow 0.5 % of a
// step). The schedules of the other solvers are candidates too, so the result
// is never worse than theirs.
//
// At last, gathers start earlier and reductions are waited for later where that
// costs no memory, since durations are estimates.

#include "compiler/schedule/auto_prefetch.h"

#include <algorithm>
#include <limits>

namespace fsdpc::schedule {

constexpr double unlimited = std::numeric_limits<double>::infinity();

// Walks get less work than the few schedules of the other solvers.
static PackerOptions quickly() {
  PackerOptions packer;
  packer.work = 10'000'000;
  return packer;
}

AutoSearch::AutoSearch(const Problem &problem)
    : problem(problem), candidates(problem),
      limit(problem.options.memoryLimit
                ? *problem.options.memoryLimit - problem.baseBytes
                : std::numeric_limits<int64_t>::max()),
      leastUs(candidates.hopedUs(limit)) {}

bool AutoSearch::isBetter(double lostUs, int64_t peakBytes) const {
  if (!best)
    return true;
  double gain = best->timeline.lostUs() - lostUs;
  return gain > epsilonUs ||
         (gain >= -epsilonUs && peakBytes < best->peakBytes);
}

bool AutoSearch::offer(Schedule schedule, const PackerOptions &packer) {
  auto [known, isNew] = packed.try_emplace({packer.work, schedule.actions});
  Packed &outcome = known->second;
  if (!isNew && !(outcome.fits && isBetter(outcome.lostUs, outcome.peakBytes)))
    return false;
  Solved solved = evaluate(problem, std::move(schedule), packer);
  if (auto *failed = std::get_if<Infeasible>(&solved)) {
    if (!nearest || failed->peakBytes < nearest->peakBytes)
      nearest = std::move(*failed);
    return false;
  }
  Solution &found = std::get<Solution>(solved);
  outcome = {true, found.timeline.lostUs(), found.peakBytes};
  if (!isBetter(outcome.lostUs, outcome.peakBytes))
    return false;
  best = std::move(found);
  return true;
}

bool AutoSearch::offer(const Candidate &candidate) {
  if (!offer(candidates.schedule(candidate), quickly()))
    return false;
  winner = candidate;
  return true;
}

// Where one cannot be packed, another that fills as much hardly can.
bool AutoSearch::offerWalks(double mostUs) {
  int64_t tooMuch = std::numeric_limits<int64_t>::max();
  for (const Candidate &walk : candidates.within(limit)) {
    if (walk.filledBytes() >= tooMuch)
      continue;
    // Raising a budget between two steps may gain this part.
    constexpr double gain = 0.1;
    if ((1 - gain) * walk.lostUs >= mostUs)
      return false;
    Candidate tight = candidates.tightened(walk, candidates.below(walk.budget));
    if (tight.liveBytes > limit)
      continue;
    if (offer(tight))
      return true;
    tooMuch = walk.filledBytes();
  }
  return true;
}

// The winner's budget has been lowered from a step of the ladder, whose walk is
// the same, so what may be faster lies up to the step above that.
void AutoSearch::raiseBudget() {
  constexpr int rounds = 5;
  int64_t fits = winner->budget,
          fails = candidates.above(candidates.above(fits));
  for (int round = 0; round < rounds; ++round) {
    int64_t middle = fits + (fails - fits) / 2;
    Candidate walk = candidates.make(winner->policy, middle);
    bool isFaster = walk.lostUs < best->timeline.lostUs() - epsilonUs;
    (walk.liveBytes <= limit && (!isFaster || offer(walk)) ? fits : fails) =
        middle;
  }
}

// The winner's timeline knows where its ops stall.
void AutoSearch::followWinner() {
  double before = unlimited;
  for (int round = 0; round < 2 && best->timeline.lostUs() < before - epsilonUs;
       ++round) {
    before = best->timeline.lostUs();
    for (const SharedPolicy &policy : candidates.policiesOf(best->timeline))
      follow(policy);
  }
}

// Offers the policy's walks under ever smaller budgets until one packs, or none
// is better than the winner.
void AutoSearch::follow(const SharedPolicy &policy) {
  constexpr int attempts = 8;
  int64_t budget = std::min(limit, candidates.mostBytes());
  for (int i = 0; i < attempts; ++i) {
    Candidate walk = candidates.make(policy, budget);
    double loss = walk.lostUs - best->timeline.lostUs();
    if (loss > epsilonUs)
      return;
    walk = candidates.tightened(walk, candidates.leastBytes());
    if (loss >= -epsilonUs &&
        problem.baseBytes + walk.liveBytes >= best->peakBytes)
      return;
    if (offer(walk))
      return;
    budget = candidates.below(std::min(budget, walk.filledBytes()));
  }
}

// These get the packer's full work, as in the other solvers: what fits there
// must fit here.
void AutoSearch::offerRules() {
  std::vector<Schedule> rules;
  for (Prefetch mode : {Prefetch::Pre, Prefetch::Post})
    for (bool syncReduces : {false, true})
      rules.push_back(prePostSchedule(problem, mode, syncReduces));
  rules.push_back(noneSchedule(problem));
  for (Schedule &rule : rules)
    if (!best ||
        simulate(problem, rule).lostUs() < best->timeline.lostUs() - epsilonUs)
      offer(std::move(rule), PackerOptions());
}

Solved AutoSearch::solve() { return *solveWithin(unlimited); }

std::optional<Solved> AutoSearch::solveWithin(double mostUs) {
  if (limit < candidates.leastBytes())
    return evaluate(problem, noneSchedule(problem), quickly());
  if (!offerWalks(mostUs))
    return std::nullopt;
  if (best) {
    raiseBudget();
    followWinner();
  }
  offerRules();
  packed.clear(); // a search is solved once
  if (!best)
    return std::move(*nearest);
  return withLateWaits(problem, withEarlyStarts(std::move(*best)));
}

// The schedule found may start gathers just in time. Where memory is left, they
// start earlier, so that a gather may take a multiple of what was estimated.
// With each multiple the packer gets another try.
Solution AutoSearch::withEarlyStarts(Solution solution) const {
  for (double slack : {1.5, 3.0}) {
    std::vector<int> firstStarts =
        candidates.lastStarts(solution.timeline, slack);
    Schedule early =
        startAsEarlyAsHarmless(problem, solution.schedule, firstStarts);
    solution =
        unlessWorse(problem, std::move(solution), std::move(early), quickly());
  }
  return solution;
}

Solved solveAuto(const Problem &problem) { return AutoSearch(problem).solve(); }

} // namespace fsdpc::schedule
