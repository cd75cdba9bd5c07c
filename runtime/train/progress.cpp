// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Draws the progress line. It redraws at most ten times per second, so that the
// terminal does not slow the training. An emulated device prints no times,
// because they would be meaningless.
#include "runtime/train/progress.h"
#include "runtime/core/failure.h"
#include "runtime/support/concat.h"
#include "runtime/support/spelling.h"

#include <algorithm>
#include <cstdarg>
#include <cstdlib>
#include <unistd.h>

namespace fsdpc::runtime {
namespace {

// Cuts the text off at 511 bytes, so paths are appended by other means.
[[gnu::format(printf, 1, 2)]] std::string format(const char *text, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, text);
  std::vsnprintf(line, sizeof line, text, arguments);
  va_end(arguments);
  return line;
}

// Flushed at once, since a redrawn line does not end in a newline.
void say(const std::string &text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

} // namespace

// A launcher forwards output line by line, so only a direct terminal is
// redrawn.
Progress::Progress(const Manifest &manifest, const Options &options,
                   const RunInfo &info)
    : manifest(manifest), options(options), info(info),
      redraw(isatty(STDERR_FILENO) &&
             (info.launcher == "none" || info.launcher == "local")),
      prefix(isEmulation() ? "emulated: " : ""), began(Clock::now()) {}

double Progress::elapsed() const {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

// One line: ranks, threads, strategy, planned memory.
void Progress::start() const {
  auto count = [](int number, const char *what) {
    return concat(number, " ", what, number == 1 ? "" : "s");
  };
  std::string ranks = count(info.ranks, "rank");
  if (info.launcher != "none")
    ranks += info.launcher == "local" ? " (threads of one process)"
                                      : " (" + info.launcher + ")";
  say(prefix + ranks + ", " + count(info.threads, "thread") +
      " each, rank 0 on cores " + info.binding + "; " + manifest.strategy +
      (reducesInGroups(manifest) ? " in groups of "
       : usesGroups(manifest)    ? " resharded to groups of "
                                 : "") +
      (usesGroups(manifest) ? count(info.groupRanks, "rank") : "") + ", " +
      bytesText(info.plan.total()) + " per rank" +
      (info.plan.checkpoint ? ", " + bytesText(info.plan.checkpoint) +
                                  " of it to copy checkpoints"
                            : "") +
      (info.plan.offloaded ? ", and " + bytesText(info.plan.offloaded) + " " +
                                 offloadedName(manifest)
                           : "") +
      "\n");
  // Threads without a core of their own wait for each other in every product.
  if (info.threads > info.cores)
    printWarning("each rank has " + count(info.threads, "thread") + " but " +
                 count(info.cores, "core") +
                 "; lower --threads or bind more cores to each rank");
}

// Formats how fast the step was, the part of it that waited for other ranks,
// and the memory.
std::string Progress::measured(const StepRecord &record) const {
  std::string text;
  if (!isEmulation())
    text = format(
        "  %.0f ms/step  %s %s/s", record.milliseconds,
        countText(itemsPerSecond(manifest, options, info, record)).c_str(),
        manifest.tokensInput.empty() ? "samples" : "tokens");
  if (!isEmulation() && info.ranks > 1)
    text += format("  exposed comm %.0f %%",
                   100 * record.exposedMilliseconds / record.milliseconds);
  return text + "  resident " + bytesText(record.residentBytes);
}

// Counts down to the next checkpoint, in the unit of --checkpoint-every.
std::string Progress::nextCheckpoint(const StepRecord &record,
                                     Clock::time_point checkpointedAt) const {
  int64_t done = record.step + 1;
  if (done == options.steps)
    return "";
  if (options.checkpointSteps) {
    int64_t steps = options.checkpointSteps - done % options.checkpointSteps;
    steps = std::min(steps, options.steps - done); // one follows the last step
    return format("  checkpoint in %lld step%s", (long long)steps,
                  steps == 1 ? "" : "s");
  }
  if (!options.checkpointMinutes)
    return "";
  std::chrono::duration<double> since = Clock::now() - checkpointedAt;
  double seconds = 60. * double(options.checkpointMinutes) - since.count();
  return "  checkpoint in " + durationText(std::max(seconds, 0.));
}

void Progress::step(const StepRecord &record,
                    Clock::time_point checkpointedAt) {
  double now = elapsed();
  bool last = record.step + 1 == options.steps;
  // The last step is always drawn on a terminal, so that the line ends at 100
  // %.
  if (!redraw ? now - shown < 10 : now - shown < 0.1 && !last)
    return;
  shown = now;
  // By the mean of all steps so far, the slow first one included.
  double left = now / double(record.step + 1 - info.firstStep) *
                double(options.steps - record.step - 1);
  std::string scale =
      (record.scaled ? format("  scale %.6g", record.scale) : "") +
      (record.counts ? format("  skipped %lld", (long long)record.skipped)
                     : "");
  say(format(
      "%s%sstep %lld/%lld  loss %.4f  norm %.3g%s%s  %s left%s%s",
      redraw ? "\r\x1b[K" : "", prefix, (long long)record.step + 1,
      (long long)options.steps, record.loss, record.gradNorm, scale.c_str(),
      measured(record).c_str(), durationText(left).c_str(),
      nextCheckpoint(record, checkpointedAt).c_str(), redraw ? "" : "\n"));
}

// Prints a line that stays.
void Progress::evaluation(const EvaluationRecord &record) const {
  std::string text = format("%s%sstep %lld", redraw ? "\r\x1b[K" : "", prefix,
                            (long long)record.step);
  // --steps 0 may evaluate a checkpoint.
  if (record.step <= options.steps)
    text += concat("/", options.steps);
  text += format("  eval loss %.6g on %lld samples", record.loss,
                 (long long)record.samples);
  for (size_t m = 0; m < record.metrics.size(); ++m)
    text += "  " + printable(options.metrics[m].name) +
            format(" %.6g", record.metrics[m]);
  say(text + "\n");
}

void Progress::nothingToDo() const {
  say(concat(prefix, "nothing to train: ", info.firstStep,
             " steps are done, and --steps is ", options.steps, "\n"));
}

// The rate counts the steps of this run, not those before it resumed.
void Progress::finish(const StepRecord &last) {
  double seconds = elapsed();
  std::string rate =
      isEmulation()
          ? ""
          : format(" in %s (%.3g steps/s)", durationText(seconds).c_str(),
                   double(last.step + 1 - info.firstStep) / seconds);
  say(format("%s%sdone: %lld steps%s, final loss %.6g, resident %s\n",
             redraw ? "\r\x1b[K" : "", prefix, (long long)last.step + 1,
             rate.c_str(), last.loss, bytesText(last.residentBytes).c_str()));
}

// Tells the person who stopped the run how to go on.
void Progress::stop(const StepRecord &last, const char *signal) const {
  std::string place;
  auto add = [&](const std::string &file, const std::string &what,
                 const std::string &then = "") {
    if (!file.empty())
      place += (place.empty() ? "" : "; ") + what + " in '" + file + "'" + then;
  };
  add(options.save, "the parameters are");
  add(options.saveEma, "the averages are");
  add(options.checkpoint, "a checkpoint is", ", continue with --resume");
  if (place.empty())
    place = "nothing is saved, since --save was not given";
  say(format("%s%sstopped by %s after step %lld/%lld; ",
             redraw ? "\r\x1b[K" : "", prefix, signal, (long long)last.step + 1,
             (long long)options.steps) +
      place + "\n");
}

} // namespace fsdpc::runtime
