// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A compiled program written by hand: what the compiler emits for a model of 15
// parameters. It is small enough to check by eye, and lets tests drive the
// runtime through its whole command line without a compiler.
//
//   prediction of a sample = scale * sum over t of weight[t] * table[ids[t]]
//                            + bias
//   loss = mean over valid samples of (prediction - target)^2 / 2
//
// A sample is not valid if its first id is -100. The units are "embed" (table,
// which is tied), "root" (weight, bias) and "frozen" (scale).
//
// Tests choose what is normally fixed by a compile with environment variables:
// TOY_STRATEGY (zero3, zero1, ddp, or step for --reduce=step), TOY_OFFLOAD (a
// text with any of optimizer, parameters and gradients: these are on disk, or
// pinned for a GPU),
// TOY_TYPE and TOY_REDUCE (f32, bf16; the latter also f16), TOY_TABLE_TYPE
// (f32: only the table is kept in f32; zero3 alone), TOY_TABLE (kind of the
// table's source), TOY_FOLDER (of the weights), TOY_TOKENS, TOY_LIMIT,
// TOY_FEATURE (of the processor), TOY_PROGRAM_HASH and TOY_SCHEDULE_HASH. With
// TOY_GRID defined it is a program for the emulated GPU.
#include "runtime/abi/manifest.h"
#include "runtime/abi/norm_digits.h"
#include "runtime/include/fsdpc.h"
#include "runtime/numeric/dtype.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

std::string setting(const char *name, const char *otherwise) {
  const char *value = std::getenv(name);
  return value ? value : otherwise;
}

const std::string strategy = setting("TOY_STRATEGY", "zero3");
const std::string type = setting("TOY_TYPE", "f32");
const std::string tableType = setting("TOY_TABLE_TYPE", type.c_str());
// Every rank keeps all parameters.
const bool reshards = strategy == "resharded";
const bool whole = strategy != "zero3" && strategy != "hybrid" && !reshards;

constexpr int64_t samples = 2, width = 3, slot = 4096;
enum Layouts { embed, root, frozen };
enum Events { gathered, computed, reduced, summed, updated, fetched, events };
// The arena has a slot per gathered layout, per gradient, and for scalars.
enum Slots { gatheredAt = 0, gradientAt = 3, scalarsAt = 5, slots = 6 };
constexpr int64_t lossAt = 0, validAt = 4, scaleAt = 8, sumsAt = 64,
                  statisticAt = 320;

float load(const void *values, int64_t index, const std::string &as = type) {
  return as == "bf16" ? fromBf16(static_cast<const uint16_t *>(values)[index])
                      : static_cast<const float *>(values)[index];
}

void store(void *values, int64_t index, float value,
           const std::string &as = type) {
  if (as == "bf16")
    static_cast<uint16_t *>(values)[index] = toBf16(value);
  else
    static_cast<float *>(values)[index] = value;
}

// Buffers: ids, target, table, root, frozen, gradient of table, gradient of
// root, loss, valid, statistic.
void forwardBackward(int64_t, int64_t, void *const *buffers) {
  auto *ids = static_cast<const int64_t *>(buffers[0]);
  auto *target = static_cast<const float *>(buffers[1]);
  const void *table = buffers[2], *weights = buffers[3];
  float scale = load(buffers[4], 0);
  auto *statistic = static_cast<float *>(buffers[9]);
  float tableGradient[10] = {}, rootGradient[33] = {}, loss = 0, valid = 0;
  for (int64_t i = 0; i < samples; ++i)
    valid += ids[i * width] != -100;
  for (int64_t t = 0; t < width; ++t)
    statistic[t] = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t *row = ids + i * width;
    for (int64_t t = 0; t < width; ++t)
      statistic[t] += float(row[t]) / samples;
    if (row[0] == -100)
      continue;
    float prediction = load(weights, 32);
    for (int64_t t = 0; t < width; ++t)
      prediction += scale * load(weights, t) * load(table, row[t], tableType);
    float error = prediction - target[i];
    loss += error * error / 2 / valid;
    float slope = error / valid;
    rootGradient[32] += slope;
    for (int64_t t = 0; t < width; ++t) {
      rootGradient[t] += slope * scale * load(table, row[t], tableType);
      tableGradient[row[t]] += slope * scale * load(weights, t);
    }
  }
  for (int64_t i = 0; i < 10; ++i)
    store(buffers[5], i, tableGradient[i], tableType);
  for (int64_t i = 0; i < 33; ++i)
    store(buffers[6], i, rootGradient[i]);
  *static_cast<float *>(buffers[7]) = valid > 0 ? loss : 0 * (1 / valid);
  *static_cast<float *>(buffers[8]) = valid;
}

