// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the JSON lines of --log. Text from outside (names, paths) may hold
// invalid UTF-8, which is replaced instead of raising an error in the middle of
// a run.
#include "runtime/train/log.h"
#include "runtime/abi/plan_shapes.h"
#include "runtime/core/resources.h"
#include "runtime/support/file.h"
#include "runtime/support/json_fields.h"
#include "runtime/support/json_text.h"
#include "runtime/support/new_file.h"
#include "runtime/support/output_file.h"

#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fsdpc::runtime {
namespace {

// In a header, numbers stand in lists of the plan.
constexpr int deepest = 8;

// The key names what is counted, so that logs of different models are not
// compared by accident.
const char *rateKey(const Manifest &manifest) {
  return manifest.tokensInput.empty() ? "samples_per_s" : "tokens_per_s";
}

// An object of its own, so that no name can be that of another key.
Json metricsOf(const Options &options, const std::vector<double> &values) {
  Json json = Json::object();
  for (size_t m = 0; m < values.size(); ++m)
    json[options.metrics[m].name] = values[m];
  return json;
}
} // namespace

// All elements of the tokens' input, or else samples.
int64_t itemsPerMicrobatch(const Manifest &manifest, size_t bucket) {
  for (const Input &input : manifest.inputs)
    if (input.name == manifest.tokensInput)
      return elementsOf(shapeIn(input, bucket), 1);
  return samplesPerMicrobatch(manifest);
}

double itemsPerSecond(const Manifest &manifest, const Options &options,
                      const RunInfo &info, const StepRecord &record) {
  double items = double(itemsPerMicrobatch(manifest, record.bucket)) *
                 double(info.ranks) * double(options.accumulate);
  return items * 1000 / record.milliseconds;
}

// Times of an emulated device mean nothing and are left out.
std::vector<Scalar> scalarsOf(const Manifest &manifest, const Options &options,
                              const RunInfo &info, const StepRecord &record) {
  std::vector<Scalar> scalars = {
      {"loss", record.loss}, {"grad_norm", record.gradNorm}, {"lr", record.lr}};
  for (size_t m = 0; m < record.metrics.size(); ++m)
    scalars.emplace_back("metrics/" + options.metrics[m].name,
                         record.metrics[m]);
  if (record.scaled)
    scalars.emplace_back("scale", record.scale);
  if (record.counts)
    scalars.emplace_back("skipped", double(record.skipped));
  if (manifest.countsZeroed)
    scalars.emplace_back("zeroed", record.zeroed);
  if (!isEmulation()) {
    scalars.emplace_back("step_ms", record.milliseconds);
    scalars.emplace_back(rateKey(manifest),
                         itemsPerSecond(manifest, options, info, record));
    scalars.emplace_back("exposed_comm_ms", record.exposedMilliseconds);
  }
  scalars.emplace_back("resident_bytes", double(record.residentBytes));
  return scalars;
}

Log::~Log() {
  if (file >= 0)
    close(file);
}

// O_NONBLOCK, because opening a FIFO would wait for a reader.
Status Log::open(const std::string &name) {
  path = name;
  file = ::open(path.c_str(),
                O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  // O_NONBLOCK gives ENXIO for a FIFO that nobody reads.
  if (file < 0 && errno == ENXIO)
    return inputError("cannot write '" + path +
                      "': it is a FIFO without a reader");
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0)
    return fileError(path, "write");
  isRegular = S_ISREG(status.st_mode);
  // A reader that is slow shall slow the run down, not end its log.
  if (!isRegular) {
    int flags = fcntl(file, F_GETFL);
    if (flags < 0 || fcntl(file, F_SETFL, flags & ~O_NONBLOCK) != 0)
      return fileError(path, "write");
    return {};
  }
  // Not every file system has locks.
  if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return runError("'" + path +
                    "' is the log of another run that has not ended; give each "
                    "run its own --log");
  return {};
}

// Closes the log at the first failure, so that no later line follows a gap.
Status Log::line(const std::string &text) {
  if (file < 0)
    return {};
  std::string whole = text + "\n";
  if (writeAll(file, whole.data(), whole.size())) {
    written += whole.size();
    return {};
  }
  Error error = fileError(path, "write");
  // Readers expect whole lines. If the part cannot be cut off, it stays.
  if (isRegular && ftruncate(file, off_t(written)) != 0)
    error.message += "; its last line is incomplete";
  close(file);
  file = -1;
  return error;
}

// Returns the ms that the compiler expects of a step, or null if it has not
// planned for so many ranks and threads.
static Json predictedStep(const Manifest &manifest, const Options &options,
                          const RunInfo &info) {
  if (info.threads != manifest.planThreads)
    return nullptr;
  for (const PredictedStep &prediction : manifest.predictions)
    if (prediction.ranks == info.ranks)
      return (double(options.accumulate) * prediction.microbatchUs +
              prediction.updateUs) /
             1e3;
  return nullptr;
}

