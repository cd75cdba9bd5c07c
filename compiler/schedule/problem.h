// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The scheduling problem as an object without IR: when to start, wait for and
// free each collective of one function. `check()` tells whether a problem is
// well-formed, `verify()` whether a schedule solves it; solvers.h has the
// solvers. The design follows CIRCT's scheduling problems.
//
// Positions. The function has n ops in a fixed order, op p at position p. An
// action at position p comes directly before op p; at p = n it comes at the end
// of the function. Actions at one position are ordered by the schedule's list.
//
// The model
//
//   given      ops 0 … n−1 with durations; tensors alive over [begin, end];
//              collectives c, each with a channel, a duration, buffers, and a
//              window [earliest(c), latest(c)]
//   variables  start(c), wait(c), for gathers free(c), and their total order
//   subject to
//     complete         each c starts once, is waited for once, and a gather
//                      that has a last use is freed once
//     order            actions are listed by position, 0 ≤ position ≤ n
//     start-window     earliest(c) ≤ start(c)
//     wait-after-start wait(c) comes after start(c)
//     wait-before-use  wait(c) ≤ latest(c)
//     free-after-use   free(c) > lastUse(c) and comes after wait(c)
//     live-gathers     gathers between start and free ≤ limitAllGathers
//     memory-cap       baseBytes + packed peak ≤ memoryLimit, where the buffers
//                      of a gather are alive from start to free, each buffer of
//                      a reduction from its definition to the wait
//   timeline   a channel runs its collectives one at a time in the order of
//              their starts; a wait stalls the ops until its collective is
//              done; ops take longer by `contention.ofCompute` while a channel
//              is busy, and collectives by `contention.ofCommunication`
//              while ops run
//   objective  lexicographic: minimise what the step takes beyond its ops
//              (stalls, and what ops are slowed down), then the packed peak
#pragma once

