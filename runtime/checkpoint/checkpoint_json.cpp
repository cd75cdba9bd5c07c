// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The manifest of a checkpoint as text. The text comes from outside, so every
// number is checked before it is used. The manifest has a checksum of its own,
// because it is what the other checksums hang on.
#include "runtime/abi/compressions.h"
#include "runtime/abi/element_type.h"
#include "runtime/checkpoint/checkpoint_manifest.h"
#include "runtime/support/concat.h"
#include "runtime/support/json_fields.h"
#include "runtime/support/json_text.h"
#include "runtime/support/spelling.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <stdexcept>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fsdpc::runtime {
namespace {

// Format 2 says of a layout how many ranks share it, if they are not all.
// Format 3 says which rank owns it, and of what type its parameters are, if not
// f32. Format 4 has what reductions have not sent. Format 5 has layouts of
// bytes, and leaves frozen layouts out. The oldest format that can hold a
// checkpoint is written, so older programs read what they understand.
constexpr int64_t plainFormat = 1, groupFormat = 2, ownerFormat = 3,
                  residualFormat = 4, newestFormat = 5;
// A number of a shape lies deepest: in it, its buffer or parameter, their list,
// a layout, the list of layouts, the body and the whole.
constexpr int deepest = 8;
// Bounds of what is read, far above any run. They keep products of two of them
// within 64 bits.
constexpr int64_t mostRanks = 1 << 20;
constexpr int64_t mostElements = int64_t(1) << 48;

std::string hexadecimal(uint64_t number) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(number));
  return digits;
}

std::string checksum(const std::string &text) {
  return hexadecimal(XXH64(text.data(), text.size(), 0));
}

// Sixteen hexadecimal digits in small letters, as hexadecimal() prints them.
uint64_t checksumIn(const Json &value, const char *key) {
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  if (text.size() != 16 ||
      text.find_first_not_of("0123456789abcdef") != std::string::npos)
    refuse(key, value, "a checksum");
  return std::stoull(text, nullptr, 16);
}

// Returns the product of the extents, and throws if it is beyond any layout.
int64_t elementsOf(const Json &json, std::vector<int64_t> &shape) {
  int64_t elements = 1;
  for (const Json &extent : listIn(json, "shape")) {
    if (!extent.is_number_unsigned() ||
        extent.get<uint64_t>() > uint64_t(mostElements) ||
        __builtin_mul_overflow(elements, extent.get<int64_t>(), &elements) ||
        elements > mostElements)
      refuse("shape", json.at("shape"), "a shape");
    shape.push_back(extent.get<int64_t>());
  }
  return elements;
}

// Reads the sizes of what reductions have not sent, and the amount of a
// compression with states. The members and these bounds keep sizes of states
// within 64 bits.
void parseResidual(const Json &json, StoredLayout &layout) {
  if (!json.contains("residual"))
    return;
  layout.residual = numberIn(json, "residual", mostElements / 16);
  for (const Member &member : layout.members)
    if (member.offset + member.elements > layout.residual)
      refuse("residual", json.at("residual"), "as long as its layout");
  for (const CompressionInfo *info : compressions()) {
    if (!info->state || !json.contains(info->state->key))
      continue;
    const char *key = info->state->key;
    int64_t amount = numberIn(json, key, info->value.most), elements = 0;
    for (const Member &member : layout.members)
      if (elements += info->stateElements(amount, member.shape);
          elements > layout.residual)
        refuse(key, json.at(key), "the amount of its compression");
    if (amount > 0)
      layout.compression = {info->name, amount};
  }
}

// Parameters share no elements, or one would be read as part of the other.
void checkOverlaps(const StoredLayout &layout) {
  std::vector<const Member *> inOrder;
  for (const Member &member : layout.members)
    if (member.elements > 0)
      inOrder.push_back(&member);
  std::sort(
      inOrder.begin(), inOrder.end(),
      [](const Member *a, const Member *b) { return a->offset < b->offset; });
  for (size_t i = 1; i < inOrder.size(); ++i)
    if (inOrder[i]->offset < inOrder[i - 1]->offset + inOrder[i - 1]->elements)
      throw std::runtime_error("parameters '" + inOrder[i - 1]->name +
                               "' and '" + inOrder[i]->name +
                               "' share elements");
}

