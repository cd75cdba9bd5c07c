// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The meaning of a schedule in time (`simulate`), in memory (`liveIntervals`,
// `largestContributors`), and for the other ranks (`hashStarts`). All solvers
// and the verifier judge schedules by these functions, so they cannot disagree.

#include "compiler/schedule/clock.h"
#include "compiler/schedule/live_bytes.h"
#include "compiler/schedule/problem.h"

#include <algorithm>
#include <map>

namespace fsdpc::schedule {

namespace {

/// Pairs of the time of collectives and that of ops, in order. In between both
/// advance in proportion, but for an op that outlasts the collectives beside
/// it.
class Moments {
public:
  void add(const Clock &clock) {
    link.push_back(clock.linkUs);
    now.push_back(clock.nowUs);
  }

  /// Returns the time of ops at a time of collectives within the step.
  double nowAt(double us) const {
    size_t after =
        std::upper_bound(link.begin(), link.end(), us) - link.begin();
    if (after == 0 || after == link.size())
      return after == 0 ? us : now.back();
    double part = (us - link[after - 1]) / (link[after] - link[after - 1]);
    return now[after - 1] + part * (now[after] - now[after - 1]);
  }

private:
  std::vector<double> link, now;
};

} // namespace

// One pass over the actions, with the ops between them. Collectives are in
// their own time until the end.
Timeline simulate(const Problem &problem, const Schedule &schedule) {
  size_t count = problem.collectives.size();
  Timeline timeline;
  timeline.beginUs.assign(count, 0);
  timeline.finishUs.assign(count, 0);
  timeline.exposedUs.assign(count, 0);

  // When each channel is idle again. Collectives of one channel queue up in the
  // order of their starts.
  std::map<int, double> channelFree;
  Clock clock;
  bool differ = problem.contention.ofCommunication > 0; // the two times
  Moments moments;
  auto note = [&] {
    if (differ)
      moments.add(clock);
  };
  note();
  timeline.reachUs.reserve(problem.ops.size() + 1);
  timeline.reachUs.push_back(0);
  // reachUs has an entry per position that the ops have reached, so its size is
  // also where they are.
  auto runOpsUntil = [&](size_t end) {
    for (size_t p = timeline.reachUs.size() - 1; p < end; ++p) {
      timeline.reachUs.push_back(
          clock.run(problem.ops[p].durationUs, problem.contention));
      note();
    }
  };
  for (const Action &action : schedule.actions) {
    runOpsUntil(static_cast<size_t>(action.position));
    int id = action.collective;
    const Collective &c = problem.collectives[id];
    if (action.kind == ActionKind::Start) {
      double &free = channelFree[c.channel];
      timeline.beginUs[id] = std::max(free, clock.linkUs);
      free = timeline.finishUs[id] = timeline.beginUs[id] + c.durationUs;
      clock.busyUntilUs = std::max(clock.busyUntilUs, free);
    } else if (action.kind == ActionKind::Wait) {
      double stall = clock.waitFor(timeline.finishUs[id]);
      timeline.exposedUs[id] = stall;
      timeline.totalExposedUs += stall;
      note();
    }
  }
  runOpsUntil(problem.ops.size());
  timeline.slowedUs = clock.slowedUs;
  timeline.stepUs = clock.nowUs;
  if (differ)
    for (std::vector<double> *times : {&timeline.beginUs, &timeline.finishUs})
      for (double &us : *times)
        us = moments.nowAt(us);
  return timeline;
}

std::vector<Interval> liveIntervals(const Problem &problem,
                                    const Schedule &schedule) {
  // The place of an op in the merged order is its position plus the number of
  // actions up to and including those of its gap.
  size_t n = problem.ops.size(), count = problem.collectives.size();
  std::vector<int> place(n);
  std::vector<int> start(count), wait(count), release(count, -1);
  // Actions are sorted by position, so one index suffices.
  size_t next = 0;
  int passed = 0; // positions that the actions so far take
  auto placeActionsUntil = [&](int position) {
    for (; next < schedule.actions.size() &&
           schedule.actions[next].position <= position;
         ++next) {
      const Action &action = schedule.actions[next];
      std::vector<int> &places = action.kind == ActionKind::Start  ? start
                                 : action.kind == ActionKind::Wait ? wait
                                                                   : release;
      places[action.collective] = position + passed;
      passed += action.kind == ActionKind::Free
                    ? problem.collectives[action.collective].buffers.size()
                    : 1;
    }
  };
  for (size_t p = 0; p < n; ++p) {
    placeActionsUntil(static_cast<int>(p));
    place[p] = static_cast<int>(p) + passed;
  }
  placeActionsUntil(static_cast<int>(n));
  // The end of the function, where persistent gathers are still live.
  int last = static_cast<int>(n) + passed;

  std::vector<Interval> intervals;
  for (const Tensor &t : problem.tensors)
    intervals.push_back({t.bytes, t.alignment, place[t.begin], place[t.end],
                         t.fixedOffset, t.label});
  for (size_t i = 0; i < count; ++i) {
    const Collective &c = problem.collectives[i];
    int released = release[i];
    for (const Buffer &b : c.buffers) {
      Interval interval{b.bytes, b.alignment, 0, 0, std::nullopt, c.label};
      if (c.kind == CollectiveKind::Gather) {
        interval.begin = start[i];
        // Frees of one collective take consecutive positions, one per buffer,
        // in order.
        interval.end = c.lastUse ? released++ : last;
      } else {
        interval.begin = place[b.definition];
        interval.end = wait[i];
      }
      intervals.push_back(std::move(interval));
    }
  }
  // Positions of later functions count from this one's end.
  for (Interval interval : problem.later) {
    interval.begin += last;
    interval.end += last;
    intervals.push_back(std::move(interval));
  }
  return intervals;
}

LiveBytes liveBytesByKind(const Problem &problem, const Schedule &schedule) {
  // Changes at positions first, which are then summed up.
  size_t positions = problem.ops.size() + 2;
  LiveBytes live;
  for (std::vector<int64_t> *bytes :
       {&live.tensors, &live.gathered, &live.reduced})
    bytes->assign(positions, 0);
  for (const Tensor &t : problem.tensors) {
    live.tensors[t.begin] += t.bytes;
    live.tensors[t.end + 1] -= t.bytes;
  }
  for (const Collective &c : problem.collectives)
    if (c.kind == CollectiveKind::Reduce)
      for (const Buffer &buffer : c.buffers)
        live.reduced[buffer.definition] += buffer.bytes;
  for (const Action &action : schedule.actions) {
    const Collective &c = problem.collectives[action.collective];
    bool reduces = c.kind == CollectiveKind::Reduce;
    if (action.kind == ActionKind::Start && !reduces)
      live.gathered[action.position] += c.bytes();
    else if (action.kind == ActionKind::Free)
      live.gathered[action.position] -= c.bytes();
    else if (action.kind == ActionKind::Wait && reduces)
      live.reduced[action.position] -= c.bytes();
  }
  for (std::vector<int64_t> *bytes :
       {&live.tensors, &live.gathered, &live.reduced})
    for (size_t p = 1; p < positions; ++p)
      (*bytes)[p] += (*bytes)[p - 1];
  return live;
}

std::vector<Contributor>
largestContributors(const std::vector<Interval> &intervals, size_t count) {
  // Only what is live at the first peak counts. Equal labels are summed, since
  // a unit has many activations.
  int position = livePeak(intervals).position;
  std::map<std::string, int64_t> sums;
  for (const Interval &interval : intervals)
    if (interval.begin <= position && position <= interval.end &&
        interval.bytes > 0)
      sums[interval.label] += interval.bytes;
  std::vector<Contributor> contributors;
  for (const auto &[label, bytes] : sums)
    contributors.push_back({label, bytes});
  // The map has sorted labels by name, so equal sums appear by name.
  std::stable_sort(contributors.begin(), contributors.end(),
                   [](const Contributor &a, const Contributor &b) {
                     return a.bytes > b.bytes;
                   });
  contributors.resize(std::min(count, contributors.size()));
  return contributors;
}

uint64_t hashStarts(const Problem &problem, const Schedule &schedule) {
  // FNV-1a over (channel, label) in order. Labels are hashed rather than ids,
  // since ids may differ between equal programs.
  uint64_t hash = 0xcbf29ce484222325u;
  auto add = [&](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3u; };
  for (const Action &action : schedule.actions) {
    if (action.kind != ActionKind::Start)
      continue;
    const Collective &c = problem.collectives[action.collective];
    for (int shift = 0; shift < 32; shift += 8)
      add(static_cast<unsigned char>(unsigned(c.channel) >> shift));
    for (char character : c.label)
      add(static_cast<unsigned char>(character));
    // Separates labels, so that "ab","c" and "a","bc" differ.
    add(0);
  }
  return hash;
}

} // namespace fsdpc::schedule
