// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses the protobuf, then reads its wire format a second time to find where
// inline weights lie. A training program reads weights from the model's file
// when it starts, so the compiler records their offsets instead of copying
// them, and protobuf's own parser does not tell offsets. Before all that, a
// walk over the wire format adds up what the parser would allocate.
#include "frontends/onnx/ModelFile.h"
#include "frontends/onnx/Wire.h"

#include "mlir/IR/Diagnostics.h"

#include <google/protobuf/stubs/logging.h>

using namespace mlir;
using namespace fsdpc::frontend;

// Returns the bytes of raw_data, or of a packed list of floats or doubles,
// whose bytes are the elements on a little-endian machine. Returns an empty
// range if they are in several pieces.
static ByteRange elementsOf(const char *base, ByteRange tensor) {
  enum { floatData = 4, rawData = 9, doubleData = 10 };
  Wire wire{base, tensor.offset, tensor.offset + tensor.length};
  ByteRange found, payload;
  uint64_t field;
  bool isBytes;
  int pieces = 0;
  while (wire.next(field, payload, isBytes))
    if (field == rawData || field == floatData || field == doubleData) {
      found = isBytes ? payload : ByteRange();
      ++pieces;
    }
  return pieces == 1 ? found : ByteRange();
}

// Fills `initializers` in the order of the graph. A protobuf may hold the graph
// in several pieces, which the parser merges; this walk sees them in the same
// order.
static void findInitializers(ModelFile &model) {
  enum { modelGraph = 7, graphInitializer = 5 };
  const char *base = model.bytes.data();
  Wire file{base, 0, model.bytes.size()};
  uint64_t field;
  ByteRange payload, tensor;
  bool isBytes;
  while (file.next(field, payload, isBytes)) {
    if (field != modelGraph || !isBytes)
      continue;
    Wire graph{base, payload.offset, payload.offset + payload.length};
    while (graph.next(field, tensor, isBytes))
      if (field == graphInitializer && isBytes)
        model.initializers.push_back(elementsOf(base, tensor));
  }
  // If the two readings differ, the values are embedded in the program instead.
  model.initializers.resize(model.proto.graph().initializer_size());
}

// ---- what the parser will allocate ----

namespace {
enum class Measured { fits, malformed, tooLarge };

// A message of onnx-ml.proto with its length-delimited fields. Fields of rare
// messages are absent.
struct Message {
  enum Kind {
    model,
    graph,
    node,
    attribute,
    tensor,
    valueInfo,
    type,
    tensorType,
    shape,
    dimension,
    function,
    opset,
    entry,
    training
  };
  llvm::SmallVector<uint64_t> strings, numbers;
  llvm::SmallVector<std::pair<uint64_t, Kind>> messages;
};
} // namespace

// Field numbers are those of onnx-ml.proto: strings and bytes, lists of numbers
// that may be packed, and messages.
static const Message &messageOf(Message::Kind kind) {
  using M = Message;
  // The messages are in the order of Kind.
  static const Message all[] = {
      {{2, 3, 4, 6},
       {},
       {{7, M::graph},
        {8, M::opset},
        {14, M::entry},
        {20, M::training},
        {25, M::function}}},
      {{2, 10},
       {},
       {{1, M::node},
        {5, M::tensor},
        {11, M::valueInfo},
        {12, M::valueInfo},
        {13, M::valueInfo},
        {16, M::entry}}},
      {{1, 2, 3, 4, 6, 7, 8}, {}, {{5, M::attribute}, {9, M::entry}}},
      {{1, 4, 9, 13, 21},
       {7, 8},
       {{5, M::tensor},
        {6, M::graph},
        {10, M::tensor},
        {11, M::graph},
        {14, M::type},
        {15, M::type}}},
      {{6, 8, 9, 12}, {1, 4, 5, 7, 10, 11}, {{13, M::entry}, {16, M::entry}}},
      {{1, 3}, {}, {{2, M::type}, {4, M::entry}}},
      {{6}, {}, {{1, M::tensorType}}},
      {{}, {}, {{2, M::shape}}},
      {{}, {}, {{1, M::dimension}}},
      {{2, 3}, {}, {}},
      {{1, 4, 5, 6, 8, 10, 13},
       {},
       {{7, M::node},
        {9, M::opset},
        {11, M::attribute},
        {12, M::valueInfo},
        {14, M::entry}}},
      {{1}, {}, {}},
      {{1, 2}, {}, {}},
      {{}, {}, {{1, M::graph}, {2, M::graph}, {3, M::entry}, {4, M::entry}}},
  };
  return all[kind];
}

