// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A lower bound of the lost time. A window [q, p] of positions must hold, on
// each channel, all collectives that can neither start before q nor be waited
// for after p. What of them does not run beside the compute in the window
// stalls the ops within it, and what does slows these down. The losses of
// disjoint windows add up; a dynamic program over positions finds the windows
// whose losses add up to the most.
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

/// The least that a window loses whose collectives take `busy` and whose ops
/// take `ops`, both alone.
///
/// Ops of 1 µs take 1 + s beside collectives, in which (1 + s) / (1 + c) of a
/// collective gets done. So each µs of a collective costs a stall of 1, or
/// s (1 + c) / (1 + s) beside ops: the less of the two.
static double leastLostIn(double busy, double ops, Contention contention) {
  double done = (1 + contention.ofCompute) / (1 + contention.ofCommunication);
  double gain = 1 - contention.ofCompute / done;
  return busy - std::max(0.0, gain) * std::min(busy, ops * done);
}

double leastLostUs(const Problem &problem) {
  int n = problem.numOps();
  std::vector<double> elapsed(1, 0);
  for (const Op &op : problem.ops)
    elapsed.push_back(elapsed.back() + op.durationUs);
  std::map<int, std::vector<Window>> channels = windowsOf(problem);
  for (auto &[channel, windows] : channels)
    std::sort(
        windows.begin(), windows.end(),
        [](const Window &a, const Window &b) { return a.latest < b.latest; });
  // most[p] is the bound on the losses at positions before p.
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
        most[p + 1] = std::max(
            most[p + 1], most[q] + leastLostIn(busy, elapsed[p] - elapsed[q],
                                               problem.contention));
      }
    }
  }
  return most[n + 1];
}

} // namespace fsdpc::schedule
