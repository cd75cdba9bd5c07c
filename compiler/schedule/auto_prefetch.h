// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The solver behind `Prefetch::Auto`, in two steps: what a schedule may take is
// known soon, and packing it takes most of the time. Who compares problems
// packs only those that may win.
#pragma once

#include "compiler/schedule/prefetch_candidates.h"
#include "compiler/schedule/solvers.h"

#include <map>
#include <utility>
#include <vector>

namespace fsdpc::schedule {

class AutoSearch {
public:
  /// The problem must pass its check and outlive the search.
  explicit AutoSearch(const Problem &problem);

  /// Returns the time beyond its ops that a step of unlimited memory has.
  double freeUs() const { return candidates.freeUs(); }
  /// Returns the time beyond its ops that a step has if all that is live within
  /// the memory limit can be packed; infinity if that is nothing.
  double hopedUs() const { return leastUs; }
  Solved solve();
  /// As `solve`, but gives up, returning nothing, where only schedules that
  /// lose `mostUs` or more are left.
  std::optional<Solved> solveWithin(double mostUs);

private:
  /// Offers the walks that lose less than `mostUs` until one packs. Returns
  /// false if those do not pack and slower ones are left.
  bool offerWalks(double mostUs);
  /// Offers walks of the winner's policy under budgets above its own.
  void raiseBudget();
  /// Offers walks of the policies that follow from the winner's timeline.
  void followWinner();
  void follow(const SharedPolicy &policy);
  /// Offers the schedules of the other solvers.
  void offerRules();
  /// Packs the schedule and keeps it if it is feasible and better.
  bool offer(Schedule schedule, const PackerOptions &packer);
  bool isBetter(double lostUs, int64_t peakBytes) const;
  bool offer(const Candidate &candidate);
  /// Returns the solution with early starts where they cost neither time nor
  /// memory.
  Solution withEarlyStarts(Solution solution) const;

  const Problem &problem;
  PrefetchCandidates candidates;
  int64_t limit; ///< of the arena
  double leastUs;
  std::optional<Candidate> winner; ///< unless a rule has won
  std::optional<Solution> best;
  std::optional<Infeasible> nearest; ///< the smallest peak above the cap
  /// The results of packing, by the packer's work and the schedule. Policies
  /// often agree on a schedule, and packing takes most of the time.
  struct Packed {
    bool fits = false;
    double lostUs = 0;
    int64_t peakBytes = 0;
  };
  std::map<std::pair<int64_t, std::vector<Action>>, Packed> packed;
};

} // namespace fsdpc::schedule
