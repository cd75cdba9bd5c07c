// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checkpoints of a training run: which one it continues from, when the next one
// is written, and which ones are removed.
//
// Rank 0 alone lists, locks and changes the folder; every rank reads and writes
// files in it. If a checkpoint cannot be written during the run, the run warns
// and goes on, since the completed steps are worth keeping and the previous
// checkpoint is intact. If the last checkpoint cannot be written, that is an
// error.
#include "runtime/core/failure.h"
#include "runtime/support/concat.h"
#include "runtime/support/new_file.h"
#include "runtime/support/spelling.h"
#include "runtime/train/trainer.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace fsdpc::runtime {

// Compares the flags first: ranks that differ in them would wait for each other
// in different exchanges.
Status Trainer::openCheckpoints() {
  std::vector<Fact> flags = {
      {"--checkpoint", options.checkpoint.empty() ? "off" : "on"},
      {"--checkpoint-every", options.checkpointEvery},
      {"--checkpoint-trained", options.checkpointTrained ? "on" : "off"},
      {"--resume", options.resume}};
  if (!job.sharesProcess)
    FSDPC_TRY(agree(job, compareFacts(flags, job)));
  if (options.checkpoint.empty())
    return {};
  folder.name(options.checkpoint);
  FSDPC_TRY(agree(job, openFolder()));
  // Trying is the only reliable check, and ranks may be on other machines.
  Status writable =
      checkWritable(options.checkpoint + "/" + rankFileName(job.rank));
  if (!writable)
    writable = writable.error().reworded(
        writable.error().message +
        "; every rank must be able to write to --checkpoint");
  FSDPC_TRY(agree(job, writable));
  FSDPC_TRY(chooseCheckpoint());
  warnOfSmallDisk();
  return {};
}

// Without --resume, a folder that has checkpoints belongs to another run.
Status Trainer::openFolder() {
  if (job.rank != 0)
    return {};
  FSDPC_TRY(folder.open());
  auto steps = folder.steps();
  FSDPC_TRY(steps);
  if (options.resume.empty() && !steps->empty())
    return inputError(
        concat("'", options.checkpoint,
               "' has checkpoints already, the newest of step ", steps->back(),
               "; continue with --resume, or name another folder"));
  return {};
}

// Rank 0 proposes one checkpoint after the other, newest first, until all ranks
// find theirs whole. All ranks return the same code.
Status Trainer::chooseCheckpoint() {
  return options.resume.empty() ? Status() : findCheckpoint(options.resume);
}

// `wanted` is "newest" or a step.
Status Trainer::findCheckpoint(const std::string &wantedStep) {
  bool newest = wantedStep == "newest";
  std::vector<int64_t> steps;
  Status listed;
  if (job.rank == 0) {
    auto found = folder.steps();
    if (!found)
      listed = found.error();
    else
      steps = *found;
    int64_t wanted = newest ? 0 : std::atoll(wantedStep.c_str());
    bool known = std::find(steps.begin(), steps.end(), wanted) != steps.end();
    if (listed && !newest && !known)
      listed = inputError(concat(
          "'", options.checkpoint, "' has no checkpoint of step ", wanted,
          steps.empty() ? ""
                        : concat("; the newest is of step ", steps.back())));
    if (!newest)
      steps = {wanted};
  }
  FSDPC_TRY(agree(job, listed));
  std::vector<int64_t> all(size_t(job.size));
  // Another start may succeed if a checkpoint could only not be read now.
  bool mayPass = false;
  // Every round all ranks look at the same checkpoint: rank 0's proposal is
  // element 0 of the exchange, and -1 ends the search.
  for (bool first = true;; first = false) {
    int64_t step = steps.empty() ? -1 : steps.back();
    if (!steps.empty())
      steps.pop_back();
    job.channel[controlChannel]->allGather(&step, all.data(), sizeof step);
    if (all[0] < 0) {
      if (first)
        return agree(job, Status());
      std::string none =
          "no checkpoint in '" + options.checkpoint + "' is whole";
      return agree(job, mayPass ? runError(none) : inputError(none));
    }
    // It may be whole for a newer program or for another user, so the one
    // before is no remedy.
    FSDPC_TRY(agree(job, checkReadable(folder.folderOf(all[0]))));
    Result<TrainingCheckpoint> opened =
        TrainingCheckpoint::open(folder.folderOf(all[0]));
    Status whole =
        opened ? opened->verify(job.rank, job.size) : Status(opened.error());
    if (!newest)
      FSDPC_TRY(agree(job, whole));
    Together outcome = together(job, whole);
    if (outcome.failed >= 0) {
      mayPass |= !whole && whole.error().code() == ExitCode::runFailed;
      if (outcome.failed == job.rank)
        printWarning(outcome.own.error().message +
                     "; trying the checkpoint before it");
      continue;
    }
    resumed = std::move(*opened);
    state = started = resumed->manifest().state;
    scaler.resume(state.scaler);
    counted = checkpointed = info.firstStep = started.step;
    Status same = checkSameModel(resumed->manifest(), manifest);
    if (same)
      same = checkLossMean();
    if (!same)
      same = same.error().reworded("cannot resume from '" +
                                   folder.folderOf(started.step) +
                                   "': " + same.error().message);
    return agree(job, same);
  }
}

// Losses of runs with different means are different numbers, and so are their
// gradients. Checkpoints of earlier versions have the microbatch's, and those
// that were converted from other tools do not say.
Status Trainer::checkLossMean() const {
  const CheckpointManifest &before = resumed->manifest();
  if (!before.settingOf(samplesPerStep))
    return {};
  const std::string *mean = before.settingOf(lossMeanSetting);
  std::string had = mean ? *mean : "microbatch";
  if (manifest.lossMean.empty() || manifest.lossMean == had)
    return {};
  return inputError("its loss is a mean by --loss-mean=" + printable(had) +
                    ", and this program's by --loss-mean=" + manifest.lossMean +
                    "; compile the model with '--loss-mean=" + printable(had) +
                    "'");
}

