// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rules of a schedule, one function each, in the order of the model in
// problem.h. Structure comes first: a schedule that is incomplete or out of
// order has no timeline and no memory, so later rules are then not checked.

#include "compiler/schedule/pack_hard.h"
#include "compiler/schedule/problem.h"

#include <algorithm>
#include <set>

namespace fsdpc::schedule {

namespace {

// Checks one schedule. Each rule appends its violations; an instance is used
// once.
class Verifier {
public:
  Verifier(const Problem &problem, const Schedule &schedule,
           PlaceName placeName)
      : problem(problem), schedule(schedule), placeName(std::move(placeName)),
        lives(problem.collectives.size()) {}

  std::vector<Violation> run(bool withMemory) {
    // The functions below index by collective and by position, which these two
    // make safe.
    if (!order() || !complete())
      return std::move(violations);
    startWindow();
    waitAfterStart();
    waitBeforeUse();
    freeAfterUse();
    if (!violations.empty())
      return std::move(violations);
    liveGathers();
    if (withMemory)
      memoryCap();
    return std::move(violations);
  }

private:
  /// The index of each action in the list; -1 until it is seen.
  struct Life {
    int start = -1, wait = -1, free = -1;
  };

  bool order();
  bool complete();
  void startWindow();
  void waitAfterStart();
  void waitBeforeUse();
  void freeAfterUse();
  void liveGathers();
  void memoryCap();

  void report(std::string rule, std::string message,
              std::vector<int> collectives,
              std::optional<int> position = std::nullopt) {
    violations.push_back({std::move(rule), std::move(message),
                          std::move(collectives), position});
  }
  int count() const { return static_cast<int>(problem.collectives.size()); }
  const Collective &at(int id) const { return problem.collectives[id]; }
  std::string name(int id) const { return "'" + at(id).label + "'"; }
  int position(int index) const { return schedule.actions[index].position; }
  static std::string text(int64_t value) { return std::to_string(value); }
  std::string place(int position) const {
    return placeName ? placeName(position) : text(position);
  }

