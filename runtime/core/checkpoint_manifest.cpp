// Writes, reads and compares manifests of checkpoints. The text comes from
// outside, so every number is checked before it is used. The manifest has a
// checksum of its own, because it is what the other checksums hang on.
#include "runtime/core/checkpoint_manifest.h"
#include "runtime/core/sample_file.h"
#include "runtime/core/spelling.h"
#include "shared/memory_plan.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <stdexcept>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fsdpc::runtime {
namespace {
using Json = nlohmann::ordered_json;

// Format 2 says of a layout how many ranks share it, if they are not all.
// Format 3 says which rank owns it, and of what type its parameters are, if not
// f32. The oldest format that can hold a checkpoint is written, so older
// programs read what they understand.
constexpr int64_t plainFormat = 1, groupFormat = 2, newestFormat = 3;
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

// Names come from the model and may be invalid UTF-8, which is replaced.
std::string dump(const Json &json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string checksum(const std::string &text) {
  return hexadecimal(XXH64(text.data(), text.size(), 0));
}

// The next functions throw, with what is wrong as the text: parseCheckpoint
// makes it an error.
const Json &fieldIn(const Json &json, const char *key) {
  auto found = json.is_object() ? json.find(key) : json.end();
  if (found == json.end())
    throw std::runtime_error(std::string("it has no '") + key + "'");
  return *found;
}

// Long values are cut, since a damaged manifest may hold anything.
[[noreturn]] void refuse(const char *key, const Json &value,
                         const std::string &wanted) {
  std::string text = dump(value);
  if (text.size() > 60)
    text = text.substr(0, 60) + "…";
  throw std::runtime_error(std::string("'") + key + "' is " + text + ", not " +
                           wanted);
}

std::string asText(const Json &value, const char *key) {
  if (!value.is_string())
    refuse(key, value, "a text");
  return value.get<std::string>();
}

std::string textIn(const Json &json, const char *key) {
  return asText(fieldIn(json, key), key);
}

const Json &listIn(const Json &json, const char *key) {
  const Json &value = fieldIn(json, key);
  if (!value.is_array())
    refuse(key, value, "a list");
  return value;
}

bool truthIn(const Json &json, const char *key, bool otherwise) {
  if (!json.contains(key))
    return otherwise;
  if (!json.at(key).is_boolean())
    refuse(key, json.at(key), "true or false");
  return json.at(key).get<bool>();
}

// Sixteen hexadecimal digits in small letters, as hexadecimal() prints them.
uint64_t checksumIn(const Json &value, const char *key) {
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  if (text.size() != 16 ||
      text.find_first_not_of("0123456789abcdef") != std::string::npos)
    refuse(key, value, "a checksum");
  return std::stoull(text, nullptr, 16);
}

// A negative number is not "unsigned" to the parser, so it is refused too.
int64_t numberIn(const Json &json, const char *key, int64_t most) {
  const Json &value = fieldIn(json, key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t(most))
    refuse(key, value, "a whole number from 0 to " + std::to_string(most));
  return value.get<int64_t>();
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

// `ranks` bounds the shard, so that shard times ranks cannot overflow.
StoredLayout parseLayout(const Json &json, int64_t ranks) {
  StoredLayout layout;
  layout.name = textIn(json, "name");
  layout.shard = numberIn(json, "shard", mostElements / ranks);
  layout.states = int32_t(numberIn(json, "states", mostStates));
  // Checkpoints written before there were averages do not have it.
  layout.average = truthIn(json, "average", false);
  // Nor the optimizer, which says whose the states are.
  if (json.contains("optimizer"))
    layout.optimizer = textIn(json, "optimizer");
  if (json.contains("dtype"))
    layout.dtype = textIn(json, "dtype");
  if (layout.dtype != "f32" && layout.dtype != "bf16")
    refuse("dtype", json.at("dtype"), "f32 or bf16");
  if (layout.ownStates() < 0)
    throw std::runtime_error("layout '" + layout.name +
                             "' has an average among no states");
  if (json.contains("group")) {
    layout.group = numberIn(json, "group", ranks);
    if (layout.group == 0 || ranks % layout.group)
      throw std::runtime_error("a shard group of " +
                               std::to_string(layout.group) +
                               " does not divide its ranks");
  }
  if (json.contains("owner"))
    layout.owner = int(numberIn(json, "owner", ranks - 1));
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
    if (member.offset + member.elements > layout.shard * shards)
      throw std::runtime_error("parameter '" + member.name +
                               "' is outside its layout");
    layout.members.push_back(std::move(member));
    // Most are trained from the first step on, and do not have it.
    layout.since.push_back(
        entry.contains("since") ? numberIn(entry, "since", INT64_MAX / 2) : 0);
  }
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
    stored.layouts.push_back(parseLayout(layout, stored.ranks));
  for (const Json &entry : listIn(json, "buffers")) {
    Buffer buffer;
    buffer.name = textIn(entry, "name");
    buffer.dtype = textIn(entry, "dtype");
    elementsOf(entry, buffer.shape);
    buffer.optimizerState = truthIn(entry, "optimizerState", false);
    stored.buffers.push_back(std::move(buffer));
  }
  for (const Json &entry : listIn(json, "files")) {
    StoredFile file;
    file.header = checksumIn(fieldIn(entry, "header"), "header");
    for (const Json &tensor : listIn(entry, "tensors"))
      file.tensors.push_back(checksumIn(tensor, "tensors"));
    stored.files.push_back(std::move(file));
  }
  if (int64_t(stored.files.size()) != stored.ranks)
    throw std::runtime_error("it has " + std::to_string(stored.files.size()) +
                             " files of " + std::to_string(stored.ranks) +
                             " ranks");
  return stored;
}

} // namespace

// The oldest format that says all of it.
static int64_t formatOf(const CheckpointManifest &stored) {
  int64_t format = plainFormat;
  for (const StoredLayout &layout : stored.layouts) {
    if (layout.group)
      format = std::max(format, groupFormat);
    if (layout.owner != noOwner || layout.dtype != "f32")
      format = newestFormat;
  }
  return format;
}

static std::string formatText(uint64_t version) {
  return "format " + std::to_string(version) +
         ", but this program reads formats " + std::to_string(plainFormat) +
         " to " + std::to_string(newestFormat);
}

int64_t StoredLayout::elementBytes() const {
  return dtypeBytes(dtype) + states * int64_t(sizeof(float));
}

// Names are stored as valid UTF-8, and compared in that form when a run
// resumes.
CheckpointManifest describeCheckpoint(const Manifest &manifest, int ranks,
                                      int groupRanks) {
  CheckpointManifest stored;
  stored.ranks = ranks;
  std::vector<int> owners = ownersOf(manifest, ranks);
  for (size_t i = 0; i < owners.size(); ++i) {
    const Layout &layout = manifest.layouts[i];
    StoredLayout copy;
    copy.name = storedName(layout.name);
    copy.owner = owners[i];
    copy.shard = shardElements(layout, copy.owner == noOwner ? ranks : 1,
                               manifest.shardAlignment);
    copy.group = layout.hybrid ? groupRanks : 0;
    copy.states = layout.trainable ? layout.states : 0;
    copy.average = layout.average;
    copy.optimizer = storedName(layout.optimizer);
    if (layout.noMaster)
      copy.dtype = manifest.computeDtypeOf(layout);
    for (const Member &member : layout.members) {
      Member place;
      place.name = storedName(member.name);
      place.shape = member.shape;
      place.offset = member.offset;
      place.elements = member.elements;
      for (const std::string &alias : member.aliases)
        place.aliases.push_back(storedName(alias));
      copy.members.push_back(std::move(place));
    }
    stored.layouts.push_back(std::move(copy));
  }
  for (const Buffer &buffer : manifest.buffers) {
    Buffer copy;
    copy.name = storedName(buffer.name);
    copy.dtype = buffer.dtype;
    copy.shape = buffer.shape;
    copy.optimizerState = buffer.optimizerState;
    stored.buffers.push_back(std::move(copy));
  }
  return stored;
}

// The inverse of LayoutCut::ownOf: shard s is part s mod groups of the shard of
// rank s / groups in a group.
int64_t rankOfShard(const CheckpointManifest &stored,
                    const StoredLayout &layout, int64_t shard) {
  if (layout.owner != noOwner)
    return layout.owner;
  int64_t group = layout.group ? layout.group : stored.ranks;
  int64_t groups = stored.ranks / group;
  return shard % groups * group + shard / groups;
}

// The index keeps the names apart if two layouts are called the same.
std::vector<StoredTensor> tensorsOf(const CheckpointManifest &stored,
                                    int rank) {
  std::vector<StoredTensor> tensors;
  for (size_t i = 0; i < stored.layouts.size(); ++i) {
    const StoredLayout &layout = stored.layouts[i];
    std::string prefix = std::to_string(i) + "." + layout.name + ".";
    int64_t shard = layout.shardOf(rank);
    tensors.push_back({prefix + "master", layout.dtype, {shard}});
    for (int32_t state = 0; state < layout.states; ++state)
      tensors.push_back(
          {prefix + "state" + std::to_string(state), "f32", {shard}});
  }
  if (rank == 0)
    for (const Buffer &buffer : stored.buffers)
      tensors.push_back({"buffer." + buffer.name, buffer.dtype, buffer.shape});
  return tensors;
}

// Through the serialiser itself, so that both directions replace the same
// bytes.
std::string storedName(const std::string &name) {
  return Json::parse(dump(Json(name))).get<std::string>();
}

std::vector<std::string> storedNames(const Member &member) {
  std::vector<std::string> names = {storedName(member.name)};
  for (const std::string &alias : member.aliases)
    names.push_back(storedName(alias));
  return names;
}

std::string rankFileName(int64_t rank) {
  char name[48];
  std::snprintf(name, sizeof name, "rank-%05lld.safetensors",
                static_cast<long long>(rank));
  return name;
}

// The checksum covers the text of "checkpoint"; the outer object only carries
// it.
std::string toJson(const CheckpointManifest &stored) {
  Json layouts = Json::array(), buffers = Json::array(), files = Json::array();
  for (const StoredLayout &layout : stored.layouts) {
    Json members = Json::array();
    for (size_t i = 0; i < layout.members.size(); ++i) {
      const Member &member = layout.members[i];
      members.push_back({{"name", member.name},
                         {"shape", member.shape},
                         {"dtype", layout.dtype},
                         {"offset", member.offset}});
      if (!member.aliases.empty())
        members.back()["aliases"] = member.aliases;
      if (int64_t since = layout.sinceOf(i))
        members.back()["since"] = since;
    }
    layouts.push_back({{"name", layout.name},
                       {"shard", layout.shard},
                       {"states", layout.states},
                       {"average", layout.average},
                       {"members", members}});
    if (!layout.optimizer.empty())
      layouts.back()["optimizer"] = layout.optimizer;
    if (layout.group)
      layouts.back()["group"] = layout.group;
    if (layout.owner != noOwner)
      layouts.back()["owner"] = layout.owner;
    if (layout.dtype != "f32")
      layouts.back()["dtype"] = layout.dtype;
  }
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
  return dump({{"format", formatOf(stored)},
               {"checksum", checksum(dump(body))},
               {"checkpoint", body}}) +
         "\n";
}

Result<CheckpointManifest> parseCheckpoint(const std::string &text) {
  if (text.empty())
    return Error{"it is empty"};
  try {
    Json json = Json::parse(text);
    int64_t version = numberIn(json, "format", INT64_MAX);
    if (version < plainFormat || version > newestFormat)
      return Error{"it has " + formatText(uint64_t(version))};
    const Json &body = fieldIn(json, "checkpoint");
    // The same content could be written otherwise, as with "1E5" for "1e5".
    // Only what toJson writes is accepted, so that no bit can change unnoticed.
    if (textIn(json, "checksum") != checksum(dump(body)) ||
        dump(json) + "\n" != text)
      return Error{"its checksum is wrong"};
    CheckpointManifest stored = parseBody(body);
    // No checksum covers the format, so a flipped bit there shows here.
    if (formatOf(stored) != version)
      return Error{"it has format " + std::to_string(version) +
                   ", but its content is of format " +
                   std::to_string(formatOf(stored))};
    return stored;
  } catch (const Json::parse_error &fault) {
    return Error{"it is not valid JSON from byte " +
                 std::to_string(fault.byte ? fault.byte - 1 : 0) + " on"};
  } catch (const std::exception &fault) {
    return Error{printable(fault.what())};
  }
}

// Needs no checksum: a later version may compute it in another way.
std::optional<std::string> laterFormat(const std::string &text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("format") ||
      !json["format"].is_number_unsigned())
    return {};
  uint64_t version = json["format"].get<uint64_t>();
  if (version <= uint64_t(newestFormat))
    return {};
  return formatText(version);
}

