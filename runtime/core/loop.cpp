// The training loop. Per step there is one exchange on the control channel: it
// carries the losses and whether every rank could read its next samples. On a
// device that runs ahead, those are the losses of the previous step.
//
// A device that does not run ahead sees the loss before the update, so a bad
// loss leaves the parameters untouched.
#include "runtime/core/trainer.h"

#include "runtime/core/failure.h"
#include "runtime/core/progress.h"
#include "runtime/core/resources.h"
#include "runtime/core/spelling.h"
#include "runtime/core/stop_request.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unistd.h>

namespace fsdpc::runtime {

constexpr int64_t mebibyte = 1 << 20;

// Enqueues the K microbatches of a step. While the device computes on one input
// slot, the host fills the other.
Status Trainer::runMicrobatches(int64_t step) {
  for (int64_t k = 0; k < options.accumulate; ++k) {
    rank->microbatch = k;
    enter("microbatch", {false, rank->slot, k == 0, k, step},
          program.microbatch);
    recorder->at("reading samples");
    FSDPC_TRY(readNext(step, k));
    recorder->at("waiting for the device");
    if (!rank->device->runsAhead())
      rank->device->synchronize();
    rank->slot ^= 1;
  }
  return {};
}

// Enqueues the update. After the first step it also saves the gradients, if
// asked to.
Status Trainer::runUpdate(int64_t step) {
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

// Exchanges what the ranks must know of each other: this rank's error in
// reading, its memory, a request to stop, and its losses. If `record` is not
// null, its step is complete, and the loss is summed over all microbatches in
// the order of j, so that its bits do not depend on the number of ranks. Every
// number is exact in a double.
void Trainer::exchange(StepRecord *record) {
  // Numbers per rank before its microbatches; the list below names them.
  constexpr size_t header = 9;
  size_t width = 2 + options.metrics.size();
  size_t perRank = header + width * size_t(options.accumulate);
  std::vector<double> &own = exchanged.own, &all = exchanged.all;
  own.assign(perRank, 0);
  all.resize(perRank * size_t(job.size));
  int64_t peak = peakResidentBytes();
  own[0] = !nextRead;
  own[1] = double(peak);
  own[2] = double(peak - info.processPlan);
  own[3] = double(stopRequest());
  own[4] = isCheckpointDue();
  own[5] = writer && writer->isActive() && !writer->isDone();
  own[6] = computeMilliseconds;
  own[7] = double(samples.replaced());
  own[8] = results.zeroed;
  for (size_t k = 0; k < results.losses.size(); ++k) {
    bool valid = results.valid[k] != 0;
    double *row = &own[header + width * k];
    row[0] = valid ? results.losses[k] : 0;
    row[1] = valid;
    for (size_t m = 0; m < options.metrics.size(); ++m)
      row[2 + m] = double(results.metricOf(options.metrics[m].output, k));
  }
  // Per rank: {failed, peak, over plan, request, checkpoint due, writing one,
  // milliseconds of computing in the step before, samples replaced, gradients
  // with zeroed elements}, then a row {loss, valid, metrics} of each of its
  // microbatches.
  recorder->at("the exchange of losses");
  auto begin = std::chrono::steady_clock::now();
  job.channel[controlChannel]->allGather(own.data(), all.data(),
                                         perRank * sizeof(double));
  exchangeMilliseconds = std::chrono::duration<double, std::milli>(
                             std::chrono::steady_clock::now() - begin)
                             .count();
  exchanged.computed.resize(size_t(job.size));
  for (size_t from = 0; from < exchanged.computed.size(); ++from)
    exchanged.computed[from] = all[from * perRank + 6];
  nextFailure = -1;
  due = all[4] != 0; // rank 0's clock decides
  stageDone = writer && writer->isActive();
  for (int from = job.size - 1; from >= 0; --from) {
    if (all[size_t(from) * perRank] != 0)
      nextFailure = from;
    if (all[size_t(from) * perRank + 5] != 0)
      stageDone = false;
    // Every rank computes the same maximum, so all stop after the same step.
    stopping = std::max(stopping, int(all[size_t(from) * perRank + 3]));
  }
  if (!record)
    return;
  findStragglers(record->step - 1);
  record->overPlan = int64_t(own[2]);
  for (int from = 0; from < job.size; ++from) {
    const double *other = &all[size_t(from) * perRank];
    record->peakBytes = std::max(record->peakBytes, int64_t(other[1]));
    record->corrupt += int64_t(other[7]);
    record->overPlan = std::max(record->overPlan, int64_t(other[2]));
    record->zeroed += other[8];
  }
  // Microbatch j ran on rank j mod N, as its number k = j / N.
  double sum = 0;
  record->metrics.assign(options.metrics.size(), 0);
  for (int64_t j = 0; j < microbatches; ++j) {
    const double *row = &all[size_t(j % job.size) * perRank + header +
                             width * size_t(j / job.size)];
    sum += row[0];
    for (size_t m = 0; m < record->metrics.size(); ++m)
      record->metrics[m] +=
          row[2 + m] * (options.metrics[m].sum ? 1 : rank->inverseV);
    if (row[1] == 0 && !warned) {
      warned = true;
      if (job.rank == 0)
        printWarning("microbatch " + std::to_string(j) + " of step " +
                     std::to_string(record->step) +
                     " has no valid target; its loss counts as 0");
    }
  }
  record->loss = sum * rank->inverseV;
  // With a dynamic scale the gradients decide: see `judge`.
  if (!std::isfinite(record->loss) && !scaler.isDynamic() &&
      !toleratesNonFinite())
    stopAtLoss(record->step, record->loss);
}

// Warns on a rank that has been slow for some steps up to this one.
void Trainer::findStragglers(int64_t step) {
  stragglers.add(exchanged.computed);
  if (!stragglers.turnedSlow(job.rank))
    return;
  char host[128] = "", times[96];
  gethostname(host, sizeof host - 1);
  std::snprintf(times, sizeof times, "%.0f ms where the median rank takes %.0f",
                computeMilliseconds, stragglers.median());
  printWarning("rank " + std::to_string(job.rank) + " on host '" + host +
               "' has been slow for " + std::to_string(Stragglers::patience) +
               " steps, and the others wait for it: step " +
               std::to_string(step) + " took it " + times +
               "; look for other load on its host, and for a slow disk");
}

// Returns what this rank knows of a request to stop, or 0. Under --time-limit
// the run ends if another step as long as the longest might not fit. A signal
// counts before the time limit.
int Trainer::stopRequest() const {
  if (int signal = stopSignal())
    return signal;
  if (options.timeLimitSeconds == 0)
    return 0;
  std::chrono::duration<double> elapsed =
      std::chrono::steady_clock::now() - constructed;
  return elapsed.count() + longestStepSeconds >= options.timeLimitSeconds
             ? timeLimitReached
             : 0;
}

// Sets what a step computes with. A skipped step does not count for the
// schedule of the learning rate and for the optimizer.
void Trainer::begin(StepRecord &record) {
  int64_t step = record.step;
  rank->step = step;
  rank->updates = step - scaler.skipped();
  record.lr = rank->lr =
      options.schedule.at(rank->updates, options.steps, options.lr);
  record.scale = double(scaler.scale());
  double mean = manifest.averagedBefore ? 1 : rank->inverseV;
  rank->gradientFactor = mean * manifest.predivided / record.scale;
  // A device that runs ahead may still be reading the slots; it has no scale.
  if (scaler.isOn())
    for (RandomKey *key : rank->randomStaging)
      key->lossScale = scaler.scale();
}

// Takes note of a step that was skipped because of its gradients. Every rank
// comes to the same conclusion, so they may stop together.
void Trainer::judge(StepRecord &record) {
  record.scaled = scaler.isOn();
  bool finite = results.nonFinite < 0;
  bool leavesOut = toleratesNonFinite() && !scaler.isDynamic();
  scaler.update(finite && (!leavesOut || std::isfinite(record.loss)));
  record.counts = scaler.isOn() || toleratesNonFinite();
  record.skipped = scaler.skipped();
  if (!scaler.isDynamic())
    return;
  if (finite && !std::isfinite(record.loss))
    stopAtLoss(record.step, record.loss);
  if (!finite && double(scaler.scale()) < leastLossScale)
    stopAtNonFinite(*rank, record.step,
                    "the loss scale fell below 1e-06, since the gradients of " +
                        std::to_string(record.skipped) +
                        " steps were not finite",
                    manifest.layouts[size_t(results.nonFinite)].unit);
}

// Counts what the ranks have sent since the last call, at each level of groups.
// Only the communicators of the host count, and only it has groups. The streams
// are idle.
void Trainer::countSent(StepRecord &record) {
  if (!groups[gatherChannel])
    return;
  std::array<uint64_t, 3> own = {}, before = sent;
  for (Channel channel : {gatherChannel, reduceChannel}) {
    own[0] += job.channel[channel]->sentBytes();
    if (!groups[channel])
      continue;
    own[1] += groups[channel]->inner().sentBytes();
    own[2] += groups[channel]->sentAcross();
  }
  sentOfRanks.resize(size_t(job.size));
  job.channel[controlChannel]->allGather(own.data(), sentOfRanks.data(),
                                         sizeof own);
  sent = {};
  for (const std::array<uint64_t, 3> &other : sentOfRanks)
    for (size_t level = 0; level < sent.size(); ++level)
      sent[level] += other[level];
  record.counted = true;
  for (size_t level = 0; level < sent.size(); ++level)
    record.sent[level] = double(sent[level] - before[level]) / job.size;
}

// Returns the first unit whose gradient is not finite on any rank, or "". All
// ranks call it together.
std::string Trainer::unitOfNonFinite() const {
  int64_t own = firstNonFinite(*rank);
  std::vector<int64_t> all(size_t(job.size));
  job.channel[controlChannel]->allGather(&own, all.data(), sizeof own);
  size_t first = size_t(*std::min_element(all.begin(), all.end()));
  return first < manifest.layouts.size() ? manifest.layouts[first].unit : "";
}

// Ends the job at a loss that is not finite.
void Trainer::stopAtLoss(int64_t step, double loss) {
  stopAtNonFinite(*rank, step, "the loss is " + std::to_string(loss),
                  unitOfNonFinite());
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

void Trainer::warnOfUnused() const {
  std::string names;
  std::vector<std::string> unused = weights.unused();
  for (size_t i = 0; i < unused.size() && i < 5; ++i)
    names += (i ? ", '" : "'") + printable(unused[i]) + "'";
  if (unused.size() > 5)
    names += " and " + std::to_string(unused.size() - 5) + " more";
  if (!names.empty())
    printWarning("'" + options.init +
                 "' contains tensors that the program does not use: " + names);
}

Status Trainer::saveTo(const std::string &path, Saved what) {
  return path.empty() ? Status() : save(*rank, what, path);
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

// Writes a step to the log and to the event file. The run does not depend on
// them.
void Trainer::publish(const StepRecord &record) {
  auto warn = [&](const Status &written, const char *what) {
    if (!written)
      printWarning(written.error().message + "; the run goes on, and its " +
                   what + " ends before step " + std::to_string(record.step));
  };
  warn(log.step(manifest, options, info, record), "log");
  if (events.isOpen()) // a step allocates nothing without it
    warn(events.add(record.step, scalarsOf(manifest, options, info, record)),
         "event file");
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

// Saves the parameters and their averages, then the checkpoint, then writes the
// trace. All ranks call it together.
Status Trainer::saveResults() {
  countMicrobatches();
  FSDPC_TRY(saveTo(options.save, Saved::parameters));
  // The first update sets the averages; until then they are the parameters.
  bool updated = state.step > state.scaler.skips;
  FSDPC_TRY(
      saveTo(options.saveEma, updated ? Saved::averages : Saved::parameters));
  FSDPC_TRY(writeLastCheckpoint());
  awaitHook();
  if (Status traced = trace.write(*rank); !traced)
    printWarning(traced.error().message + "; the run has no trace");
  job.channel[controlChannel]->barrier();
  return {};
}

// On a device that runs ahead, step s is enqueued before the results of step s
// - 1 are read, so the device never waits for the host. `record` is the step
// whose results are read, `next` the one that is enqueued.
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
  Device &device = *rank->device;
  StepRecord record, next;
  countSent(record);    // before the first step, not of it
  bool pending = false; // the results of the enqueued step are still to be read
  finished = checkpointedAt = std::chrono::steady_clock::now();
  auto complete = [&]() -> Status {
    FSDPC_TRY(finish(record));
    if (job.rank == 0)
      progress.step(record, checkpointedAt);
    if (stageDone)
      advanceCheckpoint();
    return {};
  };
  auto drain = [&]() -> Status {
    if (!pending)
      return {};
    device.results(*rank, record.step, results);
    exchange(&record);
    pending = false;
    return complete();
  };
  // Only from here on: a signal during preparation ends the process at once,
  // since there is nothing to save yet.
  catchStopSignals();
  for (int64_t step = started.step;
       step < options.steps && !stopping && !exhausted; ++step) {
    next = StepRecord();
    next.step = step;
    watch->beginStep();
    begin(next);
    keepBuffers();
    FSDPC_TRY(runMicrobatches(step));
    if (!device.runsAhead()) {
      // The loss is checked before the update, so a bad one leaves the
      // parameters as they were. (With a dynamic scale the update is skipped.)
      device.results(*rank, step, results);
      exchange(&next);
      if (std::isfinite(next.loss) || scaler.isDynamic()) {
        FSDPC_TRY(runUpdate(step));
        device.results(*rank, step, results);
      } else {
        results.norm = std::numeric_limits<double>::quiet_NaN();
      }
      judge(next);
      countSent(next);
      record = next;
      FSDPC_TRY(complete());
      FSDPC_TRY(leaveOut(record));
      if (wentBack) {
        step = state.step - 1; // the loop adds 1
        continue;
      }
      FSDPC_TRY(evaluateDue(progress));
      FSDPC_TRY(writeDueCheckpoint());
      continue;
    }
    FSDPC_TRY(runUpdate(step));
    if (pending)
      device.results(*rank, record.step, results);
    // Exchanged without results as well, because all ranks must learn whether
    // the samples of the next step could be read.
    exchange(pending ? &record : nullptr);
    FSDPC_TRY(pending ? complete() : checkNext());
    record = next;
    pending = true;
    // Only what has a finite loss becomes a checkpoint.
    if (due || isCheckpointStep(step + 1) || isEvaluationStep(step + 1)) {
      FSDPC_TRY(drain());
      FSDPC_TRY(evaluateDue(progress));
      FSDPC_TRY(writeDueCheckpoint());
    }
  }
  FSDPC_TRY(drain());
  if (state.step >= options.steps)
    stopping = 0; // there was nothing to stop
  FSDPC_TRY(evaluateLast(progress));
  FSDPC_TRY(saveResults());
  if (job.rank == 0)
    endReports(progress, record);
  return {};
}

// Says what the run begins with, once everything is prepared.
Status Trainer::beginReports(Progress &progress) {
  progress.start();
  warnOfUnused();
  reportResumed();
  if (!evaluation.note().empty())
    printWarning(evaluation.note());
  FSDPC_TRY(log.header(manifest, options, info));
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
    printWarning("peak memory is " + bytesText(record.overPlan) +
                 " above the planned " + bytesText(info.processPlan));
}

// Ranks that share a process set its abort function once.
int runRank(const Manifest &manifest, const fsdpc_program &program,
            const Options &options, Job &job) {
  if (job.rank == 0 || !job.sharesProcess)
    setAbort(job.abort);
  try {
    Trainer trainer(manifest, program, options, job);
    if (!trainer.prepare())
      return 3;
    if (Status trained = trainer.train(); !trained)
      fail(trained.error().message);
    return trainer.wasInterrupted() ? exitInterrupted : 0;
  } catch (const std::exception &fault) { // most likely out of memory
    fail(fault.what());
  }
}

} // namespace fsdpc::runtime
