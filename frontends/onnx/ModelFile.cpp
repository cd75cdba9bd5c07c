// Parses the protobuf, then reads its wire format a second time to find where
// inline weights lie. A training program reads weights from the model's file
// when it starts, so the compiler records their offsets instead of copying
// them, and protobuf's own parser does not tell offsets.
#include "frontends/onnx/ModelFile.h"

#include "mlir/IR/Diagnostics.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>

using namespace mlir;
using namespace fsdpc::frontend;

namespace {

// Reads protobuf's wire format from position `at` to `end` of the file. All
// functions return false at the end or on malformed bytes.
struct Wire {
  const char *base;
  uint64_t at, end;

  bool varint(uint64_t &value) {
    value = 0;
    for (int shift = 0; shift < 64 && at < end; shift += 7) {
      uint8_t byte = base[at++];
      value |= uint64_t(byte & 127) << shift;
      if (byte < 128)
        return true;
    }
    return false;
  }

  // Reads the next field: its number and, if it is length-delimited, its
  // payload.
  bool next(uint64_t &field, ByteRange &payload, bool &isBytes) {
    uint64_t tag, value;
    if (at >= end || !varint(tag))
      return false;
    field = tag >> 3;
    isBytes = (tag & 7) == 2;
    switch (tag & 7) {
    case 0:
      return varint(value);
    case 1:
    case 5: {
      uint64_t size = (tag & 7) == 1 ? 8 : 4;
      if (end - at < size)
        return false;
      at += size;
      return true;
    }
    case 2:
      if (!varint(value) || value > end - at)
        return false;
      payload = {at, value};
      at += value;
      return true;
    }
    return false; // groups do not occur
  }
};

} // namespace

// Returns the bytes of raw_data, or of a packed list of floats or doubles,
// whose bytes are the elements on a little-endian machine. Returns an empty
// range if they are in several pieces.
static ByteRange elementBytes(const char *base, ByteRange tensor) {
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

static void findInitializers(ModelFile &model) {
  enum { modelGraph = 7, graphInitializer = 5 };
  const char *base = model.buffer->getBufferStart();
  Wire file{base, 0, model.buffer->getBufferSize()};
  uint64_t field;
  ByteRange payload, tensor;
  bool isBytes;
  while (file.next(field, payload, isBytes)) {
    if (field != modelGraph || !isBytes)
      continue;
    Wire graph{base, payload.offset, payload.offset + payload.length};
    while (graph.next(field, tensor, isBytes))
      if (field == graphInitializer && isBytes)
        model.initializers.push_back(elementBytes(base, tensor));
  }
  // If the two readings differ, the values are embedded in the program instead.
  model.initializers.resize(model.proto.graph().initializer_size());
}

static LogicalResult checkVersions(const ModelFile &model, Location loc) {
  int64_t ir = model.proto.ir_version(), opset = model.opset("");
  if (ir < 8 || ir > onnx::IR_VERSION)
    return emitError(loc)
           << "IR version '" << ir << "' of '" << model.path
           << "' is not supported; export with an IR version from 8 to "
           << int64_t(onnx::IR_VERSION);
  if (opset < 18 || opset > 23)
    return emitError(loc)
           << "opset version '" << opset << "' of '" << model.path
           << "' is not supported; export with torch.onnx.export(..., "
              "opset_version=N), N from 18 to 23";
  return success();
}

std::unique_ptr<ModelFile> ModelFile::read(StringRef path,
                                           MLIRContext *context) {
  Location loc = UnknownLoc::get(context);
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
  if (!buffer) {
    emitError(loc) << "cannot read '" << path
                   << "': " << buffer.getError().message();
    return nullptr;
  }
  auto model = std::make_unique<ModelFile>();
  model->path = path.str();
  model->buffer = std::move(*buffer);
  uint64_t size = model->buffer->getBufferSize();
  if (size > uint64_t(INT32_MAX)) {
    emitError(loc) << "'" << path << "' has " << size
                   << " bytes, more than protobuf's limit of 2 GiB; export "
                      "with external_data=True";
    return nullptr;
  }
  google::protobuf::SetLogHandler(nullptr); // the error below says it
  if (size == 0 ||
      !model->proto.ParseFromArray(model->buffer->getBufferStart(), size)) {
    emitError(loc) << "'" << path << "' is not an ONNX model or is truncated ("
                   << size << " bytes)";
    return nullptr;
  }
  if (!model->proto.has_graph() || !model->proto.has_ir_version() ||
      model->proto.graph().node_size() == 0) {
    emitError(loc) << "'" << path
                   << "' is not an ONNX model: it contains no graph";
    return nullptr;
  }
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
