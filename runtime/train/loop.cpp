// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The training loop. Per step there is one exchange on the control channel: it
// carries the losses and whether every rank could read its next samples. On a
// device that runs ahead, those are the losses of the previous step.
//
// A device that does not run ahead sees the loss before the update, so a bad
// loss leaves the parameters untouched.
#include "runtime/train/trainer.h"

#include "runtime/core/failure.h"
#include "runtime/train/progress.h"
#include "runtime/train/stop_request.h"

#include <algorithm>
#include <cmath>
#include <ctime>

namespace fsdpc::runtime {

// Enqueues the K microbatches of a step. While the device computes on one input
// slot, the host fills the other. All microbatches are of one bucket.
Status Trainer::runMicrobatches(int64_t step) {
  size_t bucket = samples.bucketOf(numberOf(step, 0, 0));
  if (lossWeights.isOn())
    send(size_t(rank->slot), 0);
  for (int64_t k = 0; k < options.accumulate; ++k) {
    rank->microbatch = k;
    Section section = {false, rank->slot, k == 0, k, step};
    section.bucket = bucket;
    enter(microbatchNames[bucket].c_str(), section,
          program.buckets[bucket].microbatch);
    recorder->at("reading samples");
    FSDPC_TRY(readNext(step, k));
    recorder->at("waiting for the device");
    if (!rank->device->runsAhead())
      rank->device->synchronize();
    rank->slot ^= 1;
  }
  return {};
}

// Enqueues the update, which measures its changes in the steps of
// --histogram-every. After the first step it also saves the gradients, if asked
// to.
Status Trainer::runUpdate(int64_t step) {
  bool measures = isHistogramStep(step);
  if (measures)
    updateRatios->clear();
  rank->updateRatios = measures ? updateRatios.get() : nullptr;
  enter("update", {true, 0, false, 0, step}, program.update);
  if (!rank->device->runsAhead())
    rank->device->synchronize();
  trace.leave();
  if (step != started.step || leftOut > 0 || options.saveGradients.empty())
    return {};
  // The update does not change the gradients.
  rank->device->synchronize();
  return saveTo(options.saveGradients, Saved::gradients);
}

// All calls of entry functions pass here, so trace and flight recorder know
// them.
void Trainer::enter(const char *name, const Section &section,
                    void (*entry)(fsdpc_rank *)) {
  trace.enter(*rank, name);
  recorder->enter(name);
  rank->device->enter(*rank, section, entry);
}

// A skipped step does not count for the schedule of the learning rate and for
// the optimizer.
StepNumbers Trainer::numbersAt(int64_t step, const LossScaler &after) const {
  StepNumbers numbers;
  numbers.updates = step - after.skipped();
  numbers.lr = options.schedule.at(numbers.updates, options.steps, options.lr);
  numbers.lossScale = after.scale();
  double mean = manifest.averagedBefore ? 1 : rank->inverseV;
  numbers.gradientFactor =
      mean * manifest.predivided / double(numbers.lossScale);
  return numbers;
}

// Sets what a step computes with. If the results of the step before are not
// known yet, either may come.
void Trainer::begin(StepRecord &record) {
  int64_t step = record.step;
  record.bucket = samples.bucketOf(numberOf(step, 0, 0));
  rank->step = step;
  LossScaler kept = scaler, skipped = scaler;
  if (pending) {
    kept.update(true);
    skipped.update(false);
  }
  rank->numbers = numbersAt(step, kept);
  rank->afterSkip = numbersAt(step, skipped);
  // A device that runs ahead may still be reading the slots, and writes the
  // scale there itself.
  if (scaler.isOn() && !rank->device->runsAhead())
    for (RandomKey *key : rank->randomStaging)
      key->lossScale = rank->numbers.lossScale;
  note(record);
}

// Takes down what the step computes with; all steps before it are known.
void Trainer::note(StepRecord &record) const {
  StepNumbers numbers = numbersAt(record.step, scaler);
  record.lr = numbers.lr;
  record.scale = double(numbers.lossScale);
}

// Updates buffers that count microbatches, such as BatchNorm's
// num_batches_tracked. Before they are saved is enough, since nothing reads
// them in training.
void Trainer::countMicrobatches() {
  int64_t steps = state.step - counted;
  counted = state.step;
  for (size_t i = 0; i < manifest.buffers.size(); ++i) {
    const Buffer &buffer = manifest.buffers[i];
    int64_t more = buffer.addEachMicrobatch * microbatches * steps;
    if (buffer.countsOneRank)
      more /= rank->job.size;
    if (more == 0)
      continue;
    auto add = [&](auto value) {
      rank->device->download(&value, rank->buffers[i], sizeof value);
      value += decltype(value)(more);
      rank->device->upload(rank->buffers[i], &value, sizeof value);
    };
    if (buffer.dtype == "i64")
      add(int64_t());
    else if (buffer.dtype == "i32")
      add(int32_t());
    else
      add(float());
  }
}

Status Trainer::saveTo(const std::string &path, Saved what) {
  // Files of gradients never have frozen parameters.
  SavedForm form = what == Saved::gradients ? SavedForm() : savedForm();
  return path.empty() ? Status() : save(*rank, what, path, form);
}

// Ends the job if a rank could not read its next samples: the lowest such rank
// returns its error, the others wait for it.
Status Trainer::checkNext() {
  if (stopping)
    return {}; // there is no next step
  if (nextFailure >= 0)
    finishCheckpoint(); // all ranks know of the failure
  if (nextFailure >= 0 && nextFailure != job.rank)
    awaitAbort(job);
  return nextRead;
}

// Returns the milliseconds that all threads of this process have run.
static double processorTime() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) * 1e3 + double(time.tv_nsec) / 1e6;
}

