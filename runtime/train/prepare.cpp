// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Everything before the first step. Each rank checks its inputs completely. The
// ranks agree on the result before any of them enters a collective, because a
// rank that failed alone would leave the others waiting.
#include "runtime/train/trainer.h"

#include "runtime/checkpoint/base_hash.h"
#include "runtime/cli/output_paths.h"
#include "runtime/core/failure.h"
#include "runtime/core/resources.h"
#include "runtime/support/concat.h"
#include "runtime/support/new_file.h"
#include "runtime/support/reserved_file.h"
#include "runtime/support/spelling.h"
#include "runtime/train/startup.h"

#include <algorithm>

namespace fsdpc::runtime {

// Checks that no file of the run is overwritten by another. --save and
// --save-ema may name the file of --init: its values are read before, and it is
// replaced as a whole.
Status Trainer::checkPaths() const {
  std::vector<RunFile> outputs, inputs,
      others = {{"the program", "/proc/self/exe"}};
  auto add = [](std::vector<RunFile> &files, const char *use,
                const std::string &path) {
    if (!path.empty())
      files.push_back({use, path});
  };
  add(outputs, "--save", options.save);
  add(outputs, "--save-ema", options.saveEma);
  add(outputs, "--save-gradients", options.saveGradients);
  add(outputs, "--log", options.log);
  for (const Prediction &prediction : options.predictions)
    add(outputs, "--predict", prediction.file);
  if (!options.trace.empty())
    add(outputs, "--trace", Trace::pathOf(options.trace, job.rank, job.size));
  for (size_t i = 0; i < options.data.size(); ++i)
    for (const std::string &path : samples.paths(i))
      others.push_back(
          {"the data of input '" + options.data[i].input + "'", path});
  for (size_t i = 0; i < options.eval.size(); ++i)
    for (const std::string &path : evaluation.data().paths(i))
      others.push_back(
          {"the evaluation data of input '" + options.eval[i].input + "'",
           path});
  for (const std::string &path : weights.paths())
    others.push_back({"the model's weights", path});
  FSDPC_TRY(checkDistinct(outputs, others));
  add(inputs, "--init", options.init);
  for (const std::string &path : weights.initPaths())
    if (path != options.init)
      add(inputs, "--init", path);
  auto replaces = [](const RunFile &file) {
    return file.use == "--save" || file.use == "--save-ema";
  };
  outputs.erase(std::remove_if(outputs.begin(), outputs.end(), replaces),
                outputs.end());
  return checkDistinct(outputs, inputs);
}

// Buckets take turns by steps. Steps of another size would begin within steps
// of the run before, or give its buckets other turns, and so read some samples
// again and others never.
Status Trainer::checkStepSize() const {
  if (manifest.buckets.empty() || options.steps == 0 || !resumed)
    return {};
  int64_t size = microbatches * samples.batch();
  const std::string *before = resumed->manifest().settingOf(samplesPerStep);
  // The first checkpoints had only the sample.
  if (before ? *before == std::to_string(size) : started.sample % size == 0)
    return {};
  std::string had = before ? printable(*before) + " samples per step"
                           : concat(started.sample, " samples");
  return inputError(
      concat("the run that is resumed has had ", had, ", and this one ",
             microbatches, " microbatches of ", samples.batch(),
             "; a program of several buckets goes on with as many samples "
             "per step as before"));
}

// Checks everything that needs no device, cheapest first. Opens the files that
// only rank 0 writes on rank 0.
Status Trainer::check() {
  FSDPC_TRY(checkMachine(manifest, job.size));
  FSDPC_TRY(checkAccumulate(manifest, options.accumulate));
  FSDPC_TRY(checkNames(manifest, options.saveRename, options.saveTrained));
  FSDPC_TRY(
      samples.open(manifest, options, options.steps > 0 ? microbatches : 0));
  FSDPC_TRY(
      lossWeights.open(manifest, options.accumulate, options.skipCorrupt));
  FSDPC_TRY(checkStepSize());
  FSDPC_TRY(openEvaluation());
  if (takesWeights())
    FSDPC_TRY(weights.open(manifest, program, options));
  FSDPC_TRY(checkPaths());
  if (job.rank == 0) {
    for (const std::string &path :
         {options.save, options.saveEma, options.saveGradients})
      if (!path.empty())
        FSDPC_TRY(checkWritable(path));
    for (const Prediction &prediction : options.predictions)
      FSDPC_TRY(checkWritable(prediction.file));
    if (!options.log.empty())
      FSDPC_TRY(log.open(options.log));
    if (!options.tensorboard.empty())
      FSDPC_TRY(events.prepare(options.tensorboard));
  }
  // Ranks of one process have the same options and files. A checkpoint holds
  // the facts too.
  if (!job.sharesProcess || !options.checkpoint.empty()) {
    auto found = factsOf(manifest, options, samples, weights, info.groupRanks);
    FSDPC_TRY(found);
    facts = std::move(*found);
    FSDPC_TRY(findEvaluationFacts());
  }
  FSDPC_TRY(checkBackend(manifest));
  if (!options.trace.empty())
    FSDPC_TRY(trace.open(options.trace, job.rank, job.size));
  auto planOf = [&](int rank) {
    return planMemory(manifest, job.size, info.groupRanks, info.threads,
                      channelBytes(manifest, job.size, info.groupRanks,
                                   job.ranksOnNode, job.transport),
                      scratchpadBytes(manifest, job.size, info.threads), rank);
  };
  info.plan = planOf(job.rank);
  FSDPC_TRY(checkMemory(info.plan, manifest.memoryLimit));
  planCheckpoints();
  // Ranks of one process may differ in what they own.
  info.processPlan = info.plan.total();
  if (job.sharesProcess)
    info.processPlan =
        job.size * (planOf(fullestRank).total() + info.plan.checkpoint);
  return {};
}

// Makes the device and the rank's memory, loads the initial values, and reads
// the first samples.
Status Trainer::load() {
  DeviceOptions wanted = options.device;
  wanted.threads = info.threads;
  wanted.accumulate = options.accumulate;
  // The gradients of a dynamic scale overflow as a matter of course, so such a
  // step is not one to report.
  wanted.leavesOut = toleratesNonFinite() && !scaler.isDynamic();
  auto device = makeDevice(manifest, program, job, wanted);
  FSDPC_TRY(device);
  if (!options.trace.empty() && !(*device)->canKeepTimes())
    return commandLineError(
        std::string("--trace: the '") + backendName() +
        "' target does not record times; use a profiler that shows "
        "NVTX ranges");
  rank =
      std::make_unique<fsdpc_rank>(manifest, program, job, std::move(*device));
  rank->groupRanks = info.groupRanks;
  rank->sideBySide = sideBySide ? sideBySide->begin() : nullptr;
  rank->seed = options.seed;
  for (size_t channel = 0; channel < groups.size(); ++channel)
    rank->groups[channel] = groups[channel].get();
  rank->inverseV = 1.0 / double(microbatches);
  rank->accumulate = options.accumulate;
  rank->leavesOut = wanted.leavesOut;
  rank->skipsNonFinite = scaler.isDynamic() || toleratesNonFinite();
  rank->describeNonFinite = [this](int64_t step) {
    int64_t perStep = microbatches * samples.batch();
    return samples.describeNonFinite(numberOf(step, 0, 0), perStep, step);
  };
  rank->finishCheckpoint = [this] { finishCheckpoint(); };
  if (options.histogramEvery > 0)
    updateRatios = std::make_unique<UpdateRatios>(manifest);
  trace.start(*rank, options.accumulate);
  FSDPC_TRY(rank->allocate(info.plan));
  FSDPC_TRY(openFiles());
  if (takesWeights())
    FSDPC_TRY(weights.verify(job.rank, job.size));
  if (resumed) {
    FSDPC_TRY(loadFrom(*resumed, /*keepsBase=*/false));
  } else {
    ValueSource source;
    source.parameter = [this](const Member &member, int64_t begin,
                              int64_t count, float *to) {
      return weights.readParameter(member, begin, count, to);
    };
    source.bytes = [this](const Member &member, int64_t begin, int64_t count,
                          char *to) {
      return weights.readBytes(member, begin, count, to);
    };
    source.buffer = [this](const Buffer &buffer, void *to) {
      return weights.readBuffer(buffer, to);
    };
    FSDPC_TRY(loadShards(*rank, source));
  }
  return started.step < options.steps ? readStep(started.step) : Status();
}

// Makes the files of what is offloaded.
Status Trainer::openFiles() {
  if (info.plan.offloaded == 0 || offloadsToPinned(manifest))
    return {};
  std::string folder =
      options.offloadDir.empty() ? temporaryFolder() : options.offloadDir;
  if (job.rank == 0 && liesInMemory(folder))
    printWarning("'" + folder +
                 "' lies in memory (tmpfs), so offloading saves none; set "
                 "--offload-dir to a disk");
  return rank->openFiles(folder);
}

// Sets this rank's shards, states and buffers to those of a checkpoint. Also
// called by a rollback, in the middle of training, where the rank has the base
// already.
Status Trainer::loadFrom(const TrainingCheckpoint &checkpoint, bool keepsBase) {
  FSDPC_TRY(loadStates(*rank, checkpoint));
  FSDPC_TRY(loadResiduals(*rank, checkpoint));
  ValueSource source;
  source.parameter = [&](const Member &member, int64_t begin, int64_t count,
                         float *to) {
    return checkpoint.holds(member)
               ? checkpoint.readMaster(member, begin, count, to)
               : weights.readParameter(member, begin, count, to);
  };
  source.keeps = [&](const Member &member) {
    return keepsBase && !checkpoint.holds(member);
  };
  source.bytes = [&](const Member &member, int64_t begin, int64_t count,
                     char *to) {
    return checkpoint.holds(member)
               ? checkpoint.readBytes(member, begin, count, to)
               : weights.readBytes(member, begin, count, to);
  };
  source.buffer = [&](const Buffer &buffer, void *to) {
    return checkpoint.readBuffer(buffer, to);
  };
  return loadShards(*rank, source);
}

// Splits the channels that are used in groups. All ranks know of the same size
// of groups by now, so none of them fails alone. Devices with communicators of
// their own split those (runtime/cuda).
Status Trainer::makeGroups() {
  if (!usesGroups(manifest) || backendName() != std::string("host"))
    return {};
  for (Channel channel : {gatherChannel, reduceChannel}) {
    if (channel == reduceChannel && !reducesInGroups(manifest))
      continue;
    auto made = ShardGroups::make(*job.channel[channel], info.groupRanks);
    FSDPC_TRY(made);
    groups[channel] = std::move(*made);
  }
  return {};
}

// Makes the memory in which the ranks of one node hold their shards side by
// side, where that saves gathers their copies.
void Trainer::placeShards() {
  int64_t bytes = 0;
  for (const Layout &layout : manifest.layouts)
    bytes += sideBySideBytes(manifest, layout, job.size);
  if (bytes > 0 && job.ranksOnNode == job.size)
    sideBySide = CommonMemory::make(job, size_t(bytes));
}

static Error otherBase(const std::string &path, const std::string &there,
                       const std::string &here) {
  return inputError("'" + path +
                    "' holds parameters that were trained on another base: "
                    "the frozen parameters have the hash " +
                    printable(there) + " there, and " + here +
                    " here; compile the model with the base that it was "
                    "trained on, or name its folder by --weights");
}

// Hashes the frozen parameters if files leave them out. What was trained on one
// base means nothing on another.
Status Trainer::findBase() {
  bool isNamed = options.saveTrained || options.checkpointTrained;
  if (!isNamed && weights.initBase().empty())
    return {};
  auto found = hashOfBase(*rank, [](const Member &) { return true; });
  FSDPC_TRY(found);
  base = *std::move(found);
  if (resumed || weights.initBase().empty() || weights.initBase() == base)
    return {};
  return otherBase(options.init, weights.initBase(), base);
}

// Compares the values of the base that this run has with those that the
// checkpoint left out. More parameters may be frozen by now.
Status Trainer::checkBase() const {
  if (!resumed || !resumed->leavesOut())
    return {};
  auto found = hashOfBase(
      *rank, [&](const Member &member) { return !resumed->holds(member); });
  FSDPC_TRY(found);
  const std::string &expected = resumed->manifest().base;
  return expected == *found
             ? Status()
             : otherBase(folder.folderOf(started.step), expected, *found);
}

Status Trainer::prepare() {
  // Before anything else: ranks that run different programs would disagree
  // about every later exchange. Each `agree` is a point at which all ranks stop
  // or none does.
  FSDPC_TRY(agree(job, comparePrograms(manifest, job)));
  Result<int> group = chooseGroup(manifest, options, job);
  FSDPC_TRY(agree(job, group ? Status() : Status(group.error())));
  info.groupRanks = *group;
  FSDPC_TRY(openCheckpoints());
  Cores cores = findCores(job);
  info.program = options.program;
  info.launcher = job.size == 1 && job.sharesProcess ? "none" : job.launcher;
  info.binding = cores.list;
  info.ranks = job.size;
  info.ranksOnNode = job.ranksOnNode;
  info.cores = cores.share();
  info.threads = options.threads ? options.threads : info.cores;
  // Files and options, before a device or large memory is taken.
  FSDPC_TRY(agree(job, check()));
  FSDPC_TRY(agree(job, compareFacts(facts, job)));
  FSDPC_TRY(agree(job, compareFacts(evaluationFacts, job)));
  if (options.reduceOrder == "fast")
    job.channel[reduceChannel]->sumNodesFirst();
  info.batch = samples.batch();
  info.samples = samples.count();
  FSDPC_TRY(agree(job, makeGroups()));
  placeShards();
  FSDPC_TRY(agree(job, load()));
  FSDPC_TRY(agree(job, findBase()));
  FSDPC_TRY(agree(job, checkBase()));
  FSDPC_TRY(agree(job, prepareCheckpoints()));
  // All ranks have read their values; the first collective may follow.
  if (takesWeights())
    weights.release();
  return {};
}

// Returns the number of the first sample of a rank's microbatch k. Microbatch
// j = k * ranks + rank of a step is the same for every number of ranks, so
// ranks and --accumulate can be traded without changing what is learnt. Samples
// are counted from where the run resumed, which may have had other
// microbatches.
int64_t Trainer::numberOf(int64_t step, int64_t k, int64_t rank) const {
  int64_t j = k * job.size + rank;
  return started.sample +
         ((step - started.step) * microbatches + j) * samples.batch();
}

// Fills a slot with the samples of a microbatch and the key of its random
// numbers, and enqueues their copies to the device. The first microbatch of a
// step must wait for the weights of all others, on all ranks.
Status Trainer::fill(size_t slot, int64_t step, int64_t k) {
  rank->device->awaitSlot(int(slot));
  FSDPC_TRY(samples.read(numberOf(step, k, job.rank),
                         rank->staging[slot].data(), step));
  rank->randomStaging[slot]->words = {
      uint32_t(options.seed), uint32_t(options.seed >> 32),
      uint32_t(k * job.size + job.rank), uint32_t(step)};
  if (k > 0 || !lossWeights.isOn())
    send(slot, k);
  return {};
}

// Enqueues the copies of a slot that holds microbatch k of a step whose weights
// are known.
void Trainer::send(size_t slot, int64_t k) {
  lossWeights.write(k, rank->randomStaging[slot]->lossFactors);
  rank->device->send(int(slot));
}

// Reads the step's first microbatch into the free slot and checks the samples
// of the others, so that a bad sample is reported before any rank computes on
// it. The weights of all of them are measured on the way.
Status Trainer::readStep(int64_t step) {
  // The first step has no other slot in use, and takes slot 0. Later the free
  // slot is that which no microbatch reads.
  size_t slot = step == started.step ? 0 : size_t(rank->slot ^ 1);
  FSDPC_TRY(fill(slot, step, 0));
  size_t bucket = samples.bucketOf(numberOf(step, 0, 0));
  if (lossWeights.isOn())
    lossWeights.measure(0, bucket, rank->staging[slot].data());
  for (int64_t k = 1; k < options.accumulate; ++k) {
    FSDPC_TRY(samples.check(numberOf(step, k, job.rank), lossWeights.buffers(),
                            step));
    if (lossWeights.isOn())
      lossWeights.measure(k, bucket, lossWeights.buffers());
  }
  return {};
}

// Fills the free slot while the device computes on the other one. An error in
// the next step's samples is kept for the exchange, since all ranks stop there.
Status Trainer::readNext(int64_t step, int64_t k) {
  if (k + 1 < options.accumulate)
    return fill(size_t(rank->slot ^ 1), step, k + 1);
  if (step + 1 < options.steps)
    nextRead = readStep(step + 1);
  return {};
}

} // namespace fsdpc::runtime