#include "compiler/schedule/clock.h"
#include "compiler/schedule/packer.h"

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fsdpc::schedule {

/// An op with its estimated duration, alone on its stream. Views, marks and
/// other ops that compute nothing have 0, and keep their positions all the
/// same.
struct Op {
  double durationUs = 0;
};

/// A buffer whose live range does not depend on the schedule: an activation, a
/// gradient of an activation, a scratchpad.
struct Tensor {
  int64_t bytes = 0;
  int64_t alignment = 128;
  /// First and last op at which it is alive, both inclusive.
  int begin = 0, end = 0;
  /// The place in the arena, in bytes, if something else decides it.
  std::optional<int64_t> fixedOffset;
  /// Tensors with equal labels are summed when contributors are reported.
  std::string label;
};

/// Memory of the arena that a collective reads or writes.
struct Buffer {
  int64_t bytes = 0;
  int64_t alignment = 128;
  /// Reduction: the first op that writes the buffer.
  int definition = 0;
};

enum class CollectiveKind {
  /// An all-gather: ops read its result, so it is waited for before the first
  /// use and freed after the last.
  Gather,
  /// A reduce-scatter: ops write its source, which its wait releases.
  Reduce,
};

struct Collective {
  CollectiveKind kind = CollectiveKind::Gather;
  /// Collectives on one channel run one at a time, in the order of their
  /// starts.
  int channel = 0;
  double durationUs = 0;
  /// It moves the rank's own values, to or from a disk, and waits for no other
  /// rank.
  bool isLocal = false;
  /// The first position at which the collective may start: after the ops that
  /// produce its source, and after whatever else its memory depends on. For a
  /// reduction, the position from which it is ready.
  int earliest = 0;
  /// The last position at which it may be waited for: the first op that uses
  /// the result, or n if no op of the function does.
  int latest = 0;
  /// Gather: the last op that reads the result, its views or tied descendants.
  /// Unset if the result outlives the function (a persistent gather): it is
  /// then not freed, does not count as live, and its buffer lives to the end.
  std::optional<int> lastUse;
  /// One per layout that it moves, or none if its memory is not the arena's.
  std::vector<Buffer> buffers;
  /// Names the collective in errors and tables: "all_gather of h.0.flat".
  std::string label;

  /// Returns the bytes of all buffers, without the padding of their alignment.
  int64_t bytes() const {
    int64_t sum = 0;
    for (const Buffer &buffer : buffers)
      sum += buffer.bytes;
    return sum;
  }
};

/// A run of one unit's ops, [begin, end): the granularity of `pre` and `post`.
/// Gathers for a unit belong to its segments, forward or backward.
struct Segment {
  int begin = 0, end = 0;
  std::string label;
  bool backward = false;
};

enum class Prefetch {
  None, ///< start directly before the wait
  Post, ///< start after the compute of the segment before
  Pre,  ///< start before the compute of the segment before
  Auto, ///< solve for the least exposed time, then memory
};

/// The part of a compile's options that decides schedules.
struct Options {
  Prefetch prefetch = Prefetch::Auto;
  /// The most gathers that may be live (between start and free) at once; 0
  /// means no limit.
  int limitAllGathers = 0;
  /// Hard cap on baseBytes + packed peak.
  std::optional<int64_t> memoryLimit;
};

struct Problem {
  std::vector<Op> ops;
  std::vector<Collective> collectives;
  std::vector<Tensor> tensors;
  /// The buffers of functions that run later. They share the arena with this
  /// function's, and their positions count from its end.
  std::vector<Interval> later;
  /// Disjoint and in program order; gaps are allowed.
  std::vector<Segment> segments;
  /// The bytes that the rank holds outside the arena: shards, optimizer state,
  /// stacks.
  int64_t baseBytes = 0;
  Contention contention;
  Options options;

  int numOps() const { return static_cast<int>(ops.size()); }

  /// Returns "" if the problem is well-formed, else what is wrong with it.
  std::string check() const;
};

enum class ActionKind { Start, Wait, Free };

/// A start, wait or free of collective `collective`, directly before op
/// `position`.
struct Action {
  int position = 0;
  ActionKind kind = ActionKind::Start;
  int collective = 0;
  friend auto operator<=>(const Action &, const Action &) = default;
};

/// All actions in program order.
struct Schedule {
  std::vector<Action> actions;
};

/// The times of a schedule, by the problem's durations.
struct Timeline {
  /// Per collective: when it begins and ends on its channel, and how long its
  /// wait stalls the ops.
  std::vector<double> beginUs, finishUs, exposedUs;
  /// Per position (n + 1 of them): when the ops reach it, before its actions.
  std::vector<double> reachUs;
  double totalExposedUs = 0;
  /// The time by which ops take longer because of collectives beside them.
  double slowedUs = 0;
  double stepUs = 0;

  /// Returns the time, in µs, that the step takes beyond its ops. Solvers
  /// minimise it.
  double lostUs() const { return totalExposedUs + slowedUs; }
};

/// Simulates the schedule. Every collective must be started before it is waited
/// for.
Timeline simulate(const Problem &problem, const Schedule &schedule);

/// Returns the live ranges of the buffers under the schedule, for the packer:
/// the problem's tensors, the collectives' buffers, and `later`, each in their
/// order. Positions count ops and actions together, so that a free before a
/// start in one gap is seen as such; a free takes one position per buffer, as
/// the free ops of the IR do. The schedule must be complete.
std::vector<Interval> liveIntervals(const Problem &problem,
                                    const Schedule &schedule);

struct Violation {
  std::string rule; ///< a name from the model above, such as "start-window"
  std::string message;
  /// The collectives involved, last the one that breaks the rule.
  std::vector<int> collectives;
  /// The position of the action that breaks the rule, or the last position
  /// where a missing one could stand. Unset if the rule is about no action.
  std::optional<int> position;
};

/// Returns how messages name a position.
using PlaceName = std::function<std::string(int position)>;

/// Returns the violations of all rules but memory-cap, the only one that needs
/// a packing. Without `placeName`, messages have the positions' numbers.
std::vector<Violation> verifyPlaces(const Problem &problem,
                                    const Schedule &schedule,
                                    PlaceName placeName = nullptr);

/// Returns all violations; none means that the schedule is a solution. Rules
/// that depend on earlier ones are not checked if those fail.
std::vector<Violation> verify(const Problem &problem, const Schedule &schedule);

/// Returns what occupies the memory at the peak: the largest sums by label.
struct Contributor {
  std::string label;
  int64_t bytes = 0;
};
std::vector<Contributor>
largestContributors(const std::vector<Interval> &intervals, size_t count = 3);

/// Returns a hash of the order of starts on each channel. Ranks that run the
/// same program have equal hashes.
uint64_t hashStarts(const Problem &problem, const Schedule &schedule);

} // namespace fsdpc::schedule