// The keys are an interface: scripts that compare runs read them.
Status Log::header(const Manifest &manifest, const Options &options,
                   const RunInfo &info) {
  Json plan;
  for (auto &[kind, bytes] : info.plan.kinds())
    plan[kind] = bytes;
  plan["peak"] = info.plan.total();
  if (info.plan.offloaded > 0)
    plan[offloadedName(manifest)] = info.plan.offloaded;
  Json json = {{"program", info.program},
               {"program_hash", manifest.programHash},
               {"schedule_hash", manifest.scheduleHash},
               {"compiler", manifest.compiler},
               {"compiled_with", manifest.commandLine},
               {"strategy", manifest.strategy},
               {"optimizer", manifest.optimizer},
               {"compute_dtype", manifest.computeDtype},
               {"reduce_dtype", manifest.reduceDtype},
               {"device", backendName()},
               {"notes", info.notes},
               {"ranks", info.ranks},
               {"threads", info.threads},
               {"ranks_on_node", info.ranksOnNode},
               {"launcher", info.launcher},
               {"cores", info.binding},
               {"samples", info.samples},
               {"microbatch_samples", info.batch},
               {"steps", options.steps},
               {"first_step", info.firstStep},
               {"accumulate", options.accumulate},
               {"lr", options.lr},
               {"lr_schedule", options.scheduleText},
               {"seed", options.seed},
               {"shuffle", options.shuffle},
               {"plan", plan},
               {"predicted_step_ms", predictedStep(manifest, options, info)},
               {"peak_rss", peakResidentBytes()}};
  if (usesGroups(manifest))
    json["shard_group"] = info.groupRanks;
  if (!manifest.lossMean.empty())
    json["loss_mean"] = manifest.lossMean;
  return line(dump(json));
}

// Leaves the whole lines of a log up to the first step that will be logged
// again. A file that does not begin as a log is emptied.
Status Log::cut(int64_t firstStep) {
  if (!isRegular)
    return {};
  written = 0;
  if (firstStep > 0) {
    std::ifstream old(path, std::ios::binary);
    std::string text;
    // A last line without its end was being written when the run died, and
    // goes.
    while (std::getline(old, text) && !old.eof()) {
      Json json = parseJsonOrNull(text, deepest);
      if (!json.is_object() || (written == 0 && !json.contains("program_hash")))
        break;
      auto step = json.find("step");
      if (step != json.end() &&
          (!step->is_number_integer() || step->get<int64_t>() >= firstStep))
        break;
      written += text.size() + 1;
    }
  }
  if (ftruncate(file, off_t(written)) != 0 ||
      lseek(file, off_t(written), SEEK_SET) < 0)
    return fileError(path, "write");
  return {};
}

// Optional keys appear in every line or in none, so a table of a log has no
// holes.
Status Log::step(const Manifest &manifest, const Options &options,
                 const RunInfo &info, const StepRecord &record) {
  if (file < 0) // before anything is formatted: a step allocates nothing
    return {};
  Json json = {{"step", record.step},
               {"loss", record.loss},
               {"grad_norm", record.gradNorm},
               {"lr", record.lr}};
  if (!manifest.buckets.empty())
    json["bucket"] = manifest.buckets[record.bucket];
  if (!record.metrics.empty())
    json["metrics"] = metricsOf(options, record.metrics);
  if (record.scaled)
    json["scale"] = record.scale;
  if (record.counts)
    json["skipped"] = record.skipped;
  if (options.skipCorrupt)
    json["corrupt_samples"] = record.corrupt;
  if (manifest.countsZeroed)
    json["zeroed"] = record.zeroed;
  if (isEmulation()) {
    json["emulated"] = true; // in place of times
  } else {
    json["step_ms"] = record.milliseconds;
    json[rateKey(manifest)] = itemsPerSecond(manifest, options, info, record);
    json["exposed_comm_ms"] = record.exposedMilliseconds;
  }
  if (record.counted)
    json["sent_bytes"] = {{"all_ranks", record.sent[0]},
                          {"in_groups", record.sent[1]},
                          {"across_groups", record.sent[2]},
                          {"control", record.sent[3]}};
  if (record.counted && record.countedNodes)
    json["sent_bytes"]["between_nodes"] = record.sent[4];
  json["resident_bytes"] = record.residentBytes;
  json["peak_rss_minus_plan"] = record.overPlan;
  return line(dump(json));
}

Status Log::evaluation(const Options &options, const EvaluationRecord &record) {
  if (file < 0)
    return {};
  Json json = {{"eval_step", record.step},
               {"eval_loss", record.loss},
               {"eval_samples", record.samples}};
  if (!record.metrics.empty())
    json["eval_metrics"] = metricsOf(options, record.metrics);
  if (isEmulation())
    json["emulated"] = true;
  else
    json["eval_ms"] = record.milliseconds;
  return line(dump(json));
}

} // namespace fsdpc::runtime