// A hash says which values are meant, and only where values are left out.
void parseBase(const Json &json, CheckpointManifest &stored) {
  bool leavesOut =
      std::any_of(stored.layouts.begin(), stored.layouts.end(),
                  [](const StoredLayout &layout) { return layout.leftOut; });
  if (leavesOut != json.contains("base"))
    throw std::runtime_error(leavesOut
                                 ? "it leaves parameters out, but has no base"
                                 : "it has a base, but leaves nothing out");
  if (leavesOut)
    stored.base = hexadecimal(checksumIn(json.at("base"), "base"));
}

// Two of a name would be one when they are looked up.
void checkNames(const CheckpointManifest &stored) {
  auto check = [](std::set<std::string> &names, const char *kind,
                  const std::string &name) {
    if (name.empty())
      throw std::runtime_error(std::string("it has a ") + kind +
                               " without a name");
    if (!names.insert(name).second)
      throw std::runtime_error(std::string("it has two ") + kind + "s '" +
                               name + "'");
  };
  std::set<std::string> parameters, buffers;
  for (const StoredLayout &layout : stored.layouts)
    for (const Member &member : layout.members)
      check(parameters, "parameter", member.name);
  for (const Buffer &buffer : stored.buffers)
    check(buffers, "buffer", buffer.name);
}

// `ranks` bounds the shard, so that shard times ranks cannot overflow, and
// `step` the first update of a parameter.
StoredLayout parseLayout(const Json &json, int64_t ranks, int64_t step) {
  StoredLayout layout;
  layout.name = textIn(json, "name");
  layout.shard = numberIn(json, "shard", mostElements / ranks);
  layout.states = int32_t(numberIn(json, "states", mostStates));
  // Checkpoints written before there were averages do not have it.
  layout.average = truthIn(json, "average", false);
  // Nor the optimizer, which says whose the states are, nor their names.
  if (json.contains("optimizer"))
    layout.optimizer = textIn(json, "optimizer");
  if (json.contains("dtype"))
    layout.dtype = textIn(json, "dtype");
  if (json.contains("stateNames"))
    for (const Json &name : listIn(json, "stateNames"))
      layout.stateNames.push_back(asText(name, "stateNames"));
  layout.factored = truthIn(json, "factored", false);
  if (layout.dtype != "f32" && layout.dtype != "bf16" && !layout.ofBytes())
    refuse("dtype", json.at("dtype"), "f32, bf16 or u8");
  if (layout.ofBytes() && (layout.states > 0 || json.contains("residual")))
    throw std::runtime_error("layout '" + layout.name +
                             "' is one of bytes, but has states");
  if (layout.ownStates() < 0)
    throw std::runtime_error("layout '" + layout.name +
                             "' has an average among no states");
  if (!layout.stateNames.empty() &&
      layout.stateNames.size() != size_t(layout.ownStates()))
    refuse("stateNames", json.at("stateNames"), "a name per state");
  if (json.contains("group")) {
    layout.group = numberIn(json, "group", ranks);
    if (layout.group == 0 || ranks % layout.group)
      throw std::runtime_error(concat("a shard group of ", layout.group,
                                      " does not divide its ranks"));
  }
  if (json.contains("owner"))
    layout.owner = int(numberIn(json, "owner", ranks - 1));
  layout.leftOut = truthIn(json, "leftOut", false);
  if (layout.leftOut && (layout.states > 0 || json.contains("residual")))
    throw std::runtime_error("layout '" + layout.name +
                             "' is left out, but has states");
  if (layout.group && layout.owner != noOwner)
    throw std::runtime_error("layout '" + layout.name +
                             "' has an owner and a shard group");
  int64_t shards = layout.owner == noOwner ? ranks : 1;
  for (const Json &entry : listIn(json, "members")) {
    Member member;
    member.name = textIn(entry, "name");
    member.offset = numberIn(entry, "offset", mostElements);
    member.elements = elementsOf(entry, member.shape);
    // The first checkpoints had no aliases.
    if (entry.contains("aliases"))
      for (const Json &alias : listIn(entry, "aliases"))
        member.aliases.push_back(asText(alias, "aliases"));
    // Nor positions; their members then stand in the order of layouts.
    if (entry.contains("position"))
      member.position = numberIn(entry, "position", mostElements);
    if (layout.ofBytes()) {
      // At most 2^48 elements of at most eight bytes.
      member.dtype = textIn(entry, "dtype");
      int64_t width = dtypeBytes(member.dtype);
      if (width == 0)
        refuse("dtype", entry.at("dtype"), "an element type");
      member.elements *= width;
    } else if (entry.contains("dtype") &&
               textIn(entry, "dtype") != layout.dtype) {
      refuse("dtype", entry.at("dtype"), "the type of its layout");
    }
    if (member.offset + member.elements > layout.shard * shards)
      throw std::runtime_error("parameter '" + member.name +
                               "' is outside its layout");
    layout.members.push_back(std::move(member));
    // Most are trained from the first step on, and do not have it.
    layout.since.push_back(
        entry.contains("since") ? numberIn(entry, "since", step) : 0);
  }
  checkOverlaps(layout);
  parseResidual(json, layout);
  return layout;
}

