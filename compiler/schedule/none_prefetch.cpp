// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// No prefetch: every collective is started and waited for in one place, a
// gather before its first use, a reduction where it is ready. This is what
// PyTorch FSDP does with prefetching off, and the baseline of every other
// solver.

#include "compiler/schedule/placement.h"

namespace fsdpc::schedule {

Schedule noneSchedule(const Problem &problem) {
  ScheduleBuilder builder;
  auto synchronous = [&](int id, int position, Phase phase) {
    builder.add({position, ActionKind::Start, id}, phase);
    builder.add({position, ActionKind::Wait, id}, phase);
  };
  // Reductions are waited for where they start, so each is exposed in full.
  for (size_t i = 0; i < problem.collectives.size(); ++i)
    if (const Collective &c = problem.collectives[i]; startsWhenReady(c))
      synchronous(static_cast<int>(i), c.earliest, Phase::ReadyStart);
  for (int id : gathersByUse(problem)) {
    const Collective &c = problem.collectives[id];
    synchronous(id, c.latest, Phase::GatherStart);
    builder.add({*c.lastUse + 1, ActionKind::Free, id}, Phase::Free);
  }
  return std::move(builder).build();
}

Solved solveNone(const Problem &problem) {
  return evaluate(problem, noneSchedule(problem));
}

} // namespace fsdpc::schedule
