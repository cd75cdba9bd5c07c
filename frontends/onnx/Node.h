// What a handler sees of an ONNX node: inputs as nn values, attributes,
// outputs, and a way to refuse.
#pragma once

#include "frontends/onnx/Emitter.h"

#include "onnx-ml.pb.h"
#include "llvm/ADT/StringMap.h"

#include <map>

namespace fsdpc::frontend {

class GraphImporter;

class Node {
public:
  Node(GraphImporter &importer, Emitter &emitter, const onnx::NodeProto &proto,
       std::string name, int64_t version)
      : importer(importer), b(emitter), proto(proto), name(std::move(name)),
        version(version) {}

  GraphImporter &importer;
  Emitter &b;
  const onnx::NodeProto &proto;
  std::string name;
  int64_t version; // of the opset

  // ---- inputs; null where absent ----
  int64_t numInputs() const { return proto.input_size(); }
  bool has(int64_t i) const {
    return i < numInputs() && !proto.input(i).empty();
  }
  mlir::Value input(int64_t i);
  // A constant input's integers; refuses where it is not constant.
  std::optional<llvm::SmallVector<int64_t>> integers(int64_t i,
                                                     llvm::StringRef what);
  // The single number of a constant input; refuses where it is not constant.
  std::optional<double> number(int64_t i, llvm::StringRef what);

  // ---- attributes ----
  const onnx::AttributeProto *attribute(llvm::StringRef name) const;
  int64_t getInt(llvm::StringRef name, int64_t absent) const;
  double getFloat(llvm::StringRef name, double absent) const;
  std::string getString(llvm::StringRef name, llvm::StringRef absent) const;
  std::optional<llvm::SmallVector<int64_t>> getInts(llvm::StringRef name) const;

  // ---- outputs ----
  int64_t numOutputs() const { return proto.output_size(); }
  bool isUsed(int64_t i) const {
    return i < numOutputs() && !proto.output(i).empty();
  }
  void setOutput(int64_t i, mlir::Value value);
  void setSequence(int64_t i, llvm::SmallVector<mlir::Value> values);
  mlir::LogicalResult result(mlir::Value value) {
    setOutput(0, value);
    return mlir::success();
  }

  // ---- checks; each refuses with its reason ----
  mlir::LogicalResult refuse(const llvm::Twine &reason);
  // Between low and high inputs, all of 1 … required present.
  mlir::LogicalResult expectInputs(int64_t required, int64_t most);
  std::optional<int64_t> axis(int64_t value, int64_t rank);
  std::optional<Shape> axes(llvm::ArrayRef<int64_t> values, int64_t rank);
  mlir::LogicalResult checkShape(llvm::ArrayRef<int64_t> shape);
  mlir::LogicalResult expectFloat(mlir::Value value);
  // All in the shape that they broadcast to.
  mlir::LogicalResult broadcast(llvm::MutableArrayRef<mlir::Value> values);
  bool broadcastsTo(mlir::Value value, llvm::ArrayRef<int64_t> shape);
};

using Handler = mlir::LogicalResult (*)(Node &);

// By domain and op, the handlers by the opset version since which they hold.
class HandlerTable {
public:
  HandlerTable();
  void add(llvm::StringRef op, int64_t since, Handler handler) {
    table[op.str()][since] = handler;
  }
  // The handler of the newest version up to `version`, or null.
  Handler find(llvm::StringRef op, int64_t version) const;

private:
  std::map<std::string, std::map<int64_t, Handler>> table;
};

// One of each file in ops/.
void registerAttention(HandlerTable &table);
void registerConstants(HandlerTable &table);
void registerControl(HandlerTable &table);
void registerConvolution(HandlerTable &table);
void registerDropout(HandlerTable &table);
void registerElementwise(HandlerTable &table);
void registerGather(HandlerTable &table);
void registerLoss(HandlerTable &table);
void registerNormalisation(HandlerTable &table);
void registerProduct(HandlerTable &table);
void registerReduction(HandlerTable &table);
void registerSequence(HandlerTable &table);
void registerShape(HandlerTable &table);

} // namespace fsdpc::frontend
