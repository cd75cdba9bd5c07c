// A lower bound of the exposed time. A window [q, p] of positions must hold,
// on each channel, all collectives that can neither start before q nor be
// waited for after p. What they take beyond the compute in the window stalls
// the ops within it, and the stalls of disjoint windows add up; a dynamic
// program over positions finds the windows whose stalls add up to the most. Ops
// count with their longest duration, beside a collective, and collectives with
// their shortest, beside no op.
//
// A memory limit makes windows smaller. The bytes that are live under every
// schedule (tensors, gathers from first to last use, reductions until they are
// ready) leave some room; a gather cannot start before the position from which
// its buffers fit into it, and a reduction cannot be waited for after they do
// not.

#include "compiler/schedule/bound.h"

#include "compiler/schedule/placement.h"

#include <algorithm>
#include <map>
#include <vector>

namespace fsdpc::schedule {

namespace {

struct Window {
  int earliest, latest;
  double durationUs;
};

/// The windows of the collectives, by channel.
std::map<int, std::vector<Window>> windowsOf(const Problem &problem) {
  LiveProfile live = leastLive(problem);
  std::map<int, std::vector<Window>> windows;
  for (const Collective &c : problem.collectives) {
    Window window{c.earliest, c.latest, c.durationUs};
    if (problem.options.memoryLimit) {
      int64_t room = *problem.options.memoryLimit - problem.baseBytes;
      if (c.kind == CollectiveKind::Reduce)
        window.latest = live.furthest(c.earliest, c.latest, c.bytes(), room);
      else if (c.lastUse)
        while (window.earliest < c.latest &&
               live.max(window.earliest, c.latest) + c.bytes() > room)
          ++window.earliest;
    }
    windows[c.channel].push_back(window);
  }
  return windows;
}

} // namespace

double leastExposedUs(const Problem &problem) {
  int n = problem.numOps();
  std::vector<double> elapsed(1, 0);
  for (const Op &op : problem.ops)
    elapsed.push_back(elapsed.back() +
                      op.durationUs * (1 + problem.contention.ofCompute));
  std::map<int, std::vector<Window>> channels = windowsOf(problem);
  for (auto &[channel, windows] : channels)
    std::sort(
        windows.begin(), windows.end(),
        [](const Window &a, const Window &b) { return a.latest < b.latest; });
  // most[p] is the bound on the stalls at positions before p.
  std::vector<double> most(n + 2, 0);
  for (int q = 0; q <= n; ++q) {
    most[q + 1] = std::max(most[q + 1], most[q]);
    for (const auto &[channel, windows] : channels) {
      double busy = 0;
      for (const Window &window : windows) {
        if (window.earliest < q)
          continue;
        busy += window.durationUs;
        int p = window.latest;
        most[p + 1] =
            std::max(most[p + 1], most[q] + busy - (elapsed[p] - elapsed[q]));
      }
    }
  }
  return most[n + 1];
}

} // namespace fsdpc::schedule
