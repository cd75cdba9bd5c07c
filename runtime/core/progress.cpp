// Draws the progress line. It redraws at most ten times per second, so that the
// terminal costs the training nothing. An emulated device prints no times,
// because they would mean nothing.
#include "runtime/core/progress.h"
#include "runtime/core/failure.h"
#include "runtime/core/spelling.h"

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

// Rounded to whole seconds first, so that 59.7 s is "1m00s" and not "60s".
std::string durationText(double seconds) {
  long whole = long(seconds + 0.5);
  if (whole >= 3600)
    return format("%ldh%02ldm", whole / 3600, whole % 3600 / 60);
  if (whole >= 60)
    return format("%ldm%02lds", whole / 60, whole % 60);
  return format("%lds", whole);
}

// A launcher forwards output line by line, so only a direct terminal is
// redrawn.
Progress::Progress(const Options &options, const RunInfo &info)
    : options(options), info(info),
      redraw(isatty(STDERR_FILENO) &&
             (info.launcher == "none" || info.launcher == "local")),
      prefix(isEmulation() ? "emulated: " : ""), began(Clock::now()) {}

double Progress::elapsed() const {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

void Progress::start(const Manifest &manifest) const {
  auto count = [](int number, const char *what) {
    return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
  };
  std::string ranks = count(info.ranks, "rank");
  if (info.launcher != "none")
    ranks += info.launcher == "local" ? " (threads of one process)"
                                      : " (" + info.launcher + ")";
  say(prefix + ranks + ", " + count(info.threads, "thread") +
      " each, rank 0 on cores " + info.binding + "; " + manifest.strategy +
      (usesGroups(manifest) ? " in groups of " + count(info.groupRanks, "rank")
                            : "") +
      ", " + bytesText(info.plan.total()) + " per rank\n");
  // Threads without a core of their own wait for each other in every product.
  if (info.threads > info.cores)
    printWarning("each rank has " + count(info.threads, "thread") + " but " +
                 count(info.cores, "core") +
                 "; lower --threads or bind more cores to each rank");
}

void Progress::step(const StepRecord &record) {
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
  std::string rate =
      isEmulation() ? "" : format("  %.0f ms/step", record.milliseconds);
  std::string scale = record.scaled
                          ? format("  scale %.6g  skipped %lld", record.scale,
                                   (long long)record.skipped)
                          : "";
  say(format("%s%sstep %lld/%lld  loss %.4f  norm %.3g%s%s  %s left%s",
             redraw ? "\r\x1b[K" : "", prefix, (long long)record.step + 1,
             (long long)options.steps, record.loss, record.gradNorm,
             scale.c_str(), rate.c_str(), durationText(left).c_str(),
             redraw ? "" : "\n"));
}

void Progress::evaluation(const EvaluationRecord &record) const {
  say(format("%s%sstep %lld/%lld  eval loss %.6g on %lld samples\n",
             redraw ? "\r\x1b[K" : "", prefix, (long long)record.step,
             (long long)options.steps, record.loss, (long long)record.samples));
}

void Progress::nothingToDo() const {
  say(prefix + std::string("nothing to train: ") +
      std::to_string(info.firstStep) + " steps are done, and --steps is " +
      std::to_string(options.steps) + "\n");
}

void Progress::finish(const StepRecord &last) {
  double seconds = elapsed();
  std::string rate =
      isEmulation()
          ? ""
          : format(" in %s (%.3g steps/s)", durationText(seconds).c_str(),
                   double(last.step + 1 - info.firstStep) / seconds);
  say(format("%s%sdone: %lld steps%s, final loss %.6g, peak %s\n",
             redraw ? "\r\x1b[K" : "", prefix, (long long)last.step + 1,
             rate.c_str(), last.loss, bytesText(last.peakBytes).c_str()));
}

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
