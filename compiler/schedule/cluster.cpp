// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See cluster.h. One pass over the actions moves the clocks of all ranks, since
// all ranks have the same actions in the same order. No queue of events is
// needed: when a collective starts, the time of every rank is known. A rank
// that waits for the others at a start is taken to compute nothing until then.

#include "compiler/schedule/cluster.h"

#include "compiler/schedule/clock.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace fsdpc::schedule {

namespace {

/// A hash of a counter, which needs no state per rank (SplitMix64).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// A number with mean 0 and deviation 1, nearly normal: the sum of four uniform
/// numbers of 16 bits. Only sums and products, so it is the same everywhere.
double deviate(uint64_t bits) {
  double sum = 0;
  for (int part = 0; part < 4; ++part)
    sum += double((bits >> (16 * part)) & 0xffff) + 0.5;
  return (sum / 65536 - 2) * std::sqrt(3.0);
}

/// Returns the factor by which each rank's ops take longer: stragglers are the
/// first places of a shuffle.
std::vector<double> factorsOf(int ranks, const Unevenness &unevenness) {
  std::vector<double> factors(ranks, 1);
  std::vector<int> order(ranks);
  for (int rank = 0; rank < ranks; ++rank)
    order[rank] = rank;
  uint64_t state = mix(unevenness.seed ^ 0x5354524147474c45u);
  for (int place = 0; place < std::min(ranks, unevenness.stragglers); ++place) {
    state = mix(state);
    std::swap(order[place], order[place + state % uint64_t(ranks - place)]);
    factors[order[place]] += unevenness.straggling;
  }
  return factors;
}

/// The clocks of all ranks, as far as their ops have come.
class Ranks {
public:
  Ranks(const Problem &problem, int ranks, const Unevenness &unevenness)
      : problem(problem), unevenness(unevenness), clocks(ranks),
        factors(factorsOf(ranks, unevenness)), exposedUs(ranks, 0) {}

  void runOpsUntil(int end) {
    for (; position < end; ++position) {
      uint64_t drawn = mix(unevenness.seed + uint64_t(position));
      double us = problem.ops[position].durationUs;
      for (size_t rank = 0; rank < clocks.size(); ++rank) {
        double factor = factors[rank];
        if (unevenness.jitter > 0)
          factor *= std::max(0.0, 1 + unevenness.jitter *
                                          deviate(mix(drawn ^ (rank << 1))));
        clocks[rank].run(us * factor, problem.contention);
      }
    }
  }

  /// Returns when the last rank is here.
  double latestUs() const {
    double us = 0;
    for (const Clock &clock : clocks)
      us = std::max(us, clock.nowUs);
    return us;
  }

  /// Starts a collective when the last rank is here and its channel is free; a
  /// local one when the rank itself is. Each rank counts in its own time of
  /// collectives.
  void start(int id) {
    const Collective &c = problem.collectives[id];
    std::vector<double> &free = channelFree[c.channel];
    free.resize(clocks.size());
    for (size_t rank = 0; rank < clocks.size(); ++rank)
      free[rank] = std::max(free[rank], clocks[rank].linkUs);
    if (!c.isLocal)
      awaitLast(free);
    for (size_t rank = 0; rank < clocks.size(); ++rank) {
      free[rank] += c.durationUs;
      clocks[rank].busyUntilUs = std::max(clocks[rank].busyUntilUs, free[rank]);
    }
    finishUs[id] = free;
  }

  /// Returns the mean stall.
  double waitFor(int id) {
    double sum = 0;
    for (size_t rank = 0; rank < clocks.size(); ++rank) {
      double stall = clocks[rank].waitFor(finishUs[id][rank]);
      exposedUs[rank] += stall;
      sum += stall;
    }
    finishUs.erase(id);
    return sum / double(clocks.size());
  }

  const std::vector<double> &exposed() const { return exposedUs; }

private:
  /// Moves the times from which ranks are ready, each in its rank's own time of
  /// collectives, to that of the last rank.
  void awaitLast(std::vector<double> &readyUs) const {
    auto inTimeOfOps = [&](size_t rank) {
      return clocks[rank].nowUs + (readyUs[rank] - clocks[rank].linkUs);
    };
    double last = 0;
    for (size_t rank = 0; rank < clocks.size(); ++rank)
      last = std::max(last, inTimeOfOps(rank));
    for (size_t rank = 0; rank < clocks.size(); ++rank)
      readyUs[rank] += last - inTimeOfOps(rank);
  }

  const Problem &problem;
  Unevenness unevenness;
  int position = 0; // of the next op
  std::vector<Clock> clocks;
  std::vector<double> factors, exposedUs;
  // By rank: when a channel is free again, and when a collective that has been
  // started ends.
  std::map<int, std::vector<double>> channelFree, finishUs;
};

} // namespace

ClusterTimeline simulateCluster(const Problem &problem,
                                const Schedule &schedule, int ranks,
                                const Unevenness &unevenness) {
  // Equal ranks are never apart, so one stands for all.
  Ranks all(problem, unevenness.equalRanks() ? 1 : ranks, unevenness);
  ClusterTimeline timeline;
  timeline.exposedUs.assign(problem.collectives.size(), 0);
  for (const Action &action : schedule.actions) {
    all.runOpsUntil(action.position);
    int id = action.collective;
    if (action.kind == ActionKind::Start)
      all.start(id);
    else if (action.kind == ActionKind::Wait)
      timeline.exposedUs[id] = all.waitFor(id);
  }
  all.runOpsUntil(problem.numOps());
  timeline.stepUs = all.latestUs();
  for (double us : timeline.exposedUs)
    timeline.meanExposedUs += us;
  for (double us : all.exposed())
    timeline.mostExposedUs = std::max(timeline.mostExposedUs, us);
  return timeline;
}

} // namespace fsdpc::schedule
