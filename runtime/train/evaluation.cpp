// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs @evaluate over the samples of --eval, in rounds of as many microbatches
// as a step has. If the last microbatch is not full, it is padded with samples
// whose targets are ignored. If the loss cannot ignore targets, its samples are
// left out.
#include "runtime/train/evaluation.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/numeric/dtype.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace fsdpc::runtime {
namespace {

// Returns true if rows of a microbatch can be kept from counting.
bool canMask(const Manifest &manifest) {
  return manifest.evaluatesMeans &&
         std::any_of(manifest.inputs.begin(), manifest.inputs.end(),
                     [](const Input &input) { return input.hasIgnored; });
}

} // namespace

// The options are those of training with the evaluation's own files: no shuffle
// and no mixture, so the samples come in their order.
Status Evaluation::open(const Manifest &described, const fsdpc_program &program,
                        const Options &options) {
  if (options.eval.empty())
    return {};
  if (!program.buckets[0].evaluate)
    return commandLineError(
        "--eval: the program holds no '@evaluate'; compile the model "
        "again, not a dump from before it had one");
  manifest = &described;
  Options reading = options;
  reading.data = options.eval;
  reading.shuffle = false;
  reading.skipCorrupt = false; // that would be another evaluation
  reading.mix.clear();         // the weights are of the files of --data
  auto isStream = [](const DataSource &source) { return source.tokens; };
  if (std::none_of(options.eval.begin(), options.eval.end(), isStream))
    reading.splitAt = -1;
  FSDPC_TRY(samples.open(described, reading, /*microbatches=*/0));
  metrics = &options.metrics;
  if (!options.predictions.empty() && !described.buckets.empty())
    return commandLineError(
        "--predict: the program has several buckets (--dim), which "
        "are evaluated one after the other and not in the order of "
        "the files; compile it for one shape");
  if (!options.predictions.empty())
    predictions = std::make_unique<Predictions>(described, options.predictions);
  int64_t steps = options.evalSteps; // that are left
  for (size_t part = 0; part < samples.allParts().size(); ++part)
    FSDPC_TRY(addGroup(part, options, steps));
  return {};
}

// Takes as many microbatches of the bucket as --eval-steps leaves, and takes
// them off `steps`.
Status Evaluation::addGroup(size_t part, const Options &options,
                            int64_t &steps) {
  Group group;
  group.part = part;
  group.bucket = samples.allParts()[part].bucket;
  group.samples = samples.allParts()[part].samples;
  int64_t batch = samples.batch(), rest = group.samples % batch;
  group.microbatches = group.samples / batch;
  bool masks = rest != 0 && canMask(*manifest);
  group.microbatches += masks;
  std::string file = "'" + options.eval.front().file + "'";
  std::string size = concat(group.samples, " samples");
  if (!manifest->buckets.empty())
    size += " of bucket '" + manifest->buckets[group.bucket] + "'";
  if (group.microbatches == 0)
    return inputError(concat("--eval: ", file, " contains ", size,
                             ", but a microbatch takes ", batch));
  group.computed =
      predictions ? (group.samples + batch - 1) / batch : group.microbatches;
  if (options.evalSteps != 0)
    group.computed = std::min(group.computed, steps);
  if (options.evalSteps != 0 && steps <= group.microbatches)
    group.microbatches = steps;
  else if (rest != 0 && !masks)
    leftOut +=
        concat(leftOut.empty() ? "" : "; ",
               concat("the evaluation leaves out the last ", rest), " of the ",
               size, " of ", file, ": they do not fill a microbatch of ", batch,
               ", and the loss ignores no target");
  if (options.evalSteps != 0)
    steps -= group.computed;
  microbatches += group.microbatches;
  groups.push_back(group);
  return {};
}

// Rank r takes microbatches r, r + N, …, those that it will run.
Status Evaluation::check(const Job &job) {
  if (!isOn())
    return {};
  std::vector<int64_t> counted;
  for (const Group &group : groups)
    counted.push_back(group.microbatches);
  FSDPC_TRY(weights.open(*manifest, counted, job.size));
  for (size_t g = 0; g < groups.size(); ++g) {
    const Group &group = groups[g];
    for (int64_t j = job.rank; j < group.computed; j += job.size) {
      FSDPC_TRY(samples.readFrom(group.part, j * samples.batch(),
                                 weights.isOn() ? weights.buffers() : nullptr));
      weights.measure(g, j, group.bucket);
    }
  }
  return {};
}

// Parameters and optimizer states stay as they are.
Status Evaluation::run(fsdpc_rank &rank, EvaluationRecord &record) {
  auto began = std::chrono::steady_clock::now();
  sum = weight = 0;
  rounds = 0;
  metricSums.assign(metrics->size(), 0);
  weights.exchange(rank.job);
  if (predictions)
    FSDPC_TRY(predictions->begin(
        rank.job, samplesOf(groups.front(), groups.front().computed)));
  // The other slot holds the first samples of the next step.
  rank.slot ^= 1;
  // As many microbatches as a step, since the device reports one result per
  // microbatch of a step.
  int64_t perRound = rank.job.size * rank.accumulate;
  for (const Group &group : groups)
    for (int64_t first = 0; first < group.computed; first += perRound) {
      FSDPC_TRY(runRound(rank, group, record.step, first));
      add(rank, group, first);
      ++rounds;
    }
  rank.slot ^= 1;
  rank.device->takeExposedNanoseconds(); // of no step
  record.loss =
      weight > 0 ? sum / weight : std::numeric_limits<double>::quiet_NaN();
  record.samples = samplesOfLoss();
  record.metrics.clear();
  for (size_t m = 0; m < metricSums.size(); ++m)
    record.metrics.push_back(finishMetric(m));
  record.milliseconds = std::chrono::duration<double, std::milli>(
                            std::chrono::steady_clock::now() - began)
                            .count();
  return {};
}