// Reports a step whose results have arrived.
Status Trainer::finish(StepRecord &record) {
  auto now = std::chrono::steady_clock::now();
  record.gradNorm = results.norm;
  record.exposedMilliseconds =
      double(rank->device->takeExposedNanoseconds()) / 1e6;
  record.milliseconds =
      std::chrono::duration<double, std::milli>(now - finished).count();
  computeMilliseconds =
      std::max(0., record.milliseconds - record.exposedMilliseconds -
                       exchangeMilliseconds);
  // Ranks that are threads share a process, so theirs is not known.
  if (job.transport != "local") {
    double total = processorTime();
    processorMilliseconds = total - processorTotal;
    processorTotal = total;
  }
  finished = now;
  watch->endStep(record.milliseconds / 1e3);
  longestStepSeconds = std::max(longestStepSeconds, record.milliseconds / 1e3);
  state.step = record.step + 1;
  state.sample = numberOf(state.step, 0, 0);
  state.scaler = scaler.state();
  if (job.rank == 0)
    publish(record);
  return checkNext();
}

// Writes all that the run has been asked for, and returns the first failure at
// the end: none of these files costs another one. All ranks call it together.
// The checkpoint comes first, because it lacks nothing.
Status Trainer::saveResults(Progress &progress) {
  Together last = writeLastCheckpoint();
  FSDPC_TRY(evaluateLast(progress));
  countMicrobatches();
  // The first update sets the averages; until then they are the parameters.
  bool updated = state.step > state.scaler.skips;
  Status saved = saveTo(options.save, Saved::parameters);
  Status averages =
      saveTo(options.saveEma, updated ? Saved::averages : Saved::parameters);
  if (Status traced = trace.write(*rank); !traced)
    printWarning(traced.error().message + "; the run has no trace");
  awaitHook();
  // An error ends the job, and rank 0 is the last to have written.
  job.channel[controlChannel]->barrier();
  if (last.failed >= 0 && last.failed != job.rank)
    awaitAbort(job);
  for (const Status &written : {last.own, saved, averages})
    FSDPC_TRY(written);
  // A run that is to be resumed may still write what an evaluation finds.
  if (!stopping) {
    FSDPC_TRY(predicted);
    FSDPC_TRY(kept);
  }
  job.channel[controlChannel]->barrier();
  return {};
}

Status Trainer::complete(Progress &progress) {
  judge(record);
  FSDPC_TRY(finish(record));
  if (job.rank == 0)
    progress.step(record, checkpointedAt);
  if (stageDone)
    advanceCheckpoint();
  return {};
}

// Reads the results of the step that a device has run ahead of.
Status Trainer::drain(Progress &progress) {
  if (!pending)
    return {};
  rank->device->results(*rank, record.step, results);
  exchange(&record);
  countSent(record);
  pending = false;
  FSDPC_TRY(complete(progress));
  return leaveOut(record);
}

