// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Exchanges the numbers of each step between the ranks. From them every rank
// derives the loss, whether to stop, which rank is slow, how much was sent, and
// how large the update was. The exchange uses the control channel, and all
// ranks reach the same results.
#include "runtime/train/trainer.h"

#include "runtime/abi/owners.h"
#include "runtime/core/failure.h"
#include "runtime/core/resources.h"
#include "runtime/support/concat.h"
#include "runtime/train/stop_request.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unistd.h>

namespace fsdpc::runtime {

// The places of the numbers that each rank reports. They are doubles, which
// hold every one of these numbers exactly. A row {loss, valid, metrics,
// weights} of each of its microbatches follows; the weights are of the next
// step.
namespace report {
enum : size_t {
  failedRead,
  residentBytes,
  overPlan,
  request,
  checkpointDue,
  writesCheckpoint,
  computeMilliseconds, // of the step before, as the next one
  processorMilliseconds,
  replacedSamples,
  zeroedGradients,
  header, // the number of fields
};
} // namespace report

// Exchanges what the ranks must know of each other: this rank's error in
// reading, its memory, a request to stop, and its losses. If `record` is not
// null, its step is complete, and the loss is summed over all microbatches.
void Trainer::exchange(StepRecord *record) {
  exchanged.width = 2 + options.metrics.size() + lossWeights.count();
  exchanged.perRank =
      report::header + exchanged.width * size_t(options.accumulate);
  exchanged.own.assign(exchanged.perRank, 0);
  exchanged.all.resize(exchanged.perRank * size_t(job.size));
  packReport();
  recorder->at("the exchange of losses");
  auto begin = std::chrono::steady_clock::now();
  job.channel[controlChannel]->allGather(exchanged.own.data(),
                                         exchanged.all.data(),
                                         exchanged.perRank * sizeof(double));
  exchangeMilliseconds = std::chrono::duration<double, std::milli>(
                             std::chrono::steady_clock::now() - begin)
                             .count();
  applyReports();
  combineWeights();
  if (!record)
    return;
  findStragglers(record->step - 1);
  mergeReports(*record);
  sumMicrobatches(*record);
  // With a dynamic scale the gradients decide: see `judge`.
  if (!std::isfinite(record->loss) && !scaler.isDynamic() &&
      !toleratesNonFinite())
    stopAtLoss(record->step, record->loss);
}

// Writes this rank's report to `exchanged.own`.
void Trainer::packReport() {
  double *own = exchanged.own.data();
  int64_t resident = peakResidentBytes();
  own[report::failedRead] = !nextRead;
  own[report::residentBytes] = double(resident);
  own[report::overPlan] = double(resident - info.processPlan);
  own[report::request] = double(stopRequest());
  own[report::checkpointDue] = isCheckpointDue();
  own[report::writesCheckpoint] =
      writer && writer->isActive() && !writer->isDone();
  own[report::computeMilliseconds] = computeMilliseconds;
  own[report::processorMilliseconds] = processorMilliseconds;
  own[report::replacedSamples] = double(samples.replaced());
  own[report::zeroedGradients] = results.zeroed;
  for (size_t k = 0; k < results.losses.size(); ++k) {
    bool valid = results.valid[k] != 0;
    double *row = own + report::header + exchanged.width * k;
    row[0] = valid ? results.losses[k] : 0;
    row[1] = valid;
    for (size_t m = 0; m < options.metrics.size(); ++m)
      row[2 + m] = double(results.metricOf(options.metrics[m].output, k));
  }
  for (int64_t k = 0; k < options.accumulate; ++k)
    for (size_t i = 0; i < lossWeights.count(); ++i)
      own[placeOfWeight(k, i)] = lossWeights.of(k, i);
}

// Returns where a rank reports weight i of its microbatch k.
size_t Trainer::placeOfWeight(int64_t k, size_t i) const {
  return report::header + exchanged.width * size_t(k) + 2 +
         options.metrics.size() + i;
}

// Computes the factors of the next step's microbatches from all reports.
void Trainer::combineWeights() {
  lossWeights.combine(
      microbatches, job.size, job.rank, [&](int64_t j, size_t i) {
        return exchanged.of(int(j % job.size))[placeOfWeight(j / job.size, i)];
      });
}

// Exchanges the weights of a step that no other step precedes. All ranks call
// it together.
void Trainer::exchangeWeights() {
  if (lossWeights.isOn())
    exchange(nullptr);
}

// Decides from all reports, the same on every rank, what happens after this
// step.
void Trainer::applyReports() {
  nextFailure = -1;
  due = exchanged.of(0)[report::checkpointDue] != 0; // rank 0's clock decides
  stageDone = writer && writer->isActive();
  exchanged.computed.elapsed.resize(size_t(job.size));
  exchanged.computed.processor.resize(size_t(job.size));
  for (int from = job.size - 1; from >= 0; --from) {
    const double *other = exchanged.of(from);
    exchanged.computed.elapsed[size_t(from)] =
        other[report::computeMilliseconds];
    exchanged.computed.processor[size_t(from)] =
        other[report::processorMilliseconds];
    if (other[report::failedRead] != 0)
      nextFailure = from;
    if (other[report::writesCheckpoint] != 0)
      stageDone = false;
    stopping = std::max(stopping, int(other[report::request]));
  }
}

void Trainer::mergeReports(StepRecord &record) {
  record.overPlan = int64_t(exchanged.own[report::overPlan]);
  for (int from = 0; from < job.size; ++from) {
    const double *other = exchanged.of(from);
    record.residentBytes =
        std::max(record.residentBytes, int64_t(other[report::residentBytes]));
    record.corrupt += int64_t(other[report::replacedSamples]);
    record.overPlan =
        std::max(record.overPlan, int64_t(other[report::overPlan]));
    record.zeroed += other[report::zeroedGradients];
  }
}

// Sums losses and metrics in the order of microbatches, so their bits do not
// depend on the number of ranks. Microbatch j ran on rank j mod N, as its
// number k = j / N.
void Trainer::sumMicrobatches(StepRecord &record) {
  double sum = 0;
  record.metrics.assign(options.metrics.size(), 0);
  for (int64_t j = 0; j < microbatches; ++j) {
    const double *row = exchanged.of(int(j % job.size)) + report::header +
                        exchanged.width * size_t(j / job.size);
    sum += row[0];
    for (size_t m = 0; m < record.metrics.size(); ++m)
      record.metrics[m] +=
          row[2 + m] * (options.metrics[m].sum ? 1 : rank->inverseV);
    if (row[1] == 0 && !warned) {
      warned = true;
      if (job.rank == 0)
        printWarning(concat("microbatch ", j, " of step ", record.step,
                            " has no valid target; its loss counts as 0"));
    }
  }
  record.loss = sum * rank->inverseV;
}

// Warns on a rank that has been slow for some steps up to this one.
void Trainer::findStragglers(int64_t step) {
  stragglers.add(exchanged.computed);
  if (!stragglers.turnedSlow(job.rank))
    return;
  Stragglers::Verdict verdict = stragglers.verdictOn(job.rank);
  char host[128] = "", times[96];
  gethostname(host, sizeof host - 1);
  std::snprintf(times, sizeof times, "%.0f ms%s per step, median %.0f",
                verdict.own, verdict.isProcessorTime ? " of processor" : "",
                verdict.median);
  printWarning(concat("rank ", job.rank, " on host '", host,
                      "' has been slow: ", times, " (", Stragglers::window,
                      " steps up to ", step, ")"));
}

// Adds up what the update of this step has changed on all ranks, if it was
// measured. An update that was skipped has changed nothing.
void Trainer::sumUpdateRatios(StepRecord &record) {
  record.measured = isHistogramStep(record.step) && results.nonFinite < 0;
  if (record.measured)
    updateRatios->sumOver(*job.channel[controlChannel]);
}

// Returns what this rank knows of a request to stop, or 0. Under --time-limit
// the run ends if another step as long as the longest might not fit.
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

// Adds up what the job's communicators have sent so far.
SentBytes Trainer::sentByChannels() const {
  SentBytes own = {};
  for (Channel channel : {gatherChannel, reduceChannel}) {
    own[0] += job.channel[channel]->sentBytes();
    own[4] += job.channel[channel]->sentToNodes();
    if (!groups[channel])
      continue;
    for (size_t level : {1, 2}) {
      const Communicator &ranks =
          level == 1 ? groups[channel]->inner() : groups[channel]->across();
      own[level] += ranks.sentBytes();
      own[4] += ranks.sentToNodes();
    }
  }
  own[3] = job.channel[controlChannel]->sentBytes();
  return own;
}

// Counts what the ranks have sent in a step, while the streams are idle: what
// the job's communicators have sent since the last call, and on GPUs what the
// device counts of its own. GPUs whose ranks share one send nothing.
void Trainer::countSent(StepRecord &record) {
  const SentBytes *counted = rank->device->sentBytes(record.step);
  if (job.size == 1 || !(counted || rank->device->isHostMemory()))
    return;
  SentBytes total = sentByChannels(), own = counted ? *counted : SentBytes{};
  for (size_t level = 0; level < own.size(); ++level)
    own[level] += total[level] - sent[level];
  sent = total;
  sentOfRanks.resize(size_t(job.size));
  job.channel[controlChannel]->allGather(&own, sentOfRanks.data(), sizeof own);
  record.counted = true;
  record.countedNodes =
      rank->device->isHostMemory() && job.ranksOnNode < job.size;
  record.sent = {};
  for (const SentBytes &other : sentOfRanks)
    for (size_t level = 0; level < own.size(); ++level)
      record.sent[level] += double(other[level]) / job.size;
}

} // namespace fsdpc::runtime
