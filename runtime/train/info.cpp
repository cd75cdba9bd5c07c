// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints the manifest as a few tables: how the program was compiled, inputs,
// units, parameters, buffers, and the memory per rank for several numbers of
// ranks.
#include "runtime/train/info.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/abi/staging.h"
#include "runtime/checkpoint/training_checkpoint.h"
#include "runtime/core/device.h"
#include "runtime/data/sample_file.h"
#include "runtime/support/concat.h"
#include "runtime/support/spelling.h"

#include <algorithm>

namespace fsdpc::runtime {
namespace {

// Pads a name to a width, on its right side, or a number on its left.
std::string padded(const std::string &cell, size_t width, bool right = false) {
  std::string text = printable(cell);
  size_t fill = width > text.size() ? width - text.size() : 0;
  return right ? std::string(fill, ' ') + text : text + std::string(fill, ' ');
}

// One column per number of ranks, one row per kind. The launcher is not known
// here, so it shows the memory of MPI with all ranks on one node.
std::string memoryTable(const Manifest &manifest, const Options &options) {
  // Without --threads the table is for the number that the program was planned
  // for.
  int threads = options.threads
                    ? options.threads
                    : int(std::max<int64_t>(1, manifest.planThreads));
  std::vector<int> ranks;
  for (int64_t n : {1, 2, 4, 8, 64})
    if (n <= manifest.maxRanks)
      ranks.push_back(int(n));
  std::vector<std::string> lines = {"  " + padded("ranks", 14)};
  std::string groups = "  " + padded("shard group", 14);
  for (int n : ranks) {
    int group = plannedGroup(manifest, n, options.shardGroup);
    groups += padded(std::to_string(group), 12, true);
    MemoryPlan plan = planMemory(manifest, n, group, threads,
                                 channelBytes(manifest, n, group, n, "mpi"),
                                 scratchpadBytes(manifest, n, threads));
    if (!options.checkpointEvery.empty() && plan.offloaded == 0)
      plan.checkpoint = checkpointCopyBytes(
          describeCheckpoint(manifest, n, group, options.checkpointTrained));
    auto kinds = plan.kinds();
    // The rows are the same in every column, so the first one makes them.
    kinds.emplace_back("planned peak", plan.total());
    if (plan.offloaded > 0)
      kinds.emplace_back(offloadedName(manifest), plan.offloaded);
    lines[0] += padded(std::to_string(n), 12, true);
    for (size_t i = 0; i < kinds.size(); ++i) {
      if (lines.size() < i + 2)
        lines.push_back("  " + padded(kinds[i].first, 14));
      lines[i + 1] += padded(bytesText(kinds[i].second), 12, true);
    }
  }
  if (usesGroups(manifest))
    lines.insert(lines.begin() + 1, groups);
  std::string text = concat("memory per rank, ", threads,
                            threads == 1 ? " thread\n" : " threads\n");
  for (const std::string &line : lines)
    text += line + "\n";
  return text;
}

// Describes how the program was compiled, and omits rows without a value.
std::string programText(const Manifest &manifest) {
  std::string text;
  auto row = [&](const char *name, const std::string &value) {
    if (!value.empty())
      text += padded(name, 16) + printable(value) + "\n";
  };
  row("compiled with", manifest.commandLine);
  row("compiler", manifest.compiler);
  row("cpu", manifest.cpu);
  row("strategy", manifest.strategy);
  bool noMasters =
      std::any_of(manifest.layouts.begin(), manifest.layouts.end(),
                  [](const Layout &layout) { return layout.noMaster; });
  row("types",
      manifest.computeDtype + " compute, " + manifest.reduceDtype +
          " reduce, " +
          (noMasters ? "no masters, stochastic rounding" : "f32 masters"));
  row("optimizer", manifest.optimizer);
  row("schedule hash", manifest.scheduleHash);
  row("program hash", manifest.programHash);
  row("maximum ranks", std::to_string(manifest.maxRanks));
  if (manifest.maxAccumulate > 0)
    row("microbatches",
        concat("at most ", manifest.maxAccumulate, " per rank and step"));
  if (manifest.memoryLimit > 0)
    row("memory limit", bytesText(manifest.memoryLimit));
  std::string buckets;
  for (const std::string &name : manifest.buckets)
    buckets += (buckets.empty() ? "" : " ") + name;
  row("buckets", buckets);
  return text;
}

std::string inputsText(const Manifest &manifest) {
  std::string text = "\ninputs\n";
  for (const Input &input : manifest.inputs) {
    text += "  " + padded(input.name, 24) + " " + input.dtype +
            shapeText(shapeIn(input, 0));
    for (size_t bucket = 1; bucket < input.bucketShapes.size(); ++bucket)
      text += " or " + shapeText(input.bucketShapes[bucket]);
    if (input.bound > 0)
      text += concat(" in [", input.lower, ", ", input.bound, ")");
    if (input.hasIgnored)
      text += concat(" or ", input.ignored);
    text += "\n";
  }

  if (!manifest.outputs.empty())
    text += "\noutputs\n";
  for (const Output &output : manifest.outputs)
    text += "  " + padded(output.name, 24) + " " + output.dtype +
            shapeText(output.shape) + "\n";
  return text;
}

// Counts parameters, not the padding and gaps of their layouts.
std::string unitsText(const Manifest &manifest) {
  int64_t total = 0, trained = 0;
  std::string text = "\nunits\n";
  for (const Layout &layout : manifest.layouts) {
    int64_t elements = 0;
    for (const Member &member : layout.members)
      elements += member.elements;
    total += elements;
    trained += layout.trainable ? elements : 0;
    text += concat("  ", padded(layout.name, 24), " ", layout.members.size(),
                   " parameters, ", elements, " elements",
                   layout.trainable ? "" : ", frozen",
                   layout.owned       ? ", owned by a rank"
                   : layout.inGroups  ? ", sharded in groups"
                   : layout.secondary ? ", resharded to groups"
                                      : "",
                   layout.masterWhole    ? ", kept whole"
                   : layout.computeWhole ? ", weights kept whole"
                                         : "",
                   "\n");
  }
  return concat(text, "\nparameters: ", total, " elements, ", trained,
                " trained\n");
}

std::string tensorsText(const Manifest &manifest) {
  std::string text;
  std::vector<int> owners = ownersOf(manifest, manifest.planRanks);
  for (size_t i = 0; i < owners.size(); ++i)
    for (const Member &member : manifest.layouts[i].members) {
      text += "  " + padded(member.name, 40) + " " + shapeText(member.shape);
      for (const std::string &alias : member.aliases)
        text += " = " + printable(alias);
      if (owners[i] != noOwner)
        text += concat(", of rank ", owners[i], " of ", manifest.planRanks);
      text += "\n";
    }
  if (!manifest.buffers.empty())
    text += "\nbuffers\n";
  for (const Buffer &buffer : manifest.buffers)
    text += "  " + padded(buffer.name, 40) + " " + buffer.dtype +
            shapeText(buffer.shape) + "\n";
  return text;
}

} // namespace

std::string infoText(const Manifest &manifest, const Options &options) {
  return programText(manifest) + inputsText(manifest) + unitsText(manifest) +
         tensorsText(manifest) + "\n" + memoryTable(manifest, options);
}

} // namespace fsdpc::runtime