// SGD with momentum 0.9. Buffers: master, gradient, momentum, [compute copy,]
// scale, rates.
void optimizer(int64_t begin, int64_t end, void *const *buffers) {
  auto *master = static_cast<float *>(buffers[0]);
  auto *gradient = static_cast<const float *>(buffers[1]);
  auto *momentum = static_cast<float *>(buffers[2]);
  bool copies = type != "f32" && whole;
  float scale = *static_cast<const float *>(buffers[copies ? 4 : 3]);
  auto *rates = static_cast<const double *>(buffers[copies ? 5 : 4]);
  for (int64_t i = begin; i < end; ++i) {
    momentum[i] =
        0.9f * momentum[i] + gradient[i] * scale + float(rates[2]) * master[i];
    master[i] -= float(rates[0]) * momentum[i];
    if (copies)
      store(buffers[3], i, master[i]);
  }
}

void *arena(fsdpc_rank *rank, int64_t index, int64_t offset = 0) {
  return fsdpc_pointer(rank, FSDPC_SPACE_ARENA, 0, index * slot + offset);
}

void *gatheredParameters(fsdpc_rank *rank, int32_t layout) {
  return fsdpc_pointer(rank, FSDPC_SPACE_GATHERED, layout,
                       (gatheredAt + layout) * slot);
}

void order(fsdpc_rank *rank, int32_t from, int32_t to, int32_t event) {
  fsdpc_event_record(rank, from, event);
  fsdpc_event_wait(rank, to, event);
}

constexpr int32_t trainable[] = {embed, root}, all[] = {embed, root, frozen};

#ifdef TOY_GRID
// The same by segments, one block of the grid each.
void optimizerBlocks(int64_t begin, int64_t end, void *const *buffers) {
  size_t scaleAt = type != "f32" && whole ? 4 : 3;
  auto *segments = static_cast<const int64_t *>(buffers[scaleAt + 1]);
  auto *rates = static_cast<double *>(buffers[scaleAt + 2]);
  for (int64_t block = begin; block < end; ++block) {
    const int64_t *segment = segments + 3 * block;
    void *own[6];
    std::copy(buffers, buffers + scaleAt + 1, own);
    own[scaleAt + 1] = rates + 4 * segment[2];
    optimizer(segment[0], segment[1], own);
  }
}

const fsdpc_kernel kernels[] = {
    {"forward_backward", forwardBackward, 0, 0, 1, 1},
    {"optimizer", optimizerBlocks, 0, 0, 0, 1}};
#else
const fsdpc_kernel kernels[] = {
    {"forward_backward", forwardBackward, 1, 1, 0, 0},
    {"optimizer", optimizer, 0, 0, 0, 0}};
#endif

void microbatch(fsdpc_rank *rank) {
  void *parameters[3];
  for (int32_t layout : all)
    parameters[layout] = whole
                             ? fsdpc_pointer(rank, FSDPC_SPACE_WHOLE, layout, 0)
                             : gatheredParameters(rank, layout);
  if (!whole) {
    order(rank, FSDPC_STREAM_COMPUTE, FSDPC_STREAM_GATHER, computed);
    if (reshards) {
      // Slots that nothing has been written to yet.
      void *first[] = {arena(rank, gradientAt), arena(rank, gradientAt + 1),
                       arena(rank, scalarsAt)};
      fsdpc_all_gather(rank, 3, all, first);
      fsdpc_keep_secondary(rank, 3, all, first);
      fsdpc_gather_secondary(rank, 3, all, parameters);
    } else {
      fsdpc_all_gather(rank, 3, all, parameters);
    }
    order(rank, FSDPC_STREAM_GATHER, FSDPC_STREAM_COMPUTE, gathered);
  }
  void *gradients[] = {arena(rank, gradientAt), arena(rank, gradientAt + 1)};
  void *loss = arena(rank, scalarsAt, lossAt);
  void *valid = arena(rank, scalarsAt, validAt);
  void *statistic = arena(rank, scalarsAt, statisticAt);
  void *operands[] = {fsdpc_pointer(rank, FSDPC_SPACE_INPUT, 0, 0),
                      fsdpc_pointer(rank, FSDPC_SPACE_INPUT, 1, 0),
                      parameters[embed],
                      parameters[root],
                      parameters[frozen],
                      gradients[0],
                      gradients[1],
                      loss,
                      valid,
                      statistic};
  order(rank, FSDPC_STREAM_REDUCE, FSDPC_STREAM_COMPUTE, reduced);
  fsdpc_launch(rank, &kernels[0], operands, 10);
  fsdpc_report_loss(rank, loss, valid);
  if (strategy == "step")
    for (int32_t i = 0; i < 2; ++i)
      fsdpc_accumulate(rank, trainable[i], gradients[i]);
  order(rank, FSDPC_STREAM_COMPUTE, FSDPC_STREAM_REDUCE, computed);
  if (strategy != "step")
    fsdpc_reduce_scatter(rank, 2, trainable, gradients);
  fsdpc_update_statistics(rank, 1, statistic, 0.1, FSDPC_BUFFERS_SEQUENTIAL);
}

