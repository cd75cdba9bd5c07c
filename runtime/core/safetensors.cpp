// Reads and writes the headers of safetensors files. The reader checks that
// ranges lie in the file, do not overlap and fit their shapes, and that no size
// overflows, so that later reads need no checks.
#include "runtime/core/safetensors.h"
#include "runtime/core/sample_file.h"
#include "shared/memory_plan.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

namespace fsdpc::runtime {
namespace {

constexpr uint64_t mostHeaderBytes = 100 << 20;

// Translates a type's name in the file ("F32", "BOOL") to the manifest's
// ("f32", "i1"). Empty if the runtime does not know it.
std::string dtypeFromFile(std::string name) {
  if (name == "BOOL")
    return "i1";
  for (char &c : name)
    c = char(std::tolower(c));
  return name != "i1" && dtypeBytes(name) ? name : "";
}

std::string dtypeToFile(std::string name) {
  if (name == "i1")
    return "BOOL";
  for (char &c : name)
    c = char(std::toupper(c));
  return name;
}

} // namespace

Result<SafeTensors> SafeTensors::open(const std::string &path) {
  Result<File> source = File::open(path);
  FSDPC_TRY(source);
  uint64_t length = 0;
  if (source->size() < 8 || !source->read(0, &length, 8) ||
      length > source->size() - 8 || length > mostHeaderBytes)
    return Error{"'" + path +
                 "' is not a safetensors file, or it is truncated"};
  std::string header(length, '\0');
  FSDPC_TRY(source->read(8, header.data(), length));
  SafeTensors tensors;
  tensors.source = std::move(*source);
  Status parsed;
  try {
    parsed = tensors.parse(header, 8 + length);
  } catch (const nlohmann::json::exception &fault) {
    parsed = Error{std::string("its header is malformed: ") + fault.what()};
  }
  if (!parsed)
    return Error{"'" + path + "' cannot be used: " + parsed.error().message};
  return tensors;
}

Status SafeTensors::parse(const std::string &header, uint64_t dataOffset) {
  auto json = nlohmann::json::parse(header);
  uint64_t dataBytes = source.size() - dataOffset;
  std::vector<const SafeTensor *> byOffset;
  for (auto &[name, value] : json.items()) {
    if (name == "__metadata__") {
      auto aliases = value.find("aliases");
      if (aliases != value.end())
        aliasOf = nlohmann::json::parse(aliases->get<std::string>())
                      .get<std::map<std::string, std::string>>();
      continue;
    }
    SafeTensor tensor;
    std::string dtype = value.at("dtype").get<std::string>();
    tensor.dtype = dtypeFromFile(dtype);
    auto range = value.at("data_offsets").get<std::vector<uint64_t>>();
    if (range.size() != 2 || range[0] > range[1] || range[1] > dataBytes)
      return Error{"tensor '" + name + "' does not lie within the file"};
    tensor.offset = dataOffset + range[0];
    tensor.bytes = range[1] - range[0];
    // An unknown type is an error only if the program asks for the tensor.
    if (!tensor.dtype.empty()) {
      uint64_t bytes = uint64_t(dtypeBytes(tensor.dtype));
      for (auto &extent : value.at("shape")) {
        uint64_t size = extent.get<uint64_t>();
        if (!extent.is_number_unsigned() || size > uint64_t(INT64_MAX) ||
            __builtin_mul_overflow(bytes, size, &bytes))
          return Error{"tensor '" + name + "' has a shape that overflows"};
        tensor.shape.push_back(int64_t(size));
      }
      if (bytes != tensor.bytes)
        return Error{"tensor '" + name + "' of shape " +
                     shapeText(tensor.shape) + " needs " +
                     std::to_string(bytes) + " bytes but has " +
                     std::to_string(tensor.bytes)};
    }
    byOffset.push_back(&(entries[name] = tensor));
  }
  // Overlapping tensors are never written by a correct program.
  std::sort(byOffset.begin(), byOffset.end(),
            [](auto *a, auto *b) { return a->offset < b->offset; });
  for (size_t i = 1; i < byOffset.size(); ++i)
    if (byOffset[i]->offset < byOffset[i - 1]->offset + byOffset[i - 1]->bytes)
      return Error{"two tensors overlap at byte " +
                   std::to_string(byOffset[i]->offset)};
  return {};
}

const SafeTensor *
SafeTensors::find(const std::string &name,
                  const std::vector<std::string> &aliases) const {
  auto lookUp = [&](const std::string &key) -> const SafeTensor * {
    auto entry = entries.find(key);
    if (entry != entries.end())
      return &entry->second;
    auto alias = aliasOf.find(key);
    if (alias == aliasOf.end())
      return nullptr;
    entry = entries.find(alias->second);
    return entry == entries.end() ? nullptr : &entry->second;
  };
  const SafeTensor *found = lookUp(name);
  for (size_t i = 0; !found && i < aliases.size(); ++i)
    found = lookUp(aliases[i]);
  return found;
}

uint64_t SafeTensorsHeader::add(const std::string &name,
                                const std::string &dtype,
                                const std::vector<int64_t> &shape,
                                const std::vector<std::string> &aliases) {
  uint64_t bytes = uint64_t(dtypeBytes(dtype));
  for (int64_t extent : shape)
    bytes *= uint64_t(extent);
  uint64_t begin = end;
  end += bytes;
  entries.push_back({name, dtype, shape, begin, end});
  for (const std::string &alias : aliases)
    aliasOf[alias] = name;
  return begin;
}

std::string SafeTensorsHeader::text() const {
  nlohmann::ordered_json json;
  // Readers of PyTorch checkpoints look for "pt".
  json["__metadata__"]["format"] = "pt";
  if (!aliasOf.empty())
    json["__metadata__"]["aliases"] = nlohmann::json(aliasOf).dump();
  for (const Entry &entry : entries)
    json[entry.name] = {{"dtype", dtypeToFile(entry.dtype)},
                        {"shape", entry.shape},
                        {"data_offsets", {entry.begin, entry.end}}};
  std::string header =
      json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  // Padded so that the data is aligned; readers ignore trailing spaces.
  header.resize((header.size() + 8 + 63) / 64 * 64 - 8, ' ');
  uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header;
}

} // namespace fsdpc::runtime
