// Writes the model's bytes again, with the values of some tensors replaced. The
// file is cut into pieces: ranges of the model, which are copied as they are,
// short texts (tags and lengths, places of external data), and values, which
// are read from the weights when they are written. So unknown fields, the order
// of fields and the spelling of every number survive.
#include "tools/export/Export.h"

#include "frontends/onnx/Wire.h"
#include "runtime/core/new_file.h"
#include "runtime/core/output_paths.h"
#include "shared/memory_plan.h"
#include "tools/ckpt/commands.h"
#include "tools/export/Values.h"
#include "tools/fsdpc/Diagnostics.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <utility>

using namespace fsdpc::frontend;
using llvm::StringRef;
using onnx::TensorProto;

namespace fsdpc::exporting {
namespace {

constexpr uint64_t externalBytes = 1024; // smaller tensors stay inline
constexpr uint64_t externalAlignment = 64;

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

// A part of the output: a range of the model, `text`, or the values of a
// tensor. Exactly one of the three is set; `bytes` is its size in the output.
struct Piece {
  ByteRange range;
  std::string text;
  const Value *value = nullptr;
  uint64_t bytes = 0;
};

// The output as a list of pieces. Its size is known before any value is read,
// which lengths of enclosing messages need.
class Pieces {
public:
  void copy(uint64_t begin, uint64_t end) {
    if (begin < end)
      add({{begin, end - begin}, "", nullptr, end - begin});
  }
  void text(std::string bytes) {
    uint64_t count = bytes.size();
    add({{}, std::move(bytes), nullptr, count});
  }
  void value(const Value &value, uint64_t bytes) {
    add({{}, "", &value, bytes});
  }
  void append(Pieces other) {
    for (Piece &piece : other.list)
      add(std::move(piece));
  }
  uint64_t size() const { return bytes; }
  const std::vector<Piece> &pieces() const { return list; }

private:
  void add(Piece piece) {
    bytes += piece.bytes;
    list.push_back(std::move(piece));
  }
  std::vector<Piece> list;
  uint64_t bytes = 0;
};

// A tensor of the new file of external data: its new values, or a range of a
// file of the model's.
struct External {
  const Value *value = nullptr;
  std::string file;
  uint64_t from = 0, offset = 0, bytes = 0;
};

// Plans the output: the pieces of the model and the external data.
class Plan {
public:
  Plan(const ModelFile &model, Weights &weights, const Values &values,
       const Arguments &arguments)
      : model(model), weights(weights), values(values), arguments(arguments) {
    // The location of external data is a file name relative to the model's
    // folder.
    dataName = StringRef(arguments.output).rsplit('/').second.str();
    if (StringRef(arguments.output).find('/') == StringRef::npos)
      dataName = arguments.output;
    dataName += ".data";
  }

  Status make();
  const Pieces &pieces() const { return output; }
  const std::vector<External> &external() const { return moved; }
  std::string dataPath() const { return arguments.output + ".data"; }

private:
  // Both rewrite the message in `range` of the model. `index` counts the
  // initializers of the merged graph, in the order in which protobuf merges
  // them.
  Result<Pieces> graph(ByteRange range, bool isLast);
  Result<Pieces> tensor(ByteRange range, int index);
  std::string placeInData(External entry, const TensorProto *old);
  std::string newTensor(const std::string &name, const Value &value);
  // Adds a message with its tag and length. If the length is what it was, the
  // old prefix is copied, since it may be written in more bytes than needed.
  void wrap(Pieces &to, uint64_t begin, ByteRange old, uint64_t field,
            Pieces message) const {
    if (message.size() == old.length)
      to.copy(begin, old.offset);
    else
      to.text(prefix(field, message.size()));
    to.append(std::move(message));
  }
  uint64_t bytesOf(const Value &value) const {
    uint64_t bytes = uint64_t(dtypeBytes(dtypeOf(value.onnxType)));
    for (int64_t extent : value.shape)
      bytes *= uint64_t(extent);
    return bytes;
  }

