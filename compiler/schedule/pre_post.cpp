// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prefetches by a rule, like PyTorch FSDP's backward_prefetch: the gathers of
// the next segment start before (`pre`) or after (`post`) the compute of the
// current one. Segments without gathers of their own are skipped, so that a few
// ops of the root unit between two blocks do not count as "current". Starts are
// delayed if the limit on live gathers requires it.

#include "compiler/schedule/placement.h"

#include <algorithm>
#include <set>
#include <utility>

namespace fsdpc::schedule {

namespace {

/// Returns, for each gather in the order of use, the position at which `mode`
/// starts it.
std::vector<int> targets(const Problem &problem,
                         const std::vector<int> &gathers, Prefetch mode) {
  auto segmentOf = [&](int position) {
    auto after = std::upper_bound(
        problem.segments.begin(), problem.segments.end(), position,
        [](int p, const Segment &segment) { return p < segment.begin; });
    if (after == problem.segments.begin() || std::prev(after)->end <= position)
      return -1;
    return static_cast<int>(std::prev(after) - problem.segments.begin());
  };
  std::vector<int> positions;
  int current = -1, previous = -1; // segments that gather; -1: before the first
  for (int id : gathers) {
    const Collective &c = problem.collectives[id];
    int segment = segmentOf(c.latest);
    if (segment >= 0 && segment != current)
      previous = std::exchange(current, segment);
    int target = 0;
    if (segment < 0) // not in a unit's segment, so no rule applies
      target = c.latest;
    else if (previous >= 0)
      target = mode == Prefetch::Pre ? problem.segments[previous].begin
                                     : problem.segments[previous].end;
    positions.push_back(std::clamp(target, c.earliest, c.latest));
  }
  return positions;
}

/// Delays starts, in the order of use, until the limit allows them. Returns for
/// each gather whether it may come before the frees of its gap.
std::vector<bool> applyLimit(const Problem &problem,
                             const std::vector<int> &gathers,
                             std::vector<int> &positions) {
  size_t limit = static_cast<size_t>(problem.options.limitAllGathers);
  std::vector<bool> beforeFrees(gathers.size(), true);
  std::multiset<int> frees; // the `limit` latest frees so far
  for (size_t i = 0; limit > 0 && i < gathers.size(); ++i) {
    const Collective &c = problem.collectives[gathers[i]];
    if (frees.size() == limit) {
      // If even the last position is too early, evaluate() reports the gathers.
      beforeFrees[i] = *frees.begin() < positions[i];
      positions[i] = std::min(std::max(*frees.begin(), positions[i]), c.latest);
    }
    frees.insert(*c.lastUse + 1);
    if (frees.size() > limit)
      frees.erase(frees.begin());
  }
  return beforeFrees;
}

} // namespace

Schedule prePostSchedule(const Problem &problem, Prefetch mode,
                         bool syncReduces) {
  ScheduleBuilder builder;
  for (size_t i = 0; i < problem.collectives.size(); ++i) {
    const Collective &c = problem.collectives[i];
    if (!startsWhenReady(c))
      continue;
    int id = static_cast<int>(i);
    bool sync = c.kind == CollectiveKind::Reduce && syncReduces;
    int wait = sync ? c.earliest : c.latest;
    builder.add({c.earliest, ActionKind::Start, id}, Phase::ReadyStart);
    builder.add({wait, ActionKind::Wait, id},
                wait == c.earliest ? Phase::ReadyStart : Phase::ReduceWait);
  }
  std::vector<int> gathers = gathersByUse(problem);
  std::vector<int> starts = targets(problem, gathers, mode);
  std::vector<bool> beforeFrees = applyLimit(problem, gathers, starts);
  for (size_t i = 0; i < gathers.size(); ++i) {
    const Collective &c = problem.collectives[gathers[i]];
    // `post` starts before the segment's reduction, and before its free if the
    // limit permits. Phases keep the order of addition, so among the frees it
    // follows those of earlier gathers.
    Phase phase = Phase::GatherStart;
    if (mode == Prefetch::Post && starts[i] < c.latest)
      phase = beforeFrees[i] ? Phase::EarlyStart : Phase::Free;
    builder.add({starts[i], ActionKind::Start, gathers[i]}, phase);
    builder.add({c.latest, ActionKind::Wait, gathers[i]}, Phase::GatherWait);
    builder.add({*c.lastUse + 1, ActionKind::Free, gathers[i]}, Phase::Free);
  }
  Schedule schedule = std::move(builder).build();
  return syncReduces ? schedule : waitWhenDone(problem, schedule);
}

Solved solvePrePost(const Problem &problem, Prefetch mode) {
  Solved overlapped =
      evaluate(problem, prePostSchedule(problem, mode, /*syncReduces=*/false));
  if (auto *solution = std::get_if<Solution>(&overlapped))
    return withLateWaits(problem, std::move(*solution));
  // The rule fixes the gathers. Only the overlap of the reductions can still be
  // given up.
  return evaluate(problem,
                  prePostSchedule(problem, mode, /*syncReduces=*/true));
}

} // namespace fsdpc::schedule