// Returns the samples of the first `count` microbatches of a group.
int64_t Evaluation::samplesOf(const Group &group, int64_t count) const {
  return std::min(count * samples.batch(), group.samples);
}

int64_t Evaluation::samplesOfLoss() const {
  int64_t count = 0;
  for (const Group &group : groups)
    count += samplesOf(group, group.microbatches);
  return count;
}

// The filled up rows of a last microbatch would count in a metric, which knows
// no ignored targets, so only full microbatches do.
double Evaluation::finishMetric(size_t m) const {
  int64_t full = 0;
  for (const Group &group : groups)
    full += std::min(group.microbatches, group.samples / samples.batch());
  if (full == 0)
    return std::numeric_limits<double>::quiet_NaN();
  return (*metrics)[m].sum ? metricSums[m] : metricSums[m] / double(full);
}

// The training waits for it, hence the bound.
std::string Evaluation::describeNonFinite() const {
  constexpr int64_t mostSamples = 4096;
  if (weight == 0 || weights.lacksTargets())
    return "no target of its data counts: all have the ignored value";
  return samples.describeNonFinite(0, std::min(samplesOfLoss(), mostSamples));
}

// Every rank runs all microbatches of a round, because it takes part in their
// collectives. Those past the end do not count.
Status Evaluation::runRound(fsdpc_rank &rank, const Group &group, int64_t step,
                            int64_t first) {
  for (int64_t k = 0; k < rank.accumulate; ++k) {
    rank.microbatch = k;
    FSDPC_TRY(fill(rank, group, k, first + k * rank.job.size + rank.job.rank));
    Section section; // `first`: an update may have changed the parameters
    section.evaluate = true;
    section.slot = rank.slot;
    section.microbatch = k;
    section.step = step;
    section.bucket = group.bucket;
    rank.device->enter(rank, section,
                       rank.program.buckets[group.bucket].evaluate);
    rank.device->synchronize();
    if (predictions)
      predictions->add(rank, first + k * rank.job.size);
  }
  rank.device->report(step);
  rank.device->results(rank, step, results);
  return {};
}

// Microbatch j of the evaluation becomes microbatch k of this rank's round.
// Past the end all rows are masked; what such a microbatch reads does not
// matter.
Status Evaluation::fill(fsdpc_rank &rank, const Group &group, int64_t k,
                        int64_t j) {
  size_t slot = size_t(rank.slot);
  rank.device->awaitSlot(rank.slot);
  FSDPC_TRY(samples.readFrom(group.part, j * samples.batch(),
                             rank.staging[slot].data()));
  int64_t rows = group.samples - j * samples.batch();
  for (int64_t row = std::max<int64_t>(0, rows); row < samples.batch(); ++row)
    mask(rank, group.bucket, row);
  // By the third word a device knows the microbatch that it reports; the fourth
  // is the round, so that models which draw noise in evaluation, too, draw
  // other noise for each microbatch.
  RandomKey &key = *rank.randomStaging[slot];
  key.words = {0, 0, uint32_t(k * rank.job.size + rank.job.rank),
               uint32_t(rounds)};
  weights.write(size_t(&group - groups.data()), j, key.lossFactors);
  rank.device->send(rank.slot);
  return {};
}

// Gives all targets of a sample the ignored value.
void Evaluation::mask(const fsdpc_rank &rank, size_t bucket, int64_t row) {
  for (size_t i = 0; i < manifest->inputs.size(); ++i) {
    const Input &input = manifest->inputs[i];
    if (!input.hasIgnored)
      continue;
    const std::vector<int64_t> &shape = shapeIn(input, bucket);
    int64_t elements = shape[0] / samples.batch(),
            bytes = dtypeBytes(input.dtype);
    for (size_t axis = 1; axis < shape.size(); ++axis)
      elements *= shape[axis];
    char *to = static_cast<char *>(rank.staging[size_t(rank.slot)][i]) +
               row * elements * bytes;
    for (int64_t e = 0; e < elements; ++e)
      convert(&input.ignored, "i64", to + e * bytes, input.dtype, 1);
  }
}

// Adds the losses of a round in the order of j, in f64. A mean of targets is
// weighted by their number, so that the result is the mean over all targets.
// Metrics follow the pairs of loss and weight, a row per microbatch.
void Evaluation::add(fsdpc_rank &rank, const Group &group, int64_t first) {
  size_t width = 2 + metrics->size();
  size_t perRank = width * size_t(rank.accumulate);
  own.resize(perRank);
  all.resize(perRank * size_t(rank.job.size));
  for (size_t k = 0; k < size_t(rank.accumulate); ++k) {
    double *row = &own[width * k];
    row[0] = double(results.losses[k]);
    row[1] = manifest->evaluatesMeans ? double(results.valid[k]) : 1.0;
    for (size_t m = 0; m < metrics->size(); ++m)
      row[2 + m] = double(results.metricOf((*metrics)[m].output, k));
  }
  rank.job.channel[controlChannel]->allGather(own.data(), all.data(),
                                              perRank * sizeof(double));
  int64_t ranks = rank.job.size;
  int64_t count = std::min(ranks * rank.accumulate, group.microbatches - first);
  for (int64_t j = 0; j < count; ++j) {
    const double *row =
        &all[size_t(j % ranks) * perRank + width * size_t(j / ranks)];
    if ((first + j + 1) * samples.batch() <= group.samples)
      for (size_t m = 0; m < metricSums.size(); ++m)
        metricSums[m] += row[2 + m];
    if (row[1] == 0) // the mean of no targets is not a number
      continue;
    sum += row[0] * row[1];
    weight += row[1];
  }
}

} // namespace fsdpc::runtime
