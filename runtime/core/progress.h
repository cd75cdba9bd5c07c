// Progress for the person who waits, printed by rank 0 to stderr: how the run
// is laid out, how far it is and how long it will take, how it ended. On a
// terminal the line is redrawn in place; otherwise it prints one line every ten
// seconds. Under a launcher it never redraws, because mpirun's output looks
// like a terminal even when it is redirected.
#pragma once

#include "runtime/core/log.h"

#include <chrono>

namespace fsdpc::runtime {

// Keeps references to `options` and `info`, which must outlive it.
class Progress {
public:
  Progress(const Options &options, const RunInfo &info);
  void start(const Manifest &manifest) const;
  void step(const StepRecord &record);
  // Prints the end of a run that a signal ended after the step `last`, and
  // where its parameters are.
  void stop(const StepRecord &last, const char *signal) const;
  void finish(const StepRecord &last);
  // Prints that a resumed run had no step left.
  void evaluation(const EvaluationRecord &record) const;
  void nothingToDo() const;

private:
  using Clock = std::chrono::steady_clock;
  double elapsed() const;
  const Options &options;
  const RunInfo &info;
  bool redraw;
  const char *prefix; // at the start of every line
  Clock::time_point began;
  double shown = 0; // seconds from the start to the last line
};

// Formats a duration: "1h02m", "3m05s", "42s".
std::string durationText(double seconds);

} // namespace fsdpc::runtime
