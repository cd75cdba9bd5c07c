// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Progress for the user, printed by rank 0 to stderr: how the run is set up,
// how far it is, how long it will take, and how it ended. On a terminal the
// line is redrawn in place; otherwise it prints one line every ten seconds.
// Under a launcher it never redraws, because mpirun's output looks like a
// terminal even when it is redirected.
#pragma once

#include "runtime/train/log.h"

#include <chrono>

namespace fsdpc::runtime {

/// Keeps references to its arguments, which must outlive it.
class Progress {
public:
  using Clock = std::chrono::steady_clock;
  Progress(const Manifest &manifest, const Options &options,
           const RunInfo &info);
  /// Prints the layout of the run, and warns of threads without a core.
  void start() const;
  /// `checkpointedAt` is when the last checkpoint was written, or the run
  /// began.
  void step(const StepRecord &record, Clock::time_point checkpointedAt);
  /// Prints the end of a run that a signal ended after the step `last`, and
  /// where its parameters are.
  void stop(const StepRecord &last, const char *signal) const;
  /// Prints how the run ended: steps, speed, final loss and peak.
  void finish(const StepRecord &last);
  /// Prints that a resumed run had no step left.
  void evaluation(const EvaluationRecord &record) const;
  void nothingToDo() const;

private:
  double elapsed() const;
  std::string measured(const StepRecord &record) const;
  std::string nextCheckpoint(const StepRecord &record,
                             Clock::time_point checkpointedAt) const;
  const Manifest &manifest;
  const Options &options;
  const RunInfo &info;
  bool redraw;
  const char *prefix; ///< at the start of every line
  Clock::time_point began;
  double shown = 0; ///< seconds from the start to the last line
};

} // namespace fsdpc::runtime