// Options and hashes that decide what is learnt, and who wrote it.
std::vector<std::pair<std::string, std::string>> Trainer::settings() const {
  std::vector<std::pair<std::string, std::string>> settings = {
      {"compiler", manifest.compiler},
      {"the command line of the compile", manifest.commandLine},
      {"the program's hash", manifest.programHash},
      {"the schedule's hash", manifest.scheduleHash},
      {"the strategy", manifest.strategy},
      {"the optimizer", manifest.optimizer},
      {"the device", backendName()},
      {"the number of ranks", std::to_string(job.size)},
      {samplesPerStep, std::to_string(microbatches * samples.batch())}};
  if (!manifest.lossMean.empty())
    settings.emplace_back(lossMeanSetting, manifest.lossMean);
  // A run that resumes reads no initial values.
  for (const Fact &fact : facts)
    if (fact.name.rfind("--save", 0) != 0 &&
        fact.name.find("--init") == std::string::npos &&
        fact.name.find("the model's files") == std::string::npos)
      settings.emplace_back(fact.name, fact.value);
  return settings;
}

bool Trainer::isCheckpointDue() const {
  return options.checkpointMinutes > 0 &&
         std::chrono::steady_clock::now() - checkpointedAt >=
             std::chrono::minutes(options.checkpointMinutes);
}

// Counted from step 0, so a resumed run writes at the same steps.
bool Trainer::isCheckpointStep(int64_t done) const {
  return options.checkpointSteps > 0 && done % options.checkpointSteps == 0;
}

// Allocates what checkpoints need beside the rank's memory.
Status Trainer::prepareCheckpoints() {
  if (options.checkpoint.empty())
    return {};
  writer = std::make_unique<CheckpointWriter>(
      *rank, folder, options.checkpointTrained ? base : "",
      [this](int64_t step) {
        if (Status removed = removeOld(step); !removed)
          printWarning(removed.error().message + "; an old checkpoint stays");
      });
  return info.plan.checkpoint > 0 ? writer->allocateCopy() : Status();
}

// All ranks call it together after a step. The checkpoint of the last step is
// left to writeLastCheckpoint, which reports its failure as an error. A
// checkpoint that is still being written when the next is due is finished
// first: the training waits for the disk only then.
Status Trainer::writeDueCheckpoint() {
  bool ends = stopping || exhausted || state.step >= options.steps;
  if (ends || (!due && !isCheckpointStep(state.step)))
    return {};
  finishCheckpoint();
  if (Together begun = startCheckpoint(); begun.failed >= 0)
    warnOfLost(begun);
  // The time that it took belongs to no step.
  finished = std::chrono::steady_clock::now();
  return {};
}

// Leaves it to the caller to report a failure.
Together Trainer::writeLastCheckpoint() {
  if (options.checkpoint.empty())
    return {};
  finishCheckpoint();
  if (checkpointed == state.step)
    return {};
  Together outcome = startCheckpoint();
  if (outcome.failed < 0)
    outcome = writer->finish();
  if (outcome.failed < 0)
    noteCheckpoint();
  return outcome;
}

// The command of --after-checkpoint reads the checkpoint before, which this one
// may remove.
Together Trainer::startCheckpoint() {
  awaitHook();
  countMicrobatches();
  checkpointedAt = std::chrono::steady_clock::now();
  due = false;
  return writer->start(state, settings());
}

// Goes on with the checkpoint that is being written. All ranks call it
// together.
void Trainer::advanceCheckpoint() {
  if (Together ended = writer->advance(); ended.failed >= 0)
    warnOfLost(ended);
  else if (!writer->isActive())
    noteCheckpoint();
}

void Trainer::finishCheckpoint() {
  while (writer && writer->isActive())
    advanceCheckpoint();
}

void Trainer::warnOfLost(const Together &outcome) const {
  if (outcome.failed == job.rank)
    printWarning(concat(outcome.own.error().message,
                        "; the run goes on without a checkpoint of step ",
                        writer->step()));
}

// Takes note of a checkpoint that has its name.
void Trainer::noteCheckpoint() {
  checkpointed = writer->step();
  if (job.rank != 0)
    return;
  if (Status begun =
          hook.start(options.afterCheckpoint, folder.folderOf(checkpointed));
      !begun)
    printWarning(begun.error().message);
}

// The checkpoint is whole whatever becomes of the command.
void Trainer::awaitHook() {
  if (Status ended = hook.finish(); !ended)
    printWarning(ended.error().message);
}

// Checkpoints of later steps belong to a course that this run has left. Called
// on rank 0 when a checkpoint has its name. --keep counts the newest ones. One
// that cannot be removed does not keep the others; the first error is returned.
Status Trainer::removeOld(int64_t newest) {
  auto steps = folder.steps();
  FSDPC_TRY(steps);
  auto end = std::upper_bound(steps->begin(), steps->end(), newest);
  std::vector<int64_t> gone(end, steps->end());
  int64_t kept = end - steps->begin();
  for (int64_t i = 0; options.keep > 0 && i < kept - options.keep; ++i)
    if (options.keepEvery == 0 || (*steps)[size_t(i)] % options.keepEvery != 0)
      gone.push_back((*steps)[size_t(i)]);
  Status outcome;
  for (int64_t step : gone)
    if (Status done = folder.remove(step); !done && outcome)
      outcome = done;
  return outcome;
}

} // namespace fsdpc::runtime
