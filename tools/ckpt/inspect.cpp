// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `fsdpc ckpt inspect`: says what a checkpoint holds, from its manifest alone,
// so it is quick, and works for one whose files are damaged or gone. The table
// is for people, the JSON for scripts.
#include "runtime/abi/element_type.h"
#include "runtime/checkpoint/checkpoint_file.h"
#include "runtime/data/sample_file.h"
#include "runtime/support/concat.h"
#include "runtime/support/json_text.h"
#include "runtime/support/spelling.h"
#include "tools/ckpt/checkpoints.h"
#include "tools/ckpt/commands.h"

#include <sys/stat.h>

namespace fsdpc::ckpt {

using namespace runtime;
using Json = nlohmann::ordered_json;

namespace {

// Returns null for a file that is not there.
Json bytesOf(const std::string &path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0)
    return nullptr;
  return int64_t(status.st_size);
}

// The parameters of a layout at their offsets, in elements of the flat buffer.
Json describeLayout(const StoredLayout &layout) {
  Json parameters = Json::array();
  for (const Member &member : layout.members)
    parameters.push_back({{"name", member.name},
                          {"dtype", layout.typeOf(member)},
                          {"shape", member.shape},
                          {"aliases", member.aliases},
                          {"offset", member.offset}});
  return {{"name", layout.name},          {"shard", layout.shard},
          {"states", stateNames(layout)}, {"leftOut", layout.leftOut},
          {"residual", layout.residual},  {"parameters", parameters}};
}

// Keys are part of the interface for scripts: add some, but rename none.
Json describe(const std::string &folder, const CheckpointManifest &stored) {
  Json layouts = Json::array(), buffers = Json::array(), files = Json::array(),
       settings = Json::object();
  for (const StoredLayout &layout : stored.layouts)
    layouts.push_back(describeLayout(layout));
  for (const Buffer &buffer : stored.buffers)
    buffers.push_back({{"name", buffer.name},
                       {"dtype", buffer.dtype},
                       {"shape", buffer.shape}});
  for (int64_t rank = 0; rank < stored.ranks; ++rank) {
    std::string name = rankFileName(rank);
    files.push_back({{"name", name}, {"bytes", bytesOf(folder + "/" + name)}});
  }
  for (auto &[name, value] : stored.settings)
    settings[name] = value;
  const LossScaler::State &scaler = stored.state.scaler;
  return {{"folder", folder},
          {"step", stored.state.step},
          {"sample", stored.state.sample},
          {"scaler",
           {{"scale", scaler.scale},
            {"inARow", scaler.inARow},
            {"skips", scaler.skips}}},
          {"ranks", stored.ranks},
          {"base", stored.base},
          {"settings", settings},
          {"layouts", layouts},
          {"buffers", buffers},
          {"files", files}};
}

// Names fill a column of 14 characters.
std::string row(const std::string &name, const std::string &value) {
  return name + std::string(name.size() < 14 ? 14 - name.size() : 1, ' ') +
         value + "\n";
}

std::string joined(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string tensorLine(const std::string &name, const std::string &dtype,
                       const std::vector<int64_t> &shape,
                       const std::vector<std::string> &aliases) {
  std::string text =
      "    " + printable(name) + "  " + dtype + " " + shapeText(shape);
  for (const std::string &alias : aliases)
    text += " = " + printable(alias);
  return text + "\n";
}

// The size of all files, and how many are gone. The manifest alone does not
// know either.
std::string sizeLine(const std::string &folder,
                     const CheckpointManifest &stored) {
  int64_t bytes = 0, missing = 0;
  for (int64_t rank = 0; rank < stored.ranks; ++rank) {
    Json size = bytesOf(folder + "/" + rankFileName(rank));
    missing += size.is_null();
    bytes += size.is_null() ? 0 : size.get<int64_t>();
  }
  std::string text = concat(bytesText(bytes), " in ", stored.ranks, " files");
  if (missing > 0)
    text += concat(", of which ", missing, " are missing");
  return text;
}

std::string table(const std::string &folder, const CheckpointManifest &stored) {
  int64_t tensors = 0, elements = 0;
  for (const StoredLayout &layout : stored.layouts)
    for (const Member &member : layout.members) {
      ++tensors;
      elements += layout.ofBytes() ? member.elements / dtypeBytes(member.dtype)
                                   : member.elements;
    }
  // Scale 1 without skips is a run without loss scaling.
  const LossScaler::State &scaler = stored.state.scaler;
  std::string text = row("checkpoint", folder) +
                     row("step", std::to_string(stored.state.step)) +
                     row("next sample", std::to_string(stored.state.sample));
  if (scaler.scale != 1 || scaler.skips != 0) {
    char scale[32];
    std::snprintf(scale, sizeof scale, "%g", double(scaler.scale));
    text += row("loss scale", concat(std::string(scale), ", ", scaler.skips,
                                     " steps skipped"));
  }
  text +=
      row("ranks", std::to_string(stored.ranks)) +
      row("parameters", concat(tensors, " tensors, ", elements, " elements")) +
      row("buffers", std::to_string(stored.buffers.size())) +
      (stored.base.empty() ? "" : row("base", stored.base)) +
      row("size", sizeLine(folder, stored)) + "settings\n";
  for (auto &[name, value] : stored.settings)
    text += "    " + printable(name) + ": " + printable(value) + "\n";
  for (const StoredLayout &layout : stored.layouts) {
    text += "layout '" + printable(layout.name) + "', ";
    if (layout.leftOut)
      text += "left to the base";
    else
      text +=
          concat(layout.shard, " elements ",
                 layout.owner == noOwner ? "per rank"
                                         : concat("on rank ", layout.owner));
    if (layout.states > 0)
      text += ", with " + joined(stateNames(layout));
    if (layout.residual > 0)
      text += ", and every rank's residual";
    text += "\n";
    for (const Member &member : layout.members)
      text += tensorLine(member.name, layout.typeOf(member), member.shape,
                         member.aliases);
  }
  if (!stored.buffers.empty())
    text += "buffers\n";
  for (const Buffer &buffer : stored.buffers)
    text += tensorLine(buffer.name, buffer.dtype, buffer.shape, {});
  return text;
}

} // namespace

int inspect(const Arguments &arguments) {
  auto folder = findCheckpoint(arguments.input, arguments.step);
  if (!folder)
    return report(folder.error());
  auto stored = readCheckpointManifest(*folder);
  if (!stored)
    return report(stored.error());
  if (arguments.json)
    return printJson(dumpAscii(describe(*folder, *stored), 2) + "\n");
  return print(table(*folder, *stored));
}

} // namespace fsdpc::ckpt
