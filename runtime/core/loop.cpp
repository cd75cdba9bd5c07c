// The training loop. Everything that can be wrong with the input is found
// before the first step, on every rank, and the ranks agree before any of them
// waits for another. In the loop, one exchange a step carries the losses and
// whether every rank could read its next samples. Where the device runs ahead,
// those are the losses of the step before.
#include "runtime/core/loop.h"
#include "runtime/core/checkpoint.h"
#include "runtime/core/failure.h"
#include "runtime/core/log.h"
#include "runtime/core/progress.h"
#include "runtime/core/resources.h"
#include "runtime/core/samples.h"
#include "runtime/core/startup.h"
#include "runtime/core/trace.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace fsdpc {
namespace {

constexpr int64_t mebibyte = 1 << 20;

class Trainer {
public:
  Trainer(const Manifest &manifest, const fsdpc_program &program,
          const Options &options, Job &job)
      : manifest(manifest), program(program), options(options), job(job),
        microbatches(job.size * options.accumulate) {}

  bool prepare();
  void train();

private:
  std::string check();
  std::string readStep(int64_t step);
  int64_t numberOf(int64_t step, int64_t k) const;
  std::string fill(size_t slot, int64_t step, int64_t k);
  void readNext(int64_t step, int64_t k);
  void enter(const char *name, const Section &section,
             void (*entry)(fsdpc_rank *));
  void runMicrobatches(int64_t step);
  void runUpdate(int64_t step);
  void exchange(StepRecord *record);
  void finish(StepRecord &record);
  [[noreturn]] void stopAtLoss(int64_t step, double loss);
  void countMicrobatches();
  void warnOfUnused() const;
  void report(const StepRecord &record);
  void saveTo(const std::string &path, Saved what);

