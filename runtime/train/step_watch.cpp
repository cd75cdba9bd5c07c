// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The thread of the watch. A rank that is stuck itself ends the job as soon as
// its time is up. A rank that waits in a collective first gives the other
// ranks, and the watches of the connections, a few seconds to report more.
#include "runtime/train/step_watch.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/thread.h"
#include "runtime/core/failure.h"
#include "runtime/support/concat.h"
#include "runtime/support/diagnostics.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>

namespace fsdpc::runtime {

// The time that is up when a rank writes its record. Before the device's own
// watchdog ends the job, which has the first word (see `limit`).
constexpr double recordAt = 0.6, recordAtRunningAhead = 0.3;

// From now on an error of any kind says where the rank is (setWhereabouts).
StepWatch::StepWatch(const fsdpc_rank &rank, const FlightRecorder &recorder,
                     Limits limits, std::string path)
    : rank(rank), recorder(recorder), limits(limits), path(std::move(path)),
      since(Clock::now()), awake(since) {
  setWhereabouts([this] {
    std::string text = concat("rank ", this->rank.job.rank, " is at ",
                              this->recorder.place().text);
    if (written)
      text += "; the last commands are in '" + this->path + "'";
    return text;
  });
  // Also if another rank is lost, long before its time is up.
  setRecord([this] {
    keeps = true;
    if (!written)
      writeRecord();
  });
  thread = startThread("the watch of steps", [this] { loop(); });
}

StepWatch::~StepWatch() {
  setWhereabouts({});
  setRecord({});
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  changed.notify_one();
  thread.join();
}

void StepWatch::beginStep() {
  std::lock_guard<std::mutex> lock(mutex);
  running = true;
}

void StepWatch::endStep(double seconds) {
  std::lock_guard<std::mutex> lock(mutex);
  running = false;
  lengths[steps++ % lengths.size()] = seconds;
}

// The mutex is held. A device that runs ahead is watched by its own watchdog,
// which says more, so this one leaves it the first word.
double StepWatch::limit() const {
  if (!running)
    return 0;
  double own = limits.first;
  if (steps > 0 && limits.step >= 0) {
    own = limits.step;
  } else if (steps > 0) {
    auto sorted = lengths;
    size_t count = std::min(steps, sorted.size()), middle = count / 2;
    std::nth_element(sorted.begin(), sorted.begin() + ptrdiff_t(middle),
                     sorted.begin() + ptrdiff_t(count));
    own = std::max(300., 20 * sorted[middle]);
  }
  return rank.device->runsAhead() ? 2 * own : own;
}

void StepWatch::loop() {
  std::unique_lock<std::mutex> lock(mutex);
  while (!stopping) {
    double own = limit();
    lock.unlock();
    look(own);
    lock.lock();
    double pause = own > 0 ? std::min(1.0, own / 8) : 1.0;
    changed.wait_for(lock, std::chrono::duration<double>(pause),
                     [this] { return stopping; });
  }
}

// Compares the recorder's progress with that of the last look. If nothing has
// moved for long enough, it writes the record, and later ends the job.
void StepWatch::look(double limit) {
  auto now = Clock::now();
  // A rank that was stopped itself, and goes on, has nothing to complain of.
  bool slept = now - awake > std::chrono::seconds(3);
  awake = now;
  uint64_t progress = recorder.progress();
  if (progress != seen || limit == 0 || slept) {
    seen = progress;
    since = now;
    tried = false;
    if (!keeps && written.exchange(false))
      unlink(path.c_str());
    return;
  }
  std::chrono::duration<double> waited = now - since;
  double part = rank.device->runsAhead() ? recordAtRunningAhead : recordAt;
  if (waited.count() >= part * limit && !tried) {
    tried = true;
    writeRecord();
  }
  if (waited.count() >= limit)
    end(waited.count());
}

void StepWatch::writeRecord() {
  Status done = recorder.write(path);
  written = bool(done);
  if (!done)
    printWarning(concat(done.error().message,
                        "; there is no flight record of rank ", rank.job.rank));
}

// Returns if the step has got on after all while this rank waited for its turn.
void StepWatch::end(double waited) {
  FlightRecorder::Place place = recorder.place();
  if (place.waitsForOthers) {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    awaitTurn(rank.job, /*later=*/false);
    awake = Clock::now();
    if (recorder.progress() != seen)
      return;
  }
  char host[128] = "", seconds[32];
  gethostname(host, sizeof host - 1);
  std::snprintf(seconds, sizeof seconds, "%.3g s", waited);
  fail(machineError(
      concat("rank ", rank.job.rank, " on host '", host,
             "' has not got on for ", seconds, ": ", place.text,
             place.waitsForOthers ? ", which waits for the other ranks" : "",
             "; the last commands are in '", path, "'")));
}

} // namespace fsdpc::runtime