// Adds what the parser allocates for the fields of a message, except for the
// bytes of strings.
static Measured measure(Wire wire, Message::Kind kind, Budgets &budgets,
                        int depth = 0) {
  // A message, a string and a number in a list of protobuf 3.21, rounded up.
  constexpr int64_t messageBytes = 256, stringBytes = 64, numberBytes = 8;
  constexpr int deepest = 100; // the parser's own limit
  const Message &message = messageOf(kind);
  ByteRange payload;
  uint64_t field;
  bool isBytes;
  // Unknown fields count as well: the parser keeps them.
  while (wire.at < wire.end) {
    if (depth > deepest || !wire.next(field, payload, isBytes))
      return Measured::malformed;
    const auto *inner = llvm::find_if(message.messages, [&](const auto &known) {
      return known.first == field;
    });
    // A field of a known number with another wire type becomes an unknown
    // field.
    bool isMessage = isBytes && inner != message.messages.end();
    int64_t bytes = stringBytes, length = isBytes ? payload.length : 0;
    if (isMessage)
      bytes = messageBytes;
    else if (llvm::is_contained(message.numbers, field))
      // A packed number takes at least one byte, so `length` bounds how many
      // there are.
      bytes = numberBytes * std::max<int64_t>(1, length);
    else if (isBytes && !llvm::is_contained(message.strings, field))
      // It may consist of empty messages, of 2 bytes each.
      bytes = messageBytes / 2 * (length + 1);
    if (!budgets.spend(Cost::parsedBytes, bytes))
      return Measured::tooLarge;
    if (!isMessage)
      continue;
    Measured found =
        measure({wire.base, payload.offset, payload.offset + payload.length},
                inner->second, budgets, depth + 1);
    if (found != Measured::fits)
      return found;
  }
  return Measured::fits;
}

// The IR version says how to read the file, the opset what the ops mean.
static LogicalResult checkVersions(const ModelFile &model, Location loc) {
  // Handlers are registered for these opsets only. A newer opset may change an
  // op without changing its name.
  constexpr int64_t oldest = 7, newest = 27, oldestIR = 3;
  int64_t ir = model.proto.ir_version(), opset = model.opset("");
  if (ir < oldestIR || ir > onnx::IR_VERSION)
    return emitError(loc)
           << "IR version '" << ir << "' of '" << model.path
           << "' is not supported; export with an IR version from " << oldestIR
           << " to " << int64_t(onnx::IR_VERSION);
  if (opset < oldest || opset > newest)
    return emitError(loc)
           << "opset version '" << opset << "' of '" << model.path
           << "' is not supported; export with torch.onnx.export(..., "
              "opset_version=N), N from "
           << oldest << " to " << newest;
  return success();
}

// Everything that is checked here is checked before memory in proportion to it
// is allocated.
std::unique_ptr<ModelFile> ModelFile::read(StringRef path, Budgets &budgets,
                                           MLIRContext *context) {
  Location loc = UnknownLoc::get(context);
  auto refuse = [&](const Twine &why) -> std::unique_ptr<ModelFile> {
    emitError(loc) << why;
    return nullptr;
  };
  Result<InputFile> file = InputFile::open(path.str());
  if (!file)
    return refuse(file.error().message);
  if (file->size() > uint64_t(INT32_MAX))
    return refuse("'" + path + "' has " + Twine(file->size()) +
                  " bytes, more than protobuf's limit of 2 GiB; export with "
                  "external_data=True");
  Result<std::string> bytes = file->readAll(INT32_MAX);
  if (!bytes)
    return refuse(bytes.error().message);
  auto model = std::make_unique<ModelFile>();
  model->path = path.str();
  model->bytes = *std::move(bytes);
  model->identity = file->identity();
  size_t size = model->bytes.size();
  // Measured before ParseFromArray allocates anything.
  Measured measured =
      measure({model->bytes.data(), 0, size}, Message::model, budgets);
  if (measured == Measured::tooLarge)
    return refuse("'" + path + "' has " + Budgets::exceeded(Cost::parsedBytes) +
                  "; export fewer nodes, and store tensors as raw data");
  google::protobuf::SetLogHandler(nullptr); // the error below says it
  if (size == 0 || measured == Measured::malformed ||
      !model->proto.ParseFromArray(model->bytes.data(), int(size)))
    return refuse("'" + path + "' is not an ONNX model or is truncated (" +
                  Twine(size) + " bytes)");
  if (!model->proto.has_graph() || !model->proto.has_ir_version() ||
      model->proto.graph().node_size() == 0)
    return refuse("'" + path + "' is not an ONNX model: it contains no graph");
  if (failed(checkVersions(*model, loc)))
    return nullptr;
  findInitializers(*model);
  return model;
}

int64_t ModelFile::opset(StringRef domain) const {
  for (const auto &import : proto.opset_import())
    if (import.domain() == domain ||
        (domain.empty() && import.domain() == "ai.onnx"))
      return import.version();
  return 0;
}