  const ModelFile &model;
  Weights &weights;
  const Values &values;
  const Arguments &arguments;
  std::string dataName;
  std::vector<External> moved;
  uint64_t dataBytes = 0;
  int initializers = 0;
  Pieces output;
};

// Returns the fields that say where the tensor is in the new file of data.
// Other entries than place and checksum are kept.
std::string Plan::placeInData(External entry, const TensorProto *old) {
  // Unsigned negation gives the bytes to the next multiple of a power of two.
  dataBytes += -dataBytes % externalAlignment;
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
      wasExternal || (arguments.external && bytes >= externalBytes);
  if (!value && !wasExternal) {
    pieces.copy(range.offset, range.offset + range.length);
    return pieces;
  }
  External entry{value, "", 0, 0, bytes};
  if (!value) {
    auto source = weights.source(index);
    if (failed(source) || !*source)
      return Error{"tensor '" + old.name() + "' of '" + model.path +
                   "' cannot be read: " + weights.problem};
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
    if (arguments.external && bytes >= externalBytes) {
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
bool holdsExternal(const onnx::GraphProto &graph) {
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
    return Error{"'" + model.path +
                 "' has nodes with external data, which only initializers may "
                 "have here; export it with constants inline"};
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
    return Error{"'" + arguments.output + "' would have " +
                 std::to_string(output.size()) +
                 " bytes, more than protobuf's limit of 2 GiB; add "
                 "--external-data"};
  return {};
}

// Converts one tensor into a file, piece by piece.
Status writeValue(const ckpt::TensorSource &source, const Value &value,
                  uint64_t at, runtime::NewFile &file) {
  const std::string &from = source.tensors()[value.tensor].dtype;
  std::string to = dtypeOf(value.onnxType);
  uint64_t wide = uint64_t(dtypeBytes(from)), narrow = uint64_t(dtypeBytes(to));
  std::vector<char> converted;
  return ckpt::forEachPiece(
      source, value.tensor,
      [&](const char *piece, uint64_t offset, uint64_t bytes) {
        size_t count = size_t(bytes / wide);
        converted.resize(count * narrow);
        convertTo(piece, from, converted.data(), to, count);
        return file.write(at + offset / wide * narrow, converted.data(),
                          converted.size());
      });
}

// Writes all pieces in order. `at` counts bytes of the output.
Status writeModel(const ModelFile &model, const Plan &plan,
                  const ckpt::TensorSource &source, runtime::NewFile &file) {
  uint64_t at = 0;
  for (const Piece &piece : plan.pieces().pieces()) {
    if (piece.value)
      FSDPC_TRY(writeValue(source, *piece.value, at, file));
    else if (!piece.text.empty())
      FSDPC_TRY(file.write(at, piece.text.data(), piece.text.size()));
    else
      FSDPC_TRY(file.write(at, model.bytes.data() + piece.range.offset,
                           piece.range.length));
    at += piece.bytes;
  }
  return {};
}

// Writes the new file of external data; gaps of alignment stay zero.
Status writeData(const Plan &plan, const ckpt::TensorSource &source,
                 runtime::NewFile &file) {
  std::vector<char> piece(ckpt::pieceBytes);
  for (const External &entry : plan.external()) {
    if (entry.value) {
      FSDPC_TRY(writeValue(source, *entry.value, entry.offset, file));
      continue;
    }
    Result<InputFile> from = InputFile::open(entry.file);
    FSDPC_TRY(from);
    for (uint64_t done = 0; done < entry.bytes; done += piece.size()) {
      uint64_t now = std::min<uint64_t>(piece.size(), entry.bytes - done);
      FSDPC_TRY(from->read(entry.from + done, piece.data(), now));
      FSDPC_TRY(file.write(entry.offset + done, piece.data(), now));
    }
  }
  return {};
}

// The data get their name first: a model never names data that are not there.
Status writeOutput(const ModelFile &model, const Plan &plan,
                   const ckpt::TensorSource &source,
                   const Arguments &arguments) {
  std::vector<runtime::RunFile> inputs = {{"the model", model.path}},
                                outputs = {{"-o", arguments.output}};
  for (const std::string &path : source.files())
    inputs.push_back({"--weights", path});
  for (const External &entry : plan.external())
    if (!entry.file.empty())
      inputs.push_back({"the model's data", entry.file});
  bool hasData = !plan.external().empty();
  if (hasData)
    outputs.push_back({"the external data of -o", plan.dataPath()});
  FSDPC_TRY(runtime::checkDistinct(outputs, inputs));
  runtime::NewFile file, data;
  FSDPC_TRY(file.open(arguments.output));
  FSDPC_TRY(writeModel(model, plan, source, file));
  if (hasData) {
    FSDPC_TRY(data.open(plan.dataPath()));
    FSDPC_TRY(writeData(plan, source, data));
    FSDPC_TRY(data.commit());
  }
  return file.commit();
}

} // namespace

int run(const Arguments &arguments) {
  mlir::MLIRContext context;
  driver::DiagnosticPrinter diagnostics(&context, /*quiet=*/false);
  context.loadDialect<fsdp::FSDPDialect>();
  Budgets budgets;
  std::unique_ptr<ModelFile> model =
      ModelFile::read(arguments.model, budgets, &context);
  if (!model)
    return ckpt::inputFault;
  fsdp::CompileOptions options;
  auto training = Training::take(*model, /*withUpdate=*/false, &context);
  if (failed(training))
    return ckpt::inputFault;
  if (training->isOfRuntime)
    return ckpt::report(
        Error{"'" + arguments.model +
              "' is a training model of onnxruntime-training, which has no "
              "values; name the model from which it was generated"});
  Weights weights(*model, budgets, &context);
  Refusals refusals(model->path, &context);
  // The importer's own table names the tensors, as in a compile.
  ParameterTable parameters(*model, *training, weights, options, refusals,
                            &context);
  if (failed(weights.check()) || failed(parameters.build()) ||
      failed(refusals.report()))
    return ckpt::inputFault;
  auto source = ckpt::openTensors(arguments.weights, ckpt::Content::values);
  if (!source)
    return ckpt::report(source.error());
  auto values = matchValues(*model, parameters, **source, arguments);
  if (!values)
    return ckpt::report(values.error());
  Plan plan(*model, weights, *values, arguments);
  if (Status made = plan.make(); !made)
    return ckpt::report(made.error());
  Status written = writeOutput(*model, plan, **source, arguments);
  return written ? ckpt::done : ckpt::report(written.error(), ckpt::failed);
}

} // namespace fsdpc::exporting