void update(fsdpc_rank *rank) {
  if (strategy == "step") {
    order(rank, FSDPC_STREAM_COMPUTE, FSDPC_STREAM_REDUCE, computed);
    fsdpc_reduce_gradients(rank, 2, trainable);
  }
  order(rank, FSDPC_STREAM_REDUCE, FSDPC_STREAM_COMPUTE, reduced);
  if (strategy == "ddp") {
    order(rank, FSDPC_STREAM_COMPUTE, FSDPC_STREAM_GATHER, computed);
    fsdpc_gather_gradients(rank, 2, trainable);
    order(rank, FSDPC_STREAM_GATHER, FSDPC_STREAM_COMPUTE, fetched);
  }
  void *sums = arena(rank, scalarsAt, sumsAt);
  void *scale = arena(rank, scalarsAt, scaleAt);
  fsdpc_sum_squares(rank, 2, trainable, sums);
  order(rank, FSDPC_STREAM_COMPUTE, FSDPC_STREAM_REDUCE, computed);
  fsdpc_all_reduce(rank, 2 * fsdpc::normDigits, sums);
  order(rank, FSDPC_STREAM_REDUCE, FSDPC_STREAM_COMPUTE, summed);
  fsdpc_clip(rank, 2, trainable, sums, 0.5, scale);
  for (int32_t layout : trainable)
    fsdpc_optimizer(rank, &kernels[1], layout, scale, 0, nullptr, nullptr,
                    nullptr, nullptr);
  if (strategy == "zero1" || strategy == "step") {
    void *wholes[] = {fsdpc_pointer(rank, FSDPC_SPACE_WHOLE, embed, 0),
                      fsdpc_pointer(rank, FSDPC_SPACE_WHOLE, root, 0)};
    order(rank, FSDPC_STREAM_COMPUTE, FSDPC_STREAM_GATHER, updated);
    fsdpc_all_gather(rank, 2, trainable, wholes);
    order(rank, FSDPC_STREAM_GATHER, FSDPC_STREAM_COMPUTE, fetched);
  }
}

const float storedWeight[] = {0.5f, -0.25f, 0.125f};
const float embeddedBias[] = {0.75f};

Member member(const char *name, int64_t elements, int64_t offset,
              const char *kind) {
  Member member;
  member.name = name;
  member.shape = {elements};
  member.elements = elements;
  member.offset = offset;
  member.source.kind = kind;
  member.source.dtype = "f32";
  member.source.length = uint64_t(elements) * 4;
  return member;
}

Layout layout(const char *name, int64_t elements, bool trainable,
              std::vector<Member> members) {
  Layout layout;
  layout.name = layout.unit = name;
  layout.elements = elements;
  layout.trainable = trainable;
  layout.inGroups = strategy == "hybrid";
  layout.secondary = reshards;
  auto offloads = [](const char *what) {
    return setting("TOY_OFFLOAD", "").find(what) != std::string::npos;
  };
  layout.statesOffloaded = trainable && offloads("optimizer");
  layout.gradientOffloaded = trainable && offloads("gradients");
  layout.parametersOffloaded = offloads("parameters");
  layout.states = 1;
  layout.members = std::move(members);
  layout.computeWhole = whole;
  layout.masterWhole = layout.stateWhole = strategy == "ddp";
  layout.gradientWhole = strategy == "ddp" || strategy == "step";
  return layout;
}

