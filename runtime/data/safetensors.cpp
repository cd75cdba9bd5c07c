// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads and writes the headers of safetensors files. The reader is as strict as
// the format's own library: tensors fill the file without gaps or overlaps and
// fit their shapes, no size overflows, and no name stands twice. So later reads
// need no checks.
#include "runtime/data/safetensors.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/data/sample_file.h"
#include "runtime/support/concat.h"
#include "runtime/support/json_text.h"
#include "runtime/support/round_up.h"
#include "runtime/support/spelling.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>

namespace fsdpc::runtime {
namespace {

constexpr uint64_t mostHeaderBytes = 100000000; // as the format's library

// Translates a type's name in the file ("F32", "BOOL") to the manifest's
// ("f32", "i1"). Empty if the runtime does not know it.
std::string dtypeFromFile(std::string name) {
  if (name == "BOOL")
    return "i1";
  for (char &c : name)
    c = char(std::tolower(c));
  return name != "i1" && dtypeBytes(name) ? name : "";
}

// The inverse of dtypeFromFile.
std::string dtypeToFile(std::string name) {
  if (name == "i1")
    return "BOOL";
  for (char &c : name)
    c = char(std::toupper(c));
  return name;
}

// Types of the format that the runtime does not read. A checkpoint may hold
// such tensors beside those that the program takes.
bool isOtherType(const std::string &name) {
  static const std::set<std::string> others = {
      "F4", "F6_E2M3", "F6_E3M2", "F8_E4M3", "F8_E5M2", "F8_E8M0", "C64"};
  return others.count(name) > 0;
}

// A tensor lies in the header and its lists in the tensor; nothing in the
// format lies deeper.
constexpr int deepest = 2;

/// The key of the metadata that holds SafeTensors::base.
constexpr char baseKey[] = "fsdpc.base";

// Reads a number that must be a whole one of at least 0.
Result<uint64_t> wholeNumber(const std::string &name,
                             const nlohmann::json &number) {
  if (!number.is_number_unsigned())
    return inputError(
        "tensor '" + name + "' has " + dump(number) +
        " in its shape or place, which is not a whole number of at "
        "least 0");
  return number.get<uint64_t>();
}

// Parses one tensor of the header. Its offset counts from the data's begin.
// `dataBytes` is the size of everything after the header.
Result<SafeTensor> parseTensor(const std::string &name,
                               const nlohmann::json &value,
                               uint64_t dataBytes) {
  SafeTensor tensor;
  // at() and get() throw if a field is missing or of another type; `open`
  // catches it.
  std::string dtype = value.at("dtype").get<std::string>();
  tensor.dtype = dtypeFromFile(dtype);
  if (tensor.dtype.empty() && !isOtherType(dtype))
    return inputError("tensor '" + name + "' has the unknown type '" + dtype +
                      "'");
  const nlohmann::json &range = value.at("data_offsets");
  if (!range.is_array() || range.size() != 2)
    return inputError("tensor '" + name + "' does not have two data_offsets");
  Result<uint64_t> begin = wholeNumber(name, range[0]);
  FSDPC_TRY(begin);
  Result<uint64_t> end = wholeNumber(name, range[1]);
  FSDPC_TRY(end);
  if (*begin > *end || *end > dataBytes)
    return inputError("tensor '" + name + "' is outside the file");
  tensor.offset = *begin;
  tensor.bytes = *end - *begin;
  // A type that is not read is an error only if the program asks for the
  // tensor.
  if (tensor.dtype.empty())
    return tensor;
  uint64_t bytes = uint64_t(dtypeBytes(tensor.dtype));
  const nlohmann::json &shape = value.at("shape");
  if (!shape.is_array())
    return inputError("tensor '" + name + "' has a shape that is not a list");
  for (auto &extent : shape) {
    Result<uint64_t> size = wholeNumber(name, extent);
    FSDPC_TRY(size);
    if (*size > uint64_t(INT64_MAX) ||
        __builtin_mul_overflow(bytes, *size, &bytes))
      return inputError("tensor '" + name + "' has a shape that overflows");
    tensor.shape.push_back(int64_t(*size));
  }
  if (bytes != tensor.bytes)
    return inputError(concat("tensor '", name, "' of shape ",
                             shapeText(tensor.shape), " needs ", bytes,
                             " bytes but has ", tensor.bytes));
  return tensor;
}

Error noTensor(uint64_t begin, uint64_t end) {
  return inputError(
      concat("bytes ", begin, " to ", end, " belong to no tensor"));
}

} // namespace

Result<SafeTensors> SafeTensors::open(const std::string &path) {
  Result<File> source = File::open(path);
  FSDPC_TRY(source);
  uint64_t length = 0;
  // The length is little-endian, as this machine is. The first comparison keeps
  // the subtraction from wrapping around.
  if (source->size() >= 8)
    FSDPC_TRY(source->read(0, &length, 8));
  if (source->size() < 8 || length > source->size() - 8 ||
      length > mostHeaderBytes)
    return inputError("'" + path +
                      "' is not a safetensors file, or it is truncated");
  std::string header(length, '\0');
  FSDPC_TRY(source->read(8, header.data(), length));
  SafeTensors tensors;
  tensors.source = std::move(*source);
  Status parsed;
  try {
    parsed = tensors.parse(header, 8 + length);
  } catch (const std::exception &fault) {
    parsed = inputError(std::string("malformed header: ") + fault.what());
  }
  if (!parsed)
    return parsed.error().reworded(
        "'" + path + "' is invalid: " + printable(parsed.error().message));
  return tensors;
}

// Throws where the JSON is not of the format; `open` catches it.
Status SafeTensors::parse(const std::string &header, uint64_t dataOffset) {
  auto json = parseJson<nlohmann::json>(header, deepest);
  uint64_t dataBytes = source.size() - dataOffset;
  std::vector<const SafeTensor *> byOffset;
  for (auto &[name, value] : json.items()) {
    if (name == "__metadata__") {
      auto texts = value.get<std::map<std::string, std::string>>();
      if (auto aliases = texts.find("aliases"); aliases != texts.end())
        aliasOf = parseJson<nlohmann::json>(aliases->second, deepest)
                      .get<std::map<std::string, std::string>>();
      if (auto base = texts.find(baseKey); base != texts.end())
        baseHash = base->second;
      continue;
    }
    Result<SafeTensor> tensor = parseTensor(name, value, dataBytes);
    FSDPC_TRY(tensor);
    tensor->offset += dataOffset;
    byOffset.push_back(&(entries[name] = std::move(*tensor)));
  }
  // Tensors lie one after the other and fill the file.
  std::sort(byOffset.begin(), byOffset.end(), [](auto *a, auto *b) {
    // An empty tensor shares its offset with the next one and must come first.
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  uint64_t end = dataOffset;
  for (const SafeTensor *tensor : byOffset) {
    if (tensor->offset < end)
      return inputError(concat("two tensors overlap at byte ", tensor->offset));
    if (tensor->offset > end)
      return noTensor(end, tensor->offset);
    end += tensor->bytes;
  }
  if (end != source.size())
    return noTensor(end, source.size());
  return {};
}

const SafeTensor *
SafeTensors::find(const std::string &name,
                  const std::vector<std::string> &aliases) const {
  // By name, then by the aliases that `text` wrote for tied parameters.
  auto lookUp = [&](const std::string &wanted) -> const SafeTensor * {
    std::string key = storedName(wanted);
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

// An alias takes no bytes: it is a name in the metadata.
uint64_t SafeTensorsHeader::add(const std::string &name,
                                const std::string &dtype,
                                const std::vector<int64_t> &shape,
                                const std::vector<std::string> &aliases) {
  uint64_t bytes = uint64_t(dtypeBytes(dtype));
  for (int64_t extent : shape)
    bytes *= uint64_t(extent);
  uint64_t begin = end;
  end += bytes;
  entries.push_back({renaming(name), dtype, shape, begin, end});
  for (const std::string &alias : aliases)
    aliasOf[renaming(alias)] = renaming(name);
  return begin;
}

std::string SafeTensorsHeader::text() const {
  nlohmann::ordered_json json;
  // Readers of PyTorch checkpoints look for "pt".
  json["__metadata__"]["format"] = "pt";
  if (!aliasOf.empty())
    json["__metadata__"]["aliases"] = dump(nlohmann::json(aliasOf));
  if (!base.empty())
    json["__metadata__"][baseKey] = base;
  for (const Entry &entry : entries)
    json[entry.name] = {{"dtype", dtypeToFile(entry.dtype)},
                        {"shape", entry.shape},
                        {"data_offsets", {entry.begin, entry.end}}};
  // Names come from the model and may be invalid UTF-8, which is replaced.
  std::string header = dump(json);
  // Padded so that the data is aligned; readers ignore trailing spaces.
  header.resize(roundUp64(header.size() + 8) - 8, ' ');
  uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header;
}

} // namespace fsdpc::runtime
