// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A walk needs a budget of bytes, the position from which each gather may
// start, and an estimate of when the ops reach each position. The last two come
// from a timeline: that of the ops alone, that of a step with unlimited memory,
// and that of the fastest walk under the same budget, which knows where the ops
// stall. Per timeline a gather may start at any time, or just in time, or in
// time for twice its duration.
#include "compiler/schedule/prefetch_candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fsdpc::schedule {

// Times that differ by less than epsilonUs count as equal.
static bool isFaster(const Candidate &a, const Candidate &b) {
  auto key = [](const Candidate &c) {
    return std::pair(std::llround(c.lostUs / epsilonUs), c.liveBytes);
  };
  return key(a) < key(b);
}

static void sortByTime(std::vector<Candidate> &candidates) {
  std::stable_sort(candidates.begin(), candidates.end(), isFaster);
}

PrefetchCandidates::PrefetchCandidates(const Problem &problem)
    : problem(problem), walks(problem) {
  for (int id : gathersByUse(problem))
    atOnce.push_back(problem.collectives[id].earliest);
  // More than all buffers together is never live.
  int64_t all = 0;
  for (const Tensor &t : problem.tensors)
    all += t.bytes;
  for (const Collective &c : problem.collectives)
    all += c.bytes();
  Timeline compute = simulate(problem, Schedule());
  Walk free = walks.walk({true, compute.reachUs, atOnce}, all);
  policies = policiesOf(compute);
  for (SharedPolicy &policy : policiesOf(simulate(problem, free.schedule)))
    policies.push_back(std::move(policy));
  int64_t most = free.liveBytes;
  for (const SharedPolicy &policy : policies)
    most = std::max(most, make(policy, all).liveBytes);
  makeLadder(most);
  add(ladder.back(), unlimited);
  sortByTime(unlimited);
}

// A budget slightly below the least live bytes exceeds only around the peak of
// the function: nothing is prefetched there, and the packer gets room.
void PrefetchCandidates::makeLadder(int64_t most) {
  constexpr int64_t steps = 64;
  int64_t least = walks.leastBytes();
  for (int64_t below : {64, 32, 16, 8, 4, 2, 1})
    ladder.push_back(least - least / 256 * below);
  for (int64_t step = 0; step <= steps; ++step)
    ladder.push_back(least + (most - least) * step / steps);
}

std::vector<SharedPolicy>
PrefetchCandidates::policiesOf(const Timeline &timeline) const {
  std::vector<SharedPolicy> found;
  for (const std::vector<int> &firstStarts :
       {atOnce, walks.lastStarts(timeline, 2), walks.lastStarts(timeline, 1)})
    for (bool gathersFirst : {false, true})
      found.push_back(std::make_shared<Policy>(
          Policy{gathersFirst, timeline.reachUs, firstStarts}));
  return found;
}

Candidate PrefetchCandidates::make(SharedPolicy policy, int64_t budget) const {
  Walk walk = walks.walk(*policy, budget);
  double lostUs = simulate(problem, walk.schedule).lostUs();
  return {std::move(policy), budget, lostUs, walk.liveBytes};
}

void PrefetchCandidates::add(int64_t budget,
                             std::vector<Candidate> &candidates) const {
  std::vector<Candidate> found;
  for (const SharedPolicy &policy : policies)
    found.push_back(make(policy, budget));
  Candidate fastest = *std::min_element(found.begin(), found.end(), isFaster);
  for (SharedPolicy &policy : policiesOf(simulate(problem, schedule(fastest))))
    found.push_back(make(std::move(policy), budget));
  candidates.insert(candidates.end(), found.begin(), found.end());
}

int64_t PrefetchCandidates::above(int64_t budget) const {
  auto next = std::upper_bound(ladder.begin(), ladder.end(), budget);
  return next == ladder.end() ? budget : *next;
}

int64_t PrefetchCandidates::below(int64_t budget) const {
  auto step = std::lower_bound(ladder.begin(), ladder.end(), budget);
  return step == ladder.begin() ? budget : *std::prev(step);
}

Candidate PrefetchCandidates::tightened(const Candidate &walk,
                                        int64_t fails) const {
  Candidate tight = walk;
  // Differences below a thousandth of a peak drown in alignment.
  while (tight.filledBytes() - fails > 1 + tight.liveBytes / 2048) {
    int64_t middle = fails + (tight.filledBytes() - fails) / 2;
    Candidate other = make(walk.policy, middle);
    if (other.lostUs <= walk.lostUs + epsilonUs)
      tight = std::move(other);
    else
      fails = middle;
  }
  return tight;
}

// Fewer budgets are tried far below the limit, where a walk is an answer only
// if many cannot be packed. The first one above it may turn out to need less.
std::vector<Candidate> PrefetchCandidates::within(int64_t limit) const {
  // All budgets where walks are short.
  int near = std::max(12, 4096 / std::max(1, problem.numOps()));
  return under(limit, near, /*stride=*/4);
}

// Walks under larger budgets are faster, but for rare exceptions.
double PrefetchCandidates::hopedUs(int64_t limit) const {
  if (limit < leastBytes())
    return std::numeric_limits<double>::infinity();
  return under(limit, /*near=*/1, /*stride=*/0).front().lostUs;
}

std::vector<Candidate> PrefetchCandidates::under(int64_t limit, int near,
                                                 int stride) const {
  std::vector<Candidate> candidates;
  int last = int(ladder.size()) - 1;
  int first =
      std::upper_bound(ladder.begin(), ladder.end(), limit) - ladder.begin();
  first = std::min(first, last);
  for (int i = first; i >= 0; --i)
    if (i == last)
      candidates = unlimited;
    else if (first - i <= near || (stride > 0 && i % stride == 0))
      add(ladder[i], candidates);
  sortByTime(candidates);
  // Policies often agree.
  auto same = [](const Candidate &a, const Candidate &b) {
    return a.lostUs == b.lostUs && a.liveBytes == b.liveBytes &&
           a.budget == b.budget;
  };
  candidates.erase(std::unique(candidates.begin(), candidates.end(), same),
                   candidates.end());
  return candidates;
}

} // namespace fsdpc::schedule
