// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints the run's messages on rank 0: where it continues, its first and last
// lines, and the lines of a step in the log and the event file. If the log can
// no longer be written, the run only warns, since the weights matter more.
#include "runtime/abi/owners.h"
#include "runtime/core/failure.h"
#include "runtime/support/concat.h"
#include "runtime/support/spelling.h"
#include "runtime/train/progress.h"
#include "runtime/train/stop_request.h"
#include "runtime/train/trainer.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace fsdpc::runtime {

constexpr int64_t mebibyte = 1 << 20;

void Trainer::warnOfUnused() const {
  std::string names;
  std::vector<std::string> unused = weights.unused();
  for (size_t i = 0; i < unused.size() && i < 5; ++i)
    names += (i ? ", '" : "'") + printable(unused[i]) + "'";
  if (unused.size() > 5)
    names += concat(" and ", unused.size() - 5, " more");
  if (!names.empty())
    printWarning("'" + options.init +
                 "' contains tensors that the program does not use: " + names);
}

// Lists the parameters whose state begins here: "'a', 'b' and 3 more".
static std::string begunStates(const Manifest &manifest,
                               const TrainingCheckpoint &checkpoint) {
  std::string names;
  size_t count = 0;
  for (const Layout &layout : manifest.layouts)
    for (const Member &member : layout.members)
      if (layout.trainable && !checkpoint.since(layout, member) && ++count <= 5)
        names += (count > 1 ? ", '" : "'") + printable(member.name) + "'";
  if (count > 5)
    names += concat(" and ", count - 5, " more");
  return names;
}

// Says what becomes of the residuals of gradients, if it is not what the run
// before would have done with them; "" or a line.
static std::string residualNote(const Manifest &manifest,
                                const TrainingCheckpoint &checkpoint,
                                int ranks) {
  bool lost = false, begun = false, kept = false;
  for (const Layout &layout : manifest.layouts)
    for (const Member &member : layout.members) {
      bool has = checkpoint.hasResidual(member);
      lost |= has && !layout.compression;
      begun |= !has && layout.compression;
      kept |= has && layout.compression;
    }
  int64_t before = checkpoint.manifest().ranks;
  std::string text;
  if (lost)
    text += "this program's reductions send whole gradients: the checkpoint's "
            "residuals are dropped\n";
  if (begun)
    text += "the checkpoint has no residuals of gradients: they begin at "
            "zero\n";
  if (kept && before != ranks)
    text += concat("the residuals of ", before, " ranks are distributed over ",
                   ranks, ", so that their sum stays\n");
  return text;
}

// Compares numbers by value, since other versions wrote them in another way:
// 3e+05 for 300000, or 17 digits. Two integers are the same only if their texts
// are: a double does not hold every seed.
static bool isSameSetting(const std::string &a, const std::string &b) {
  if (a == b)
    return true;
  const char *fraction = ".eE";
  if (a.empty() || b.empty() ||
      (a.find_first_of(fraction) == a.npos &&
       b.find_first_of(fraction) == b.npos))
    return false;
  char *endA = nullptr, *endB = nullptr;
  double number = std::strtod(a.c_str(), &endA);
  return number == std::strtod(b.c_str(), &endB) && !*endA && !*endB &&
         std::isfinite(number); // a hash may read as an infinite number
}

// Says where the run continues, and with what else than before.
void Trainer::reportResumed() const {
  if (options.resume.empty())
    return;
  if (!resumed) {
    std::fprintf(stderr, "'%s' has no checkpoint yet: starting at step 0\n",
                 options.checkpoint.c_str());
    return;
  }
  std::fprintf(stderr, "resuming from '%s'\n",
               folder.folderOf(started.step).c_str());
  std::string begun = begunStates(manifest, *resumed);
  if (started.step > 0 && !begun.empty())
    std::fprintf(stderr, "%s: newly trained, from a state of zero and step 1\n",
                 begun.c_str());
  if (started.step > 0)
    std::fputs(residualNote(manifest, *resumed, job.size).c_str(), stderr);
  std::string differing;
  for (auto &[name, value] : settings()) {
    const std::string *old = resumed->manifest().settingOf(name);
    if (old && !isSameSetting(*old, value))
      differing += (differing.empty() ? "" : ", ") + name + " is '" + value +
                   "', was '" + printable(*old) + "'";
  }
  // They decide nothing if nothing is trained.
  if (!differing.empty() && started.step < options.steps)
    printWarning("the run resumes with other settings: " + differing);
}

// Writes a step to the log and to the event file. The run does not depend on
// them.
void Trainer::publish(const StepRecord &record) {
  auto warn = [&](const Status &written, const char *what) {
    if (!written)
      printWarning(concat(written.error().message,
                          "; the run goes on, and its ", what,
                          " ends before step ", record.step));
  };
  warn(log.step(manifest, options, info, record), "log");
  if (events.isOpen()) // a step allocates nothing without it
    warn(events.add(record.step, scalarsOf(manifest, options, info, record),
                    record.measured ? updateRatios->histograms()
                                    : std::vector<Histogram>()),
         "event file");
}

// Says what the run begins with, once everything is prepared.
Status Trainer::beginReports(Progress &progress) {
  progress.start();
  if (std::string note = weights.initNote(); !note.empty())
    std::fprintf(stderr, "%s\n", note.c_str());
  std::fputs(describeOwners(manifest, job.size, "").c_str(), stderr);
  warnOfUnused();
  reportResumed();
  if (!evaluation.note().empty())
    printWarning(evaluation.note());
  // Only now that the run is about to train does the old log go.
  FSDPC_TRY(log.goBack(info.firstStep));
  if (Status logged = log.header(manifest, options, info); !logged)
    printWarning(logged.error().message + "; the run goes on without its log");
  return events.begin(info.firstStep);
}

// Says how the run ended; `record` is its last step.
void Trainer::endReports(Progress &progress, const StepRecord &record) {
  if (options.steps == 0)
    return; // the evaluation has been printed
  if (started.step >= options.steps)
    progress.nothingToDo();
  else if (stopping)
    progress.stop(record, nameOfRequest(stopping));
  else
    progress.finish(record);
  if (record.overPlan > 64 * mebibyte)
    printWarning("resident memory is " + bytesText(record.overPlan) +
                 " above the planned " + bytesText(info.processPlan));
}

} // namespace fsdpc::runtime