// A step of a device that does not run ahead. The loss is checked before the
// update, so a bad one leaves the parameters as they were. (With a dynamic
// scale the update is skipped.)
Status Trainer::runStep(Progress &progress) {
  record = next;
  rank->device->results(*rank, record.step, results);
  exchange(&record);
  if (std::isfinite(record.loss) || scaler.isDynamic()) {
    FSDPC_TRY(runUpdate(record.step));
    rank->device->results(*rank, record.step, results);
    sumUpdateRatios(record);
  } else {
    results.norm = std::numeric_limits<double>::quiet_NaN();
  }
  countSent(record);
  FSDPC_TRY(complete(progress));
  FSDPC_TRY(leaveOut(record));
  if (wentBack)
    return {};
  FSDPC_TRY(evaluateDue(progress));
  return writeDueCheckpoint();
}

// A step of a device that runs ahead: it is enqueued before the results of the
// step before are read, so the device never waits for the host.
Status Trainer::runStepAhead(Progress &progress) {
  FSDPC_TRY(runUpdate(next.step));
  if (pending)
    rank->device->results(*rank, record.step, results);
  // Exchanged without results as well, because all ranks must learn whether
  // the samples of the next step could be read.
  exchange(pending ? &record : nullptr);
  if (pending)
    countSent(record);
  wentBack = false;
  FSDPC_TRY(pending ? complete(progress) : checkNext());
  if (pending)
    FSDPC_TRY(leaveOut(record));
  if (wentBack)
    return {};
  record = next;
  note(record);
  pending = true;
  // Only what has a finite loss becomes a checkpoint. The last step may be one
  // from which the run goes back.
  if (!due && !isCheckpointStep(next.step + 1) &&
      !isEvaluationStep(next.step + 1) && next.step + 1 < options.steps)
    return {};
  FSDPC_TRY(drain(progress));
  if (wentBack)
    return {};
  FSDPC_TRY(evaluateDue(progress));
  return writeDueCheckpoint();
}

Status Trainer::train() {
  FSDPC_TRY(rank->device->gatherWholes(*rank));
  info.notes = rank->device->notes();
  Progress progress(manifest, options, info);
  if (job.rank == 0)
    FSDPC_TRY(beginReports(progress));
  resumed.reset();
  recorder = std::make_unique<FlightRecorder>(*rank);
  watch = std::make_unique<StepWatch>(
      *rank, *recorder,
      StepWatch::Limits{options.watchdog, options.firstStepTimeout},
      Trace::pathOf(options.flightRecorder, job.rank, job.size));
  countSent(record); // before the first step, not of it
  finished = checkpointedAt = std::chrono::steady_clock::now();
  // Only from here on: a signal during preparation ends the process at once,
  // since there is nothing to save yet.
  catchStopSignals();
  if (started.step < options.steps)
    exchangeWeights();
  for (int64_t step = started.step;
       step < options.steps && !stopping && !exhausted; ++step) {
    next = StepRecord();
    next.step = step;
    watch->beginStep();
    begin(next);
    keepBuffers();
    FSDPC_TRY(runMicrobatches(step));
    FSDPC_TRY(rank->device->runsAhead() ? runStepAhead(progress)
                                        : runStep(progress));
    if (wentBack)
      step = state.step - 1; // the loop adds 1
  }
  FSDPC_TRY(drain(progress));
  if (state.step >= options.steps)
    stopping = 0; // there was nothing to stop
  FSDPC_TRY(saveResults(progress));
  if (job.rank == 0)
    endReports(progress, record);
  return {};
}

// Ranks that share a process set its abort function once.
ExitCode runRank(const Manifest &manifest, const fsdpc_program &program,
                 const Options &options, Job &job) {
  if (job.rank == 0 || !job.sharesProcess)
    setAbort(job.abort);
  try {
    Trainer trainer(manifest, program, options, job);
    // All ranks return from here, so none has to be ended by another.
    if (Status prepared = trainer.prepare(); !prepared)
      return printError(prepared.error());
    if (Status trained = trainer.train(); !trained)
      fail(trained.error());
    return trainer.wasInterrupted() ? ExitCode::interrupted : ExitCode::success;
  } catch (const std::exception &fault) { // most likely out of memory
    fail(runError(fault.what()));
  }
}

} // namespace fsdpc::runtime