  const Problem &problem;
  const Schedule &schedule;
  PlaceName placeName;
  std::vector<Life> lives;
  std::vector<Violation> violations;
};

// Rule "order": actions are listed by position, inside the function. Returns
// false if other rules cannot be checked.
bool Verifier::order() {
  int previous = 0;
  for (const Action &action : schedule.actions) {
    if (action.collective < 0 || action.collective >= count()) {
      report("complete",
             "an action refers to collective " + text(action.collective) +
                 ", but the number of collectives is " + text(count()),
             {});
      return false;
    }
    if (action.position < previous || action.position > problem.numOps()) {
      report("order",
             "an action of " + name(action.collective) + " is at " +
                 text(action.position) + ", after an action at " +
                 text(previous) + ", in a function of " +
                 text(problem.numOps()) + " ops",
             {action.collective});
      return false;
    }
    previous = action.position;
  }
  return true;
}

// Rule "complete": each collective starts once, is waited for once, and is
// freed once if it has a last use. Returns false if one is not.
bool Verifier::complete() {
  auto repeated = [&](int id, const char *what, int position) {
    report("complete", name(id) + " is " + what + " more than once", {id},
           position);
  };
  for (size_t i = 0; i < schedule.actions.size(); ++i) {
    const Action &action = schedule.actions[i];
    Life &life = lives[action.collective];
    bool start = action.kind == ActionKind::Start;
    bool wait = action.kind == ActionKind::Wait;
    int &index = start ? life.start : wait ? life.wait : life.free;
    // A repeated action is reported; the last one counts below.
    if (index >= 0)
      repeated(action.collective,
               start  ? "started"
               : wait ? "waited for"
                      : "freed",
               action.position);
    index = static_cast<int>(i);
  }
  for (int id = 0; id < count(); ++id) {
    if (lives[id].start < 0)
      report("complete", name(id) + " is never started", {id}, at(id).latest);
    if (lives[id].wait < 0)
      report("complete", name(id) + " is never waited for", {id},
             at(id).latest);
    if (at(id).lastUse && lives[id].free < 0)
      report("complete", name(id) + " is never freed", {id},
             *at(id).lastUse + 1);
    if (!at(id).lastUse && lives[id].free >= 0)
      report("complete", name(id) + " is freed, but has no buffer", {id},
             position(lives[id].free));
  }
  return violations.empty();
}

// Rule "start-window": the source must be ready.
void Verifier::startWindow() {
  for (int id = 0; id < count(); ++id)
    if (int start = position(lives[id].start); start < at(id).earliest)
      report("start-window",
             name(id) + " starts at " + place(start) +
                 ", before its source is ready at " + place(at(id).earliest),
             {id}, start);
}

// Rule "wait-after-start", by the order of the list: both may share a position.
// A start behind the first use is wrong wherever the wait stands.
void Verifier::waitAfterStart() {
  for (int id = 0; id < count(); ++id) {
    if (lives[id].wait >= lives[id].start)
      continue;
    int wait = position(lives[id].wait), start = position(lives[id].start);
    report("wait-after-start",
           name(id) + " is waited for at " + place(wait) +
               ", before its start at " + place(start),
           {id}, start > at(id).latest ? start : wait);
  }
}

// Rule "wait-before-use": the result is complete where the first op uses it.
void Verifier::waitBeforeUse() {
  for (int id = 0; id < count(); ++id)
    if (int wait = position(lives[id].wait); wait > at(id).latest)
      report("wait-before-use",
             name(id) + " is waited for at " + place(wait) +
                 ", after its first use at " + place(at(id).latest),
             {id}, wait);
}

// Rule "free-after-use": no op reads freed memory, and nothing is freed while
// it is still written.
void Verifier::freeAfterUse() {
  for (int id = 0; id < count(); ++id) {
    if (!at(id).lastUse)
      continue;
    int free = position(lives[id].free);
    // Positions exclude reads by ops; the order of the list excludes the wait.
    if (free <= *at(id).lastUse || lives[id].free < lives[id].wait)
      report("free-after-use",
             name(id) + " is freed at " + place(free) +
                 ", but is used until op " + place(*at(id).lastUse),
             {id}, free);
  }
}

// Rule "live-gathers". Gathers without a last use do not count.
void Verifier::liveGathers() {
  int limit = problem.options.limitAllGathers;
  if (limit == 0)
    return;
  // The set holds the gathers between start and free.
  std::set<int> live;
  for (const Action &action : schedule.actions) {
    if (!at(action.collective).lastUse)
      continue;
    if (action.kind == ActionKind::Free)
      live.erase(action.collective);
    if (action.kind != ActionKind::Start)
      continue;
    live.insert(action.collective);
    if (static_cast<int>(live.size()) <= limit)
      continue;
    std::vector<int> involved(live.begin(), live.end());
    std::stable_partition(involved.begin(), involved.end(),
                          [&](int id) { return id != action.collective; });
    report("live-gathers",
           "the start of " + name(action.collective) + " at " +
               place(action.position) + " makes " + text(int64_t(live.size())) +
               " gathers live, but the limit is " + text(limit),
           std::move(involved), action.position);
    return; // later violations follow from the first
  }
}

// Rule "memory-cap": packs the buffers as the planner will, which searches
// exactly where a limit depends on it.
void Verifier::memoryCap() {
  std::vector<Interval> intervals = liveIntervals(problem, schedule);
  PackerOptions options;
  if (problem.options.memoryLimit)
    options.cap = *problem.options.memoryLimit - problem.baseBytes;
  Packing packing = pack(intervals, options);
  if (options.cap && packing.peak > *options.cap &&
      packing.lowerBound <= *options.cap)
    packing = packHard(intervals);
  if (!packing.error.empty()) {
    report("memory-cap", packing.error, {});
    return;
  }
  int64_t peak = problem.baseBytes + packing.peak;
  if (!problem.options.memoryLimit || peak <= *problem.options.memoryLimit)
    return;
  std::string message = "planned peak of " + text(peak) +
                        " bytes exceeds the limit of " +
                        text(*problem.options.memoryLimit) + " bytes; largest:";
  for (const Contributor &c : largestContributors(intervals))
    message += " '" + c.label + "' " + text(c.bytes);
  report("memory-cap", message, {});
}

} // namespace

std::vector<Violation> verifyPlaces(const Problem &problem,
                                    const Schedule &schedule,
                                    PlaceName placeName) {
  return Verifier(problem, schedule, std::move(placeName))
      .run(/*withMemory=*/false);
}

std::vector<Violation> verify(const Problem &problem,
                              const Schedule &schedule) {
  return Verifier(problem, schedule, nullptr).run(/*withMemory=*/true);
}

} // namespace fsdpc::schedule
