// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads just those fields of the FlatBuffer that are needed, each by its
// position in the file, so that no value is read. The schema is onnxruntime's
// ort_training_checkpoint.fbs with the table Tensor of ort.fbs, of version 1.
//
// In a FlatBuffer, a table begins with the distance back to its vtable, which
// has the place of each field in the table, or 0. Strings, vectors and tables
// are referred to by the distance forward to them.
#include "frontends/onnx/ort/ort_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fsdpc {
namespace {

// Numbers of fields in their tables.
enum CheckpointField { version, moduleState, optimizerGroups };
enum ModuleField { trainedTensors, frozenTensors, isNominal };
enum TensorField {
  tensorName,
  docString,
  dims,
  dataType,
  rawData,
  strings,
  externalOffset
};
enum GroupField { groupName, groupStep, learningRate, groupStates };
enum StateField { parameterName, moments };

constexpr uint32_t mostTensors = 1 << 20, longestName = 1 << 16,
                   highestRank = 64;

// The bytes that a table with a name takes beside the name's characters: the
// reference to it, those to its vtable and name, and the name's length.
constexpr uint64_t leastTable = 16;

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

// Reads a checkpoint's tables. Tensors share no bytes: else a small file could
// refer to one long name a million times.
class Reader {
public:
  explicit Reader(const InputFile &file) : buffer(file), rest(file.size()) {}

  Result<OrtCheckpoint> read(const std::string &name);

private:
  std::string string(uint64_t table, int index);
  OrtTensor tensor(uint64_t table);
  std::vector<OrtTensor> tensors(uint64_t table, int index);
  void readStates(uint64_t group, OrtCheckpoint &to);
  // Calls `visit` with the place of each table of a vector.
  template <typename Visit>
  void forEach(uint64_t table, int index, Visit visit) {
    auto [places, count] = buffer.vector(table, index, mostTensors);
    for (uint32_t i = 0; i < count && !buffer.isDamaged; ++i)
      visit(buffer.follow(places + 4 * uint64_t(i)));
  }

  FlatBuffer buffer;
  uint64_t rest; // bytes of the file that no table has used
};

std::string Reader::string(uint64_t table, int index) {
  auto [at, length] = buffer.vector(table, index, longestName);
  uint64_t bytes = leastTable + length;
  buffer.isDamaged |= bytes > rest;
  rest -= std::min(bytes, rest);
  std::string text(buffer.isDamaged ? 0 : length, '\0');
  buffer.read(at, text.data(), text.size());
  return text;
}

// Values lie in the table, or the table says where in the file beside it.
OrtTensor Reader::tensor(uint64_t table) {
  OrtTensor result;
  result.name = string(table, tensorName);
  auto [sizes, rank] = buffer.vector(table, dims, highestRank);
  for (uint32_t i = 0; i < rank; ++i)
    result.shape.push_back(buffer.number<int64_t>(sizes + 8 * uint64_t(i)));
  result.type = buffer.value<int32_t>(table, dataType, 0);
  int64_t offset = buffer.value<int64_t>(table, externalOffset, -1);
  result.isExternal = offset >= 0;
  auto [bytes, count] = buffer.vector(table, rawData, UINT32_MAX);
  result.offset = result.isExternal ? uint64_t(offset) : bytes;
  result.bytes = result.isExternal ? 0 : count;
  return result;
}

std::vector<OrtTensor> Reader::tensors(uint64_t table, int index) {
  std::vector<OrtTensor> list;
  forEach(table, index, [&](uint64_t place) { list.push_back(tensor(place)); });
  return list;
}

// All parameters are in one group today.
void Reader::readStates(uint64_t group, OrtCheckpoint &to) {
  to.step = std::max(to.step, buffer.value<int64_t>(group, groupStep, 0));
  forEach(group, groupStates, [&](uint64_t state) {
    to.states.push_back(
        {string(state, parameterName), tensors(state, moments)});
  });
}

Result<OrtCheckpoint> Reader::read(const std::string &name) {
  char identifier[4] = {};
  buffer.read(4, identifier, 4);
  if (std::memcmp(identifier, "ODTC", 4) != 0)
    return inputError("'" + name +
                      "' is no checkpoint of onnxruntime-training");
  uint64_t root = buffer.follow(0);
  uint64_t state = buffer.field(root, moduleState);
  state = state ? buffer.follow(state) : 0;
  if (state && buffer.value<uint8_t>(state, isNominal, 0))
    return inputError(
        "'" + name +
        "' is a nominal checkpoint, which has no values; give the "
        "complete one");
  OrtCheckpoint result;
  if (state) {
    result.trained = tensors(state, trainedTensors);
    result.frozen = tensors(state, frozenTensors);
    forEach(root, optimizerGroups,
            [&](uint64_t group) { readStates(group, result); });
  }
  if (buffer.isDamaged || !state)
    return inputError("'" + name + "' is damaged");
  return result;
}

} // namespace

Result<OrtCheckpoint> readOrtCheckpoint(const std::string &folder,
                                        const std::string &name) {
  Result<InputFile> file = InputFile::openBelow(folder, name);
  if (!file)
    return file.error();
  return Reader(*file).read(name);
}

} // namespace fsdpc
