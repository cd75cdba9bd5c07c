// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// --watchdog: ends the job when a step makes no progress. A thread of each rank
// checks whether the loop or a stream has moved since its last check. A rank
// that is stuck itself ends the job with a line that says where. A rank that
// waits for others reports later, because they may know more. Each rank writes
// its flight record before the time is up, so the records of all ranks exist
// however the job ends.
//
// Only steps are watched, since the time to write a file depends on the disk.
// The other ranks detect a silent rank (MpiWatch, TcpSession). A GPU's Watchdog
// detects a collective that hangs.
#pragma once

#include "runtime/core/flight_recorder.h"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace fsdpc::runtime {

class StepWatch {
public:
  struct Limits {
    /// The limits of a step, in seconds; negative: the larger of 300 and 20
    /// median steps; 0: none. `first` is that of the first step, which loads
    /// code and files.
    double step = -1, first = 0;
  };
  /// Starts the thread. Keeps references to rank and recorder. `path` is that
  /// of this rank's flight record.
  StepWatch(const fsdpc_rank &rank, const FlightRecorder &recorder,
            Limits limits, std::string path);
  ~StepWatch();
  StepWatch(const StepWatch &) = delete;

  /// Called by the loop around each step. `seconds` is how long the step took;
  /// the median of the last 64 decides the limit.
  void beginStep();
  void endStep(double seconds);

private:
  using Clock = std::chrono::steady_clock;
  void loop();
  void look(double limit);
  void writeRecord();
  void end(double waited);
  double limit() const;

  const fsdpc_rank &rank;
  const FlightRecorder &recorder;
  const Limits limits;
  const std::string path;
  /// Used by the thread only.
  uint64_t seen = 0;
  Clock::time_point since, awake;
  bool tried = false;
  std::atomic<bool> written =
      false; ///< the record; read by who reports an error
  /// Another rank is lost: progress does not remove the record any more.
  std::atomic<bool> keeps = false;
  mutable std::mutex mutex; ///< guards what follows
  std::condition_variable changed;
  std::array<double, 64> lengths{}; ///< of the last steps
  size_t steps = 0;
  bool running = false, stopping = false;
  std::thread thread;
};

} // namespace fsdpc::runtime