// The order of fields in the text does not matter here; parseCheckpoint has
// compared it already.
CheckpointManifest parseBody(const Json &json) {
  CheckpointManifest stored;
  const Json &state = fieldIn(json, "state");
  stored.state.step = numberIn(state, "step", INT64_MAX / 2);
  stored.state.sample = numberIn(state, "sample", INT64_MAX / 2);
  const Json &scaler = fieldIn(state, "scaler");
  const Json &number = fieldIn(scaler, "scale");
  float scale = number.is_number() ? number.get<float>() : 0;
  if (!(scale > 0 && std::isfinite(scale)))
    refuse("scale", number, "a loss scale");
  stored.state.scaler = {scale, numberIn(scaler, "inARow", INT64_MAX / 2),
                         numberIn(scaler, "skips", stored.state.step)};
  const Json &settings = fieldIn(json, "settings");
  for (auto &[name, value] : settings.items())
    stored.settings.emplace_back(name, textIn(settings, name.c_str()));
  stored.ranks = numberIn(json, "ranks", mostRanks);
  if (stored.ranks == 0)
    throw std::runtime_error("it has no ranks");
  for (const Json &layout : listIn(json, "layouts"))
    stored.layouts.push_back(
        parseLayout(layout, stored.ranks, stored.state.step));
  parseBase(json, stored);
  for (const Json &entry : listIn(json, "buffers")) {
    Buffer buffer;
    buffer.name = textIn(entry, "name");
    buffer.dtype = textIn(entry, "dtype");
    if (dtypeBytes(buffer.dtype) == 0)
      refuse("dtype", entry.at("dtype"), "an element type");
    elementsOf(entry, buffer.shape);
    buffer.optimizerState = truthIn(entry, "optimizerState", false);
    stored.buffers.push_back(std::move(buffer));
  }
  checkNames(stored);
  for (const Json &entry : listIn(json, "files")) {
    StoredFile file;
    file.header = checksumIn(fieldIn(entry, "header"), "header");
    for (const Json &tensor : listIn(entry, "tensors"))
      file.tensors.push_back(checksumIn(tensor, "tensors"));
    stored.files.push_back(std::move(file));
  }
  if (int64_t(stored.files.size()) != stored.ranks)
    throw std::runtime_error(concat("it has ", stored.files.size(),
                                    " files of ", stored.ranks, " ranks"));
  return stored;
}

// The oldest format that says all of it.
int64_t formatOf(const CheckpointManifest &stored) {
  int64_t format = plainFormat;
  for (const StoredLayout &layout : stored.layouts) {
    if (layout.group)
      format = std::max(format, groupFormat);
    if (layout.owner != noOwner || layout.dtype != "f32")
      format = std::max(format, ownerFormat);
    if (layout.residual > 0)
      format = std::max(format, residualFormat);
    if (layout.leftOut || layout.ofBytes())
      format = newestFormat;
  }
  return format;
}

std::string formatText(uint64_t version) {
  return concat("format ", version, ", but this program reads formats ",
                plainFormat, " to ", newestFormat);
}