// Collects up to five differences, so that one line says what kind of model the
// checkpoint is of. Layouts are not compared: another strategy or number of
// units reads the same parameters.
Status checkSameModel(const CheckpointManifest &stored,
                      const Manifest &manifest) {
  std::vector<std::string> found;
  std::map<std::string, std::pair<const Member *, const StoredLayout *>> known;
  for (const StoredLayout &layout : stored.layouts)
    for (const Member &member : layout.members) {
      known[member.name] = {&member, &layout};
      for (const std::string &alias : member.aliases)
        known.try_emplace(alias, &member, &layout);
    }
  std::set<const Member *> taken;
  auto describe = [](const std::string &name,
                     const std::vector<int64_t> &shape) {
    return "'" + printable(name) + "' " + shapeText(shape);
  };
  for (const Layout &layout : manifest.layouts)
    for (const Member &member : layout.members) {
      // A tied parameter may be stored under any of its names, or under each.
      auto other = known.end();
      for (const std::string &name : storedNames(member)) {
        auto named = known.find(name);
        if (named == known.end())
          continue;
        taken.insert(named->second.first);
        if (other == known.end())
          other = named;
      }
      if (other == known.end()) {
        found.push_back("it has no " + describe(member.name, member.shape));
        continue;
      }
      const auto [place, home] = other->second;
      if (place->shape != member.shape)
        found.push_back("its " + describe(member.name, place->shape) + " is " +
                        shapeText(member.shape) + " here");
      // A parameter that was frozen has no states; they start at zero.
      else if (int32_t own = layout.states - int32_t(layout.average);
               layout.trainable && home->ownStates() != 0 &&
               home->ownStates() != own)
        found.push_back("its " + describe(member.name, place->shape) + " has " +
                        std::to_string(home->ownStates()) +
                        " optimizer states, but " + layout.optimizer + " has " +
                        std::to_string(own));
    }
  // Parameters of the checkpoint that the program lacks; aliases were taken
  // with their names.
  for (auto &[name, place] : known)
    if (taken.insert(place.first).second)
      found.push_back("the program has no " +
                      describe(name, place.first->shape));
  std::map<std::string, const Buffer *> buffers;
  for (const Buffer &buffer : stored.buffers)
    buffers[buffer.name] = &buffer;
  for (const Buffer &buffer : manifest.buffers) {
    auto other = buffers.find(storedName(buffer.name));
    // Like a state, it begins at zero if the optimizer is new.
    if (other == buffers.end() && buffer.optimizerState)
      continue;
    if (other == buffers.end() || other->second->dtype != buffer.dtype ||
        other->second->shape != buffer.shape)
      found.push_back("it has no buffer " +
                      describe(buffer.name, buffer.shape) + " of " +
                      buffer.dtype);
  }
  if (found.empty())
    return {};
  std::string text = found[0];
  for (size_t i = 1; i < found.size() && i < 5; ++i)
    text += "; " + found[i];
  if (found.size() > 5)
    text += "; and " + std::to_string(found.size() - 5) + " more";
  return Error{"it belongs to another model: " + text};
}

} // namespace fsdpc::runtime
