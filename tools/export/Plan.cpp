// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Cuts the model's bytes into pieces: ranges of the model, which are copied as
// they are, short texts (tags and lengths, places of external data), and
// values. So unknown fields, the order of fields and the spelling of every
// number survive.
#include "tools/export/Plan.h"
#include "frontends/onnx/Wire.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/support/concat.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <utility>

using namespace fsdpc::frontend;
using llvm::StringRef;
using onnx::TensorProto;

namespace fsdpc::exporting {
namespace {

constexpr uint64_t kExternalBytes = 1024; // smaller tensors stay inline
constexpr uint64_t kExternalAlignment = 64;

// Field numbers of onnx.proto3: ModelProto.graph, GraphProto.initializer, and
// those of TensorProto.
enum Field : uint64_t {
  modelGraph = 7,
  graphInitializer = 5,
  tensorType = 2,
  tensorName = 8,
  rawData = 9,
  externalData = 13,
  dataLocation = 14
};

// Returns true for fields that hold a tensor's elements or say where they are.
bool isData(uint64_t field) {
  return (field >= 4 && field <= 7) || (field >= rawData && field <= 11) ||
         field == externalData || field == dataLocation;
}

// Protobuf's base-128 integer: seven bits per byte, lowest first, with the top
// bit set on all bytes but the last.
std::string varint(uint64_t value) {
  std::string text;
  for (; value > 127; value >>= 7)
    text += char(value | 128);
  return text + char(value);
}

// Each returns a field's bytes. The tag is the field number and a wire type: 2
// for length-delimited, 0 for a varint. prefix() is the tag and the length
// alone.
std::string prefix(uint64_t field, uint64_t length) {
  return varint(field << 3 | 2) + varint(length);
}
std::string textField(uint64_t field, StringRef text) {
  return prefix(field, text.size()) + text.str();
}
std::string numberField(uint64_t field, uint64_t number) {
  return varint(field << 3) + varint(number);
}

} // namespace

Plan::Plan(const ModelFile &model, Weights &weights, const Values &values,
           const Arguments &arguments)
    : model(model), weights(weights), values(values), arguments(arguments) {
  // The location of external data is a file name relative to the model's
  // folder.
  dataName = StringRef(arguments.output).rsplit('/').second.str();
  if (StringRef(arguments.output).find('/') == StringRef::npos)
    dataName = arguments.output;
  dataName += ".data";
}

void Plan::wrap(Pieces &to, uint64_t begin, ByteRange old, uint64_t field,
                Pieces message) const {
  if (message.size() == old.length)
    to.copy(begin, old.offset);
  else
    to.text(prefix(field, message.size()));
  to.append(std::move(message));
}

uint64_t Plan::bytesOf(const Value &value) const {
  uint64_t bytes = uint64_t(dtypeBytes(dtypeOf(value.onnxType)));
  for (int64_t extent : value.shape)
    bytes *= uint64_t(extent);
  return bytes;
}

// Returns the fields that say where the tensor is in the new file of data.
// Other entries than place and checksum are kept.
std::string Plan::placeInData(External entry, const TensorProto *old) {
  // Unsigned negation gives the bytes to the next multiple of a power of two.
  dataBytes += -dataBytes % kExternalAlignment;
  entry.offset = dataBytes;
  dataBytes += entry.bytes;
  std::string text;
  auto add = [&](StringRef key, StringRef value) {
    text += textField(externalData, textField(1, key) + textField(2, value));
  };
  add("location", dataName);
  add("offset", std::to_string(entry.offset));
  add("length", std::to_string(entry.bytes));
  if (old)
    for (const auto &kept : old->external_data())
      if (kept.key() != "location" && kept.key() != "offset" &&
          kept.key() != "length" && kept.key() != "checksum")
        add(kept.key(), kept.value());
  moved.push_back(std::move(entry));
  return text + numberField(dataLocation, TensorProto::EXTERNAL);
}

// The new data stand where the old ones began. Data may be in several fields
// (raw_data and a location, or a repeated field in pieces); the first is
// replaced and the rest dropped.
Result<Pieces> Plan::tensor(ByteRange range, int index) {
  const TensorProto &old = model.proto.graph().initializer(index);
  auto found = values.find(old.name());
  bool wasExternal = old.data_location() == TensorProto::EXTERNAL;
  Pieces pieces;
  const Value *value = found == values.end() ? nullptr : &found->second;
  uint64_t bytes = value ? bytesOf(*value) : 0;
  bool becomesExternal =
      wasExternal || (arguments.external && bytes >= kExternalBytes);
  if (!value && !wasExternal) {
    pieces.copy(range.offset, range.offset + range.length);
    return pieces;
  }
  External entry{value, "", 0, 0, bytes};
  if (!value) {
    auto source = weights.source(index);
    if (failed(source) || !*source)
      return inputError("tensor '" + old.name() + "' of '" + model.path +
                        "' cannot be read: " + weights.problem);
    entry.file = source->getFile().str();
    entry.from = source->getOffset();
    entry.bytes = source->getLength();
  }
  Wire wire{model.bytes.data(), range.offset, range.offset + range.length};
  ByteRange payload;
  uint64_t field = 0;
  bool isBytes = false, written = false;
  auto write = [&] {
    if (std::exchange(written, true))
      return;
    if (becomesExternal) {
      pieces.text(placeInData(entry, wasExternal ? &old : nullptr));
    } else {
      pieces.text(prefix(rawData, bytes));
      pieces.value(*value, bytes);
    }
  };
  for (uint64_t begin = wire.at; wire.next(field, payload, isBytes);
       begin = wire.at)
    if (isData(field))
      write();
    else
      pieces.copy(begin, wire.at);
  write();
  return pieces;
}

// The fields of a TensorProto but its data: dims, data_type and name.
std::string Plan::newTensor(const std::string &name, const Value &value) {
  std::string text;
  for (int64_t extent : value.shape)
    text += numberField(1, uint64_t(extent));
  return text + numberField(tensorType, uint64_t(value.onnxType)) +
         textField(tensorName, name);
}

// Rewrites the graph's initializers and copies everything else. `isLast` marks
// the last piece of a graph that is stored in several.
Result<Pieces> Plan::graph(ByteRange range, bool isLast) {
  Wire wire{model.bytes.data(), range.offset, range.offset + range.length};
  Pieces pieces;
  ByteRange payload;
  uint64_t field = 0;
  bool isBytes = false;
  for (uint64_t begin = wire.at; wire.next(field, payload, isBytes);
       begin = wire.at) {
    if (field != graphInitializer || !isBytes) {
      pieces.copy(begin, wire.at);
      continue;
    }
    Result<Pieces> inner = tensor(payload, initializers++);
    FSDPC_TRY(inner);
    wrap(pieces, begin, payload, graphInitializer, *std::move(inner));
  }
  // Models that were exported without weights get initializers for their
  // inputs.
  for (auto &[name, value] : values) {
    if (!isLast || !value.isInput)
      continue;
    Pieces added;
    uint64_t bytes = bytesOf(value);
    std::string head = newTensor(name, value);
    if (arguments.external && bytes >= kExternalBytes) {
      added.text(head + placeInData({&value, "", 0, 0, bytes}, nullptr));
    } else {
      added.text(head + prefix(rawData, bytes));
      added.value(value, bytes);
    }
    pieces.text(prefix(graphInitializer, added.size()));
    pieces.append(std::move(added));
  }
  return pieces;
}

// Constants of nodes stay where they are, so their files must not be external.
static bool holdsExternal(const onnx::GraphProto &graph) {
  auto isExternal = [](const TensorProto &tensor) {
    return tensor.data_location() == TensorProto::EXTERNAL;
  };
  for (const auto &node : graph.node())
    for (const auto &attribute : node.attribute())
      if (isExternal(attribute.t()) ||
          llvm::any_of(attribute.tensors(), isExternal) ||
          llvm::any_of(attribute.g().initializer(), isExternal) ||
          holdsExternal(attribute.g()))
        return true;
  return false;
}

// A protobuf may hold the graph in several pieces, which its reader merges.
Status Plan::make() {
  if (holdsExternal(model.proto.graph()))
    return inputError(
        "'" + model.path +
        "' has nodes with external data, which only initializers may "
        "have here; export it with constants inline");
  ByteRange payload;
  uint64_t field = 0;
  bool isBytes = false;
  int graphs = 0, seen = 0;
  for (Wire wire{model.bytes.data(), 0, model.bytes.size()};
       wire.next(field, payload, isBytes);)
    graphs += field == modelGraph && isBytes;
  Wire wire{model.bytes.data(), 0, model.bytes.size()};
  for (uint64_t begin = 0; wire.next(field, payload, isBytes);
       begin = wire.at) {
    if (field != modelGraph || !isBytes) {
      output.copy(begin, wire.at);
      continue;
    }
    Result<Pieces> inner = graph(payload, ++seen == graphs);
    FSDPC_TRY(inner);
    wrap(output, begin, payload, modelGraph, *std::move(inner));
  }
  if (output.size() > uint64_t(INT32_MAX))
    return inputError(concat("'", arguments.output, "' would have ",
                             output.size(),
                             " bytes, more than protobuf's limit of 2 GiB; add "
                             "--external-data"));
  return {};
}

} // namespace fsdpc::exporting