// Returns a layout as an object, without the fields that are as in the oldest
// format.
Json layoutJson(const StoredLayout &layout) {
  Json members = Json::array();
  for (size_t i = 0; i < layout.members.size(); ++i) {
    const Member &member = layout.members[i];
    members.push_back({{"name", member.name},
                       {"shape", member.shape},
                       {"dtype", layout.typeOf(member)},
                       {"offset", member.offset}});
    if (!member.aliases.empty())
      members.back()["aliases"] = member.aliases;
    if (member.position)
      members.back()["position"] = member.position;
    if (int64_t since = layout.sinceOf(i))
      members.back()["since"] = since;
  }
  Json json = {{"name", layout.name},
               {"shard", layout.shard},
               {"states", layout.states},
               {"average", layout.average},
               {"members", members}};
  if (!layout.optimizer.empty())
    json["optimizer"] = layout.optimizer;
  if (!layout.stateNames.empty())
    json["stateNames"] = layout.stateNames;
  if (layout.factored)
    json["factored"] = true;
  if (layout.group)
    json["group"] = layout.group;
  if (layout.owner != noOwner)
    json["owner"] = layout.owner;
  if (layout.dtype != "f32")
    json["dtype"] = layout.dtype;
  if (layout.residual > 0)
    json["residual"] = layout.residual;
  if (layout.compression)
    json[infoOf(layout.compression).state->key] = layout.compression.amount;
  if (layout.leftOut)
    json["leftOut"] = true;
  return json;
}

} // namespace

// The checksum covers the text of "checkpoint"; the outer object only carries
// it.
std::string toJson(const CheckpointManifest &stored) {
  Json layouts = Json::array(), buffers = Json::array(), files = Json::array();
  for (const StoredLayout &layout : stored.layouts)
    layouts.push_back(layoutJson(layout));
  for (const Buffer &buffer : stored.buffers) {
    buffers.push_back({{"name", buffer.name},
                       {"shape", buffer.shape},
                       {"dtype", buffer.dtype}});
    if (buffer.optimizerState)
      buffers.back()["optimizerState"] = true;
  }
  for (const StoredFile &file : stored.files) {
    Json tensors = Json::array();
    for (uint64_t hash : file.tensors)
      tensors.push_back(hexadecimal(hash));
    files.push_back(
        {{"header", hexadecimal(file.header)}, {"tensors", tensors}});
  }
  Json settings = Json::object();
  for (auto &[name, value] : stored.settings)
    settings[name] = value;
  const LossScaler::State &scaler = stored.state.scaler;
  Json body = {{"state",
                {{"step", stored.state.step},
                 {"sample", stored.state.sample},
                 {"scaler",
                  {{"scale", scaler.scale},
                   {"inARow", scaler.inARow},
                   {"skips", scaler.skips}}}}},
               {"settings", settings},
               {"ranks", stored.ranks},
               {"layouts", layouts},
               {"buffers", buffers},
               {"files", files}};
  if (!stored.base.empty())
    body["base"] = stored.base;
  return dump(Json{{"format", formatOf(stored)},
                   {"checksum", checksum(dump(body))},
                   {"checkpoint", body}}) +
         "\n";
}

Result<CheckpointManifest> parseCheckpoint(const std::string &text) {
  if (text.empty())
    return inputError("it is empty");
  try {
    Json json = parseJson(text, deepest);
    int64_t version = numberIn(json, "format", INT64_MAX);
    if (version < plainFormat || version > newestFormat)
      return inputError("it has " + formatText(uint64_t(version)));
    const Json &body = fieldIn(json, "checkpoint");
    // The same content could be written otherwise, as with "1E5" for "1e5".
    // Only what toJson writes is accepted, so that no bit can change unnoticed.
    if (textIn(json, "checksum") != checksum(dump(body)) ||
        dump(json) + "\n" != text)
      return inputError("its checksum is wrong");
    CheckpointManifest stored = parseBody(body);
    // No checksum covers the format, so a flipped bit there shows here.
    if (formatOf(stored) != version)
      return inputError(concat("it has format ", version,
                               ", but its content is of format ",
                               formatOf(stored)));
    return stored;
  } catch (const Json::parse_error &fault) {
    return inputError(concat("it is not valid JSON from byte ",
                             fault.byte ? fault.byte - 1 : 0, " on"));
  } catch (const std::exception &fault) {
    return inputError(printable(fault.what()));
  }
}

// Needs no checksum: a later version may compute it in another way.
std::optional<std::string> laterFormat(const std::string &text) {
  Json json = parseJsonOrNull(text, deepest);
  if (!json.is_object() || !json.contains("format") ||
      !json["format"].is_number_unsigned())
    return {};
  uint64_t version = json["format"].get<uint64_t>();
  if (version <= uint64_t(newestFormat))
    return {};
  return formatText(version);
}

} // namespace fsdpc::runtime