  const Manifest &manifest;
  const fsdpc_program &program;
  const Options &options;
  Job &job;
  const int64_t microbatches; // V
  RunInfo info;
  Samples samples;
  Weights weights;
  std::unique_ptr<fsdpc_rank> rank;
  Log log;
  Trace trace;
  StepResults results; // of the step that is finished
  std::chrono::steady_clock::time_point finished; // when the last one was
  std::string nextError; // of reading the next step's samples, on this rank
  int nextFailure = -1;  // the lowest rank that has such an error
  bool warned = false;   // of a microbatch without a valid target
};

std::string Trainer::check() {
  std::string error = checkMachine(manifest, job.size);
  if (!error.empty() || !samples.open(manifest, options, microbatches, error) ||
      !weights.open(manifest, program, options, error))
    return error;
  if (job.rank == 0)
    for (const std::string &path : {options.save, options.saveGradients})
      if (!path.empty() && !checkWritable(path, error))
        return error;
  if (job.rank == 0 && !options.log.empty() && !log.open(options.log, error))
    return error;
  if (!checkBackend(manifest, error))
    return error;
  if (!options.trace.empty() &&
      !trace.open(options.trace, job.rank, job.size, error))
    return error;
  info.plan =
      planMemory(manifest, job.size, info.threads,
                 communicationBytes(job.size, job.ranksOnNode, job.transport),
                 scratchpadBytes(manifest, job.size, info.threads));
  info.processPlan = info.plan.total() * (job.sharesProcess ? job.size : 1);
  return checkMemory(info.plan, manifest.memoryLimit);
}

bool Trainer::prepare() {
  if (!agree(job, comparePrograms(manifest, job)))
    return false;
  Cores cores = findCores(job);
  info.program = options.program;
  info.launcher = job.size == 1 && job.sharesProcess ? "none" : job.launcher;
  info.binding = cores.list;
  info.ranks = job.size;
  info.ranksOnNode = job.ranksOnNode;
  info.cores = cores.share();
  info.threads = options.threads ? options.threads : info.cores;
  if (!agree(job, check()))
    return false;
  info.batch = samples.batch();
  info.samples = samples.count();

  std::string error;
  DeviceOptions wanted = options.device;
  wanted.threads = info.threads;
  wanted.accumulate = options.accumulate;
  auto device = makeDevice(manifest, program, job, wanted, error);
  if (device && !options.trace.empty() && !device->canKeepTimes()) {
    error = std::string("--trace: the '") + backendName() +
            "' target keeps no times; use a profiler that shows NVTX ranges";
  } else if (device) {
    rank =
        std::make_unique<fsdpc_rank>(manifest, program, job, std::move(device));
    rank->inverseV = 1.0 / double(microbatches);
    rank->accumulate = options.accumulate;
    trace.start(*rank, options.accumulate);
    if (rank->allocate(info.plan, error) &&
        weights.verify(job.rank, job.size, error) &&
        loadShards(*rank, weights, error))
      error = readStep(0);
  }
  if (!agree(job, error))
    return false;
  weights.release();
  rank->device->gatherWholes(*rank);
  info.notes = rank->device->notes();
  return true;
}

int64_t Trainer::numberOf(int64_t step, int64_t k) const {
  int64_t j = k * job.size + job.rank;
  return (step * microbatches + j) * samples.batch();
}

// Fills a slot with a microbatch, from where its work takes the samples and the
// key of its random numbers.
std::string Trainer::fill(size_t slot, int64_t step, int64_t k) {
  std::string error;
  rank->device->awaitSlot(int(slot));
  if (!samples.read(numberOf(step, k), rank->staging[slot].data(), error))
    return error;
  *rank->randomStaging[slot] = {
      uint32_t(options.seed), uint32_t(options.seed >> 32),
      uint32_t(k * job.size + job.rank), uint32_t(step)};
  rank->device->send(int(slot));
  return "";
}

// Reads the step's first microbatch into the slot that is free, and checks the
// others, so that a bad one is known before any rank computes on it.
std::string Trainer::readStep(int64_t step) {
  std::string error = fill(step == 0 ? 0 : size_t(rank->slot ^ 1), step, 0);
  if (!error.empty())
    return error;
  for (int64_t k = 1; k < options.accumulate; ++k)
    if (!samples.read(numberOf(step, k), nullptr, error))
      return error;
  return "";
}

// Fills the free slot while the device computes on the other one.
void Trainer::readNext(int64_t step, int64_t k) {
  if (k + 1 < options.accumulate) {
    std::string error = fill(size_t(rank->slot ^ 1), step, k + 1);
    if (!error.empty())
      fail(error);
  } else if (step + 1 < options.steps) {
    nextError = readStep(step + 1);
  }
}

void Trainer::runMicrobatches(int64_t step) {
  for (int64_t k = 0; k < options.accumulate; ++k) {
    rank->microbatch = k;
    enter("microbatch", {false, rank->slot, k == 0, k, step},
          program.microbatch);
    readNext(step, k);
    if (!rank->device->runsAhead())
      rank->device->synchronize();
    rank->slot ^= 1;
  }
}

void Trainer::runUpdate(int64_t step) {
  enter("update", {true, 0, false, 0, step}, program.update);
  if (!rank->device->runsAhead())
    rank->device->synchronize();
  trace.leave();
  if (step > 0 || options.saveGradients.empty())
    return;
  // The update leaves the gradients as they were.
  rank->device->synchronize();
  saveTo(options.saveGradients, Saved::gradients);
}

void Trainer::enter(const char *name, const Section &section,
                    void (*entry)(fsdpc_rank *)) {
  trace.enter(*rank, name);
  rank->device->enter(*rank, section, entry);
}

// Losses of all microbatches in order j, where a step is finished, and what
// else the ranks must know of each other; everything fits a double exactly.
void Trainer::exchange(StepRecord *record) {
  size_t perRank = 3 + 2 * size_t(options.accumulate);
  std::vector<double> own(perRank), all(perRank * size_t(job.size));
  int64_t peak = peakResidentBytes();
  own[0] = !nextError.empty();
  own[1] = double(peak);
  own[2] = double(peak - info.processPlan);
  for (size_t k = 0; k < results.losses.size(); ++k) {
    bool valid = results.valid[k] != 0;
    own[3 + 2 * k] = valid ? results.losses[k] : 0;
    own[4 + 2 * k] = valid;
  }
  job.channel[controlChannel]->allGather(own.data(), all.data(),
                                         perRank * sizeof(double));
  nextFailure = -1;
  for (int from = job.size - 1; from >= 0; --from)
    if (all[size_t(from) * perRank] != 0)
      nextFailure = from;
  if (!record)
    return;
  record->overPlan = int64_t(own[2]);
  for (int from = 0; from < job.size; ++from) {
    const double *other = &all[size_t(from) * perRank];
    record->peakBytes = std::max(record->peakBytes, int64_t(other[1]));
    record->overPlan = std::max(record->overPlan, int64_t(other[2]));
  }
  double sum = 0;
  for (int64_t j = 0; j < microbatches; ++j) {
    const double *other = &all[size_t(j % job.size) * perRank];
    size_t k = size_t(j / job.size);
    sum += other[3 + 2 * k];
    if (other[4 + 2 * k] == 0 && !warned) {
      warned = true;
      if (job.rank == 0)
        printWarning("microbatch " + std::to_string(j) + " of step " +
                     std::to_string(record->step) +
                     " has no valid target; its loss counts 0");
    }
  }
  record->loss = sum * rank->inverseV;
  if (!std::isfinite(record->loss))
    stopAtLoss(record->step, record->loss);
}

void Trainer::stopAtLoss(int64_t step, double loss) {
  int64_t own = firstNonFinite(*rank);
  std::vector<int64_t> all(size_t(job.size));
  job.channel[controlChannel]->allGather(&own, all.data(), sizeof own);
  size_t first = size_t(*std::min_element(all.begin(), all.end()));
  std::string unit = first < manifest.layouts.size()
                         ? "; first unit whose gradient is not finite: '" +
                               manifest.layouts[first].unit + "'"
                         : "; every gradient is finite";
  failJob(job, "step " + std::to_string(step) + ": the loss is " +
                   std::to_string(loss) + unit +
                   "; lower --lr or warm up longer");
}

// Buffers such as BatchNorm's num_batches_tracked, which nothing reads while
// training goes on.
void Trainer::countMicrobatches() {
  for (size_t i = 0; i < manifest.buffers.size(); ++i) {
    const Buffer &buffer = manifest.buffers[i];
    int64_t more = buffer.addEachMicrobatch * microbatches * options.steps;
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
    names += (i ? ", '" : "'") + unused[i] + "'";
  if (unused.size() > 5)
    names += " and " + std::to_string(unused.size() - 5) + " more";
  if (!names.empty())
    printWarning("'" + options.init +
                 "' holds tensors that the program does not: " + names);
}

void Trainer::report(const StepRecord &record) {
  std::string error;
  if (job.rank == 0 && !log.step(manifest, options, info, record, error))
    fail(error);
}

void Trainer::saveTo(const std::string &path, Saved what) {
  std::string error;
  if (!path.empty() && !save(*rank, what, path, error))
    fail(error);
}

// What is left of a step whose results are there.
void Trainer::finish(StepRecord &record) {
  auto now = std::chrono::steady_clock::now();
  record.gradNorm = results.norm;
  record.exposedMilliseconds =
      double(rank->device->takeExposedNanoseconds()) / 1e6;
  record.milliseconds =
      std::chrono::duration<double, std::milli>(now - finished).count();
  finished = now;
  report(record);
  if (nextFailure == job.rank)
    fail(nextError);
  if (nextFailure >= 0)
    awaitAbort(job);
}

void Trainer::train() {
  std::string error;
  Progress progress(options, info);
  if (job.rank == 0) {
    progress.start(manifest);
    warnOfUnused();
    if (!log.header(manifest, options, info, error))
      fail(error);
  }
  Device &device = *rank->device;
  StepRecord record, next;
  finished = std::chrono::steady_clock::now();
  auto complete = [&] {
    finish(record);
    if (job.rank == 0)
      progress.step(record);
  };
  for (int64_t step = 0; step < options.steps; ++step) {
    next = StepRecord();
    next.step = rank->step = step;
    next.lr = rank->lr = options.schedule.at(step, options.steps, options.lr);
    runMicrobatches(step);
    if (!device.runsAhead()) {
      // Seen before the update: a bad loss leaves the parameters as they were.
      device.results(*rank, step, results);
      exchange(&next);
      runUpdate(step);
      device.results(*rank, step, results);
      record = next;
      complete();
      continue;
    }
    runUpdate(step);
    if (step > 0)
      device.results(*rank, step - 1, results);
    exchange(step > 0 ? &record : nullptr);
    if (step > 0)
      complete();
    record = next;
  }
  if (device.runsAhead() && options.steps > 0) {
    device.results(*rank, options.steps - 1, results);
    exchange(&record);
    complete();
  }
  if (!trace.write(*rank, error))
    fail(error);
  countMicrobatches();
  saveTo(options.save, Saved::parameters);
  job.channel[controlChannel]->barrier();
  if (job.rank != 0)
    return;
  progress.finish(record);
  if (record.overPlan > 64 * mebibyte)
    printWarning("the peak is " + bytesText(record.overPlan) +
                 " above the plan of " + bytesText(info.processPlan));
}

} // namespace

int runRank(const Manifest &manifest, const fsdpc_program &program,
            const Options &options, Job &job) {
  if (job.rank == 0 || !job.sharesProcess)
    setAbort(job.abort);
  try {
    Trainer trainer(manifest, program, options, job);
    if (!trainer.prepare())
      return 3;
    trainer.train();
    return 0;
  } catch (const std::exception &fault) { // most likely out of memory
    fail(fault.what());
  }
}

} // namespace fsdpc
