// What the ranks tell each other in each step, and what they conclude from it
// together: the loss, whether to stop, which rank is slow, how much was sent,
// and how large the update was. All of it goes over the control channel, so
// every rank comes to the same conclusions.
#include "runtime/core/trainer.h"

#include "runtime/core/failure.h"
#include "runtime/core/resources.h"
#include "runtime/core/stop_request.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unistd.h>

namespace fsdpc::runtime {

// Exchanges what the ranks must know of each other: this rank's error in
// reading, its memory, a request to stop, and its losses. If `record` is not
// null, its step is complete, and the loss is summed over all microbatches in
// the order of j, so that its bits do not depend on the number of ranks. Every
// number is exact in a double.
void Trainer::exchange(StepRecord *record) {
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

} // namespace fsdpc::runtime