// Lists what microbatch() and update() enqueue on each stream, with zero3.
void describeCalls(Manifest &manifest) {
  manifest.commands = {
      {"all_gather", "embed root frozen", 0, 0, 0, -1, {0, 1, 2}},
      {"launch", "forward_backward", 1000, 50, 0, -1, {}},
      {"report_loss", "", 0, 0, 0, -1, {}},
      {"reduce_scatter", "embed root", 0, 0, 0, -1, {0, 1}},
      {"update_statistics", "running", 0, 0, 0, -1, {}},
      {"sum_squares", "embed root", 0, 0, 0, -1, {0, 1}},
      {"all_reduce", "", 0, 0, 0, -1, {}},
      {"clip", "", 0, 0, 0, -1, {}},
      {"optimizer", "embed", 0, 0, 0, -1, {0}},
      {"optimizer", "root", 0, 0, 0, -1, {1}}};
  auto sequence = [&](const char *entry, int32_t stream,
                      const std::vector<int32_t> &commands) {
    CallSequence calls{entry, stream, {}};
    for (int32_t command : commands)
      calls.calls.push_back({command, "toy", false, "node"});
    manifest.sequences.push_back(calls);
  };
  sequence("microbatch", FSDPC_STREAM_COMPUTE, {1, 2});
  sequence("microbatch", FSDPC_STREAM_GATHER, {0});
  sequence("microbatch", FSDPC_STREAM_REDUCE, {3, 4});
  sequence("update", FSDPC_STREAM_COMPUTE, {5, 7, 8, 9});
  sequence("update", FSDPC_STREAM_REDUCE, {6});
}

Manifest describe() {
  Manifest manifest;
  manifest.compiler = "by hand";
#ifdef TOY_GRID
  manifest.target = "cuda-emulation";
#else
  manifest.target = "host";
#endif
  manifest.commandLine = "toy --strategy=" + strategy;
  manifest.strategy = strategy;
  manifest.optimizer = "sgd";
  manifest.computeDtype = type;
  manifest.reduceDtype = setting("TOY_REDUCE", "f32");
  manifest.scheduleHash = setting("TOY_SCHEDULE_HASH", "0123456789abcdef");
  manifest.programHash = setting("TOY_PROGRAM_HASH", "fedcba9876543210");
  manifest.lr = 0.05;
  manifest.maxNorm = 0.5;
  manifest.maxRanks = 8;
  manifest.reshardTo = std::atoll(setting("TOY_RESHARD_TO", "0").c_str());
  manifest.predictions = {{1, 1000, 500}, {2, 1200, 250}};
  manifest.arenaBytes = slots * slot;
  manifest.arenaGathered = 3 * slot;
  manifest.arenaGradients = 2 * slot;
  manifest.arenaActivations = slot;
  manifest.memoryLimit = std::atoll(setting("TOY_LIMIT", "0").c_str());
  manifest.events = events;
  manifest.stackBytes = 4096;
  manifest.tokensInput = setting("TOY_TOKENS", "ids");
  if (std::getenv("TOY_FEATURE"))
    manifest.cpuFeatures = {"avx2", std::getenv("TOY_FEATURE")};
  manifest.inputs = {{"ids", {samples, width}, "i64", 10, 0, -100, true},
                     {"target", {samples}, "f32"}};

  Member table = member("table", 10, 0, setting("TOY_TABLE", "rule").c_str());
  table.aliases = {"head.table"};
  table.source.rule = "normal(0,1)";
  Member weight = member("weight", 3, 0, "file");
  // A relative path would be taken from the program's folder.
  weight.source.file =
      std::filesystem::absolute(setting("TOY_FOLDER", ".") + "/weights.bin")
          .lexically_normal();
  weight.source.offset = 4;
  char digits[17];
  std::snprintf(
      digits, sizeof digits, "%016llx",
      (unsigned long long)XXH64(storedWeight, sizeof storedWeight, 0));
  weight.source.hash = digits;
  Member bias = member("bias", 1, 32, "embedded");
  bias.decay = 0.01;
  bias.rate = 0.5;
  Member scale = member("scale", 1, 0, "rule");
  scale.source.rule = "ones";
  manifest.layouts = {layout("embed", 10, true, {table}),
                      layout("root", 33, true, {weight, bias}),
                      layout("frozen", 1, false, {scale})};
  manifest.layouts[embed].keptF32 = tableType != type;
  Buffer batches;
  batches.name = "batches";
  batches.dtype = "i64";
  batches.addEachMicrobatch = 1;
  batches.source.kind = "rule";
  batches.source.rule = "zeros";
  Buffer running = batches;
  running.name = "running";
  running.dtype = "f32";
  running.shape = {width};
  running.addEachMicrobatch = 0;
  manifest.buffers = {batches, running};
  describeCalls(manifest);
  return manifest;
}

} // namespace

int main(int argc, char **argv) {
  std::string manifest = toJson(describe());
  fsdpc_program program = {};
  program.manifest = manifest.data();
  program.manifest_bytes = manifest.size();
  program.weights = embeddedBias;
  program.weights_bytes = sizeof embeddedBias;
  const fsdpc_bucket bucket = {microbatch, nullptr};
  program.buckets = &bucket;
  program.bucket_count = 1;
  program.update = update;
  program.kernels = kernels;
  program.kernel_count = 2;
  return fsdpc_main(argc, argv, &program);
}
