// Reads just those fields of the FlatBuffer that an import needs, each by its
// position in the file, so that no value is read. The schema is onnxruntime's
// ort_training_checkpoint.fbs with the table Tensor of ort.fbs, of version 1.
//
// In a FlatBuffer, a table begins with the distance back to its vtable, which
// has the place of each field in the table, or 0. Strings, vectors and tables
// are referred to by the distance forward to them.
#include "frontends/onnx/RuntimeCheckpoint.h"

#include "frontends/onnx/Budgets.h"

#include <algorithm>
#include <cstring>

using namespace fsdpc;
using namespace fsdpc::frontend;

namespace {

// Numbers of fields in their tables.
enum CheckpointField { version, moduleState, optimizerGroups };
enum ModuleField { trainedTensors, frozenTensors, isNominal, hasExternal };
enum TensorField {
  tensorName,
  docString,
  dims,
  dataType,
  rawData,
  strings,
  externalOffset
};

constexpr uint32_t mostTensors = 1 << 20, longestName = 1 << 16;

// The bytes that each tensor takes beside the name's characters: the reference
// to it, those to its vtable and name, and the name's length.
constexpr uint64_t leastTensor = 16;

// A position outside of the file reads as zeros, and is remembered.
class FlatBuffer {
public:
  explicit FlatBuffer(const InputFile &file) : file(file) {}

  bool isDamaged = false;

  template <typename T> T number(uint64_t at) {
    T value{};
    read(at, &value, sizeof(T));
    return value;
  }
  void read(uint64_t at, void *to, uint64_t count) {
    if (isDamaged || at > file.size() || count > file.size() - at ||
        !file.read(at, to, count))
      isDamaged = true;
  }
  // Returns the place of what an offset at `at` refers to.
  uint64_t follow(uint64_t at) { return at + number<uint32_t>(at); }
  // Returns the place of a field, or 0 if the table does not have it.
  uint64_t field(uint64_t table, int index) {
    uint64_t vtable = table - uint64_t(int64_t(number<int32_t>(table)));
    uint16_t bytes = number<uint16_t>(vtable), entry = 4 + 2 * index;
    uint16_t place = entry + 2 <= bytes ? number<uint16_t>(vtable + entry) : 0;
    return place && !isDamaged ? table + place : 0;
  }
  template <typename T> T value(uint64_t table, int index, T absent) {
    uint64_t at = field(table, index);
    return at ? number<T>(at) : absent;
  }
  // Returns the place of a vector's first element and their number, which is 0
  // if there is no such vector or more than `most` elements.
  std::pair<uint64_t, uint32_t> vector(uint64_t table, int index,
                                       uint32_t most) {
    uint64_t at = field(table, index);
    if (!at)
      return {0, 0};
    at = follow(at);
    uint32_t count = number<uint32_t>(at);
    isDamaged |= count > most;
    return {at + 4, isDamaged ? 0 : count};
  }

private:
  const InputFile &file;
};

} // namespace

static onnx::TensorProto readTensor(FlatBuffer &buffer, uint64_t table,
                                    const std::string &file, bool isExternal) {
  onnx::TensorProto tensor;
  auto [name, length] = buffer.vector(table, tensorName, longestName);
  tensor.mutable_name()->resize(length);
  buffer.read(name, tensor.mutable_name()->data(), length);
  auto [sizes, rank] = buffer.vector(table, dims, kHighestRank);
  for (uint32_t i = 0; i < rank; ++i)
    tensor.add_dims(buffer.number<int64_t>(sizes + 8 * i));
  tensor.set_data_type(buffer.value<int32_t>(table, dataType, 0));
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  auto add = [&](const char *key, const std::string &value) {
    onnx::StringStringEntryProto &entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  };
  if (isExternal) {
    int64_t offset = buffer.value<int64_t>(table, externalOffset, -1);
    buffer.isDamaged |= offset < 0;
    add("location", file + ".data");
    add("offset", std::to_string(offset));
  } else {
    auto [bytes, count] = buffer.vector(table, rawData, UINT32_MAX);
    add("location", file);
    add("offset", std::to_string(bytes));
    add("length", std::to_string(count));
  }
  return tensor;
}

Result<RuntimeCheckpoint>
frontend::readRuntimeCheckpoint(const std::string &folder,
                                const std::string &name) {
  Result<InputFile> file = InputFile::openBelow(folder, name);
  if (!file)
    return file.error();
  FlatBuffer buffer(*file);
  char identifier[4] = {};
  buffer.read(4, identifier, 4);
  if (std::memcmp(identifier, "ODTC", 4) != 0)
    return Error{"'" + name +
                 "' is no checkpoint of "
                 "onnxruntime-training"};
  uint64_t root = buffer.follow(0);
  uint64_t state = buffer.field(root, moduleState);
  state = state ? buffer.follow(state) : 0;
  if (state && buffer.value<uint8_t>(state, isNominal, 0))
    return Error{"'" + name +
                 "' is a nominal checkpoint, which has "
                 "no values; give the complete one"};
  bool isExternal = state && buffer.value<uint8_t>(state, hasExternal, 0);
  RuntimeCheckpoint result;
  // Tensors share no bytes. Else a small file could refer to one long name a
  // million times.
  uint64_t rest = file->size();
  for (auto [index, tensors] : {std::pair(trainedTensors, &result.trained),
                                std::pair(frozenTensors, &result.frozen)}) {
    if (!state)
      break;
    auto [places, count] = buffer.vector(state, index, mostTensors);
    for (uint32_t i = 0; i < count && !buffer.isDamaged; ++i) {
      tensors->push_back(readTensor(
          buffer, buffer.follow(places + 4 * uint64_t(i)), name, isExternal));
      uint64_t bytes = leastTensor + tensors->back().name().size();
      buffer.isDamaged |= bytes > rest;
      rest -= std::min(bytes, rest);
    }
  }
  result.hasOptimizerState =
      buffer.vector(root, optimizerGroups, mostTensors).second > 0;
  if (buffer.isDamaged || !state)
    return Error{"'" + name + "' is damaged"};
  return result;
}
