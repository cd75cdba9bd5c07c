// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The view of an ONNX node that handlers get: its inputs as nn values, its
// attributes and outputs, and a way to refuse it. A handler returns failure
// after it has refused, and success after it has set the outputs that are used.
#pragma once

#include "frontends/onnx/Emitter.h"

#include "onnx-ml.pb.h"
#include "llvm/ADT/StringMap.h"

#include <map>

namespace fsdpc::frontend {

class GraphImporter;

/// A tensor, or a sequence of tensors, which exists only during the import. An
/// optional is its element; without one it is absent.
struct Item {
  mlir::Value value; ///< null for a sequence, and for what is absent
  llvm::SmallVector<mlir::Value> sequence;
  bool isSequence = false, isAbsent = false;

  static Item tensor(mlir::Value value) { return {value, {}, false, false}; }
  static Item list(llvm::SmallVector<mlir::Value> values) {
    return {{}, std::move(values), true, false};
  }
  static Item absent() { return {{}, {}, false, true}; }
};

/// Lives while its node is imported. It owns nothing but its name; the importer
/// and the proto outlive it.
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
  int64_t version; ///< of the opset

  // ---- inputs; null where absent ----
  int64_t numInputs() const { return proto.input_size(); }
  bool has(int64_t i) const {
    return i < numInputs() && !proto.input(i).empty();
  }
  mlir::Value input(int64_t i);
  /// Returns the ONNX type of an input's elements, or 0 if it is absent.
  int64_t elementType(int64_t i);
  /// Returns an input that may be a sequence, or nullopt after it has refused
  /// the node.
  std::optional<Item> item(int64_t i);
  /// Returns the integers of a constant input; refuses the node if it is not
  /// constant. `what` names the input in the message. It also refuses more than
  /// kMostIntegers.
  std::optional<llvm::SmallVector<int64_t>> integers(int64_t i,
                                                     llvm::StringRef what);
  /// Returns the only number of a constant input; refuses the node if there is
  /// none.
  std::optional<double> number(int64_t i, llvm::StringRef what);
  /// The same for a whole number, of whatever element type. Refuses others, and
  /// those beyond 2^53, where doubles no longer tell neighbours apart.
  std::optional<int64_t> wholeNumber(int64_t i, llvm::StringRef what);

  // ---- what older opsets hold in attributes ----
  // Returns true if input `i` is present, or the attribute that held its value
  // before it became an input.
  bool has(int64_t i, llvm::StringRef attributeName) const {
    return has(i) || attribute(attributeName);
  }
  /// The value of either. Like the functions above, they refuse the node if it
  /// is not constant; the message names the attribute.
  std::optional<llvm::SmallVector<int64_t>>
  integersOrAttribute(int64_t i, llvm::StringRef attributeName);
  std::optional<double> numberOrAttribute(int64_t i,
                                          llvm::StringRef attributeName);

  // ---- attributes ----
  // Attributes; get… return `absent` if the node does not set one.
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
  /// Does nothing if output `i` is unused, so handlers may set all outputs.
  /// `elementType` is the ONNX type of its elements, which must be given unless
  /// it is that of the first input with the same carrier (ElementTypes.h).
  void setOutput(int64_t i, mlir::Value value, int64_t elementType = 0);
  void setItem(int64_t i, Item item);
  mlir::LogicalResult result(mlir::Value value, int64_t elementType = 0) {
    setOutput(0, value, elementType);
    return mlir::success();
  }

  // ---- checks; each refuses with its reason ----
  // Records the refusal and returns failure. Only the first refusal of a node
  // is reported: it is the most specific, as checks call each other.
  mlir::LogicalResult refuse(const llvm::Twine &reason);
  /// Checks that the first `required` inputs are present and that there are at
  /// most `most`.
  mlir::LogicalResult expectInputs(int64_t required, int64_t most);
  /// Normalises an axis that may count from the end.
  std::optional<int64_t> axis(int64_t value, int64_t rank);
  /// The same for a list, which is returned sorted and must not repeat an axis.
  std::optional<Shape> axes(llvm::ArrayRef<int64_t> values, int64_t rank);
  /// Checks the shape of a result before it is built (countElements): nodes of
  /// a hostile model can ask for any size.
  mlir::LogicalResult checkShape(llvm::ArrayRef<int64_t> shape);
  mlir::LogicalResult expectFloat(mlir::Value value);
  /// Refuses types of which the carrier does not say everything (isPlainType),
  /// where a list of values passes an input on without its ONNX type.
  mlir::LogicalResult expectPlain(int64_t i);
  /// Broadcasts all values to their common shape.
  mlir::LogicalResult broadcast(llvm::MutableArrayRef<mlir::Value> values);
  /// Returns true if the value broadcasts to exactly `shape`, one way.
  bool broadcastsTo(mlir::Value value, llvm::ArrayRef<int64_t> shape);

private:
  bool isRefused = false;
};

/// Returns a shape as it reads in an error, such as "[2, 3]".
std::string printShape(llvm::ArrayRef<int64_t> shape);

/// Imports one node: sets its outputs, or refuses it and returns failure.
using Handler = mlir::LogicalResult (*)(Node &);

/// What an op does with the codes of a quantised weight (StoredConstants.h).
enum class CodeUse {
  computes,   ///< computes other values from them
  unpacks,    ///< may take several codes out of an integer
  rearranges, ///< has them all in its result, in another shape, order or type
  takesPart,  ///< has a part of them
  compares    ///< shows that they are truth values, by a comparison
};

/// The handlers of each op, by the opset version since which they apply. An op
/// of another domain than the default one is named with it, as in
/// "ai.onnx.preview.FlexAttention".
class HandlerTable {
public:
  HandlerTable();
  /// `since` is the opset version from which the handler applies; a later one
  /// of the same op replaces it from there on.
  void add(llvm::StringRef op, int64_t since, Handler handler,
           CodeUse use = CodeUse::computes) {
    table[op.str()][since] = handler;
    if (use != CodeUse::computes)
      uses[op.str()] = use;
  }
  /// Returns the handler with the highest version up to `version`, or null.
  Handler find(llvm::StringRef op, int64_t version) const;
  /// Returns the first version of the op that has a handler, if any has.
  std::optional<int64_t> oldest(llvm::StringRef op) const;
  /// Returns what the op does with codes; `computes` if it has no entry.
  CodeUse useOf(llvm::StringRef op) const;

private:
  std::map<std::string, std::map<int64_t, Handler>> table;
  std::map<std::string, CodeUse> uses;
};

/// One function per file in ops/.
void registerActivation(HandlerTable &table);
void registerAttention(HandlerTable &table);
void registerBits(HandlerTable &table);
void registerClassical(HandlerTable &table);
void registerConstants(HandlerTable &table);
void registerControl(HandlerTable &table);
void registerConvolution(HandlerTable &table);
void registerDeterminant(HandlerTable &table);
void registerDropout(HandlerTable &table);
void registerEinsum(HandlerTable &table);
void registerElementwise(HandlerTable &table);
void registerFlexAttention(HandlerTable &table);
void registerFourier(HandlerTable &table);
void registerGather(HandlerTable &table);
void registerGradient(HandlerTable &table);
void registerIntegerProduct(HandlerTable &table);
void registerLinearAttention(HandlerTable &table);
void registerLoop(HandlerTable &table);
void registerLoss(HandlerTable &table);
void registerMicrosoft(HandlerTable &table);
void registerNGrams(HandlerTable &table);
void registerNormalisation(HandlerTable &table);
void registerOptimizers(HandlerTable &table);
void registerPooling(HandlerTable &table);
void registerProduct(HandlerTable &table);
void registerQuantization(HandlerTable &table);
void registerRandom(HandlerTable &table);
void registerRearrange(HandlerTable &table);
void registerRecurrent(HandlerTable &table);
void registerReduction(HandlerTable &table);
void registerRegions(HandlerTable &table);
void registerResize(HandlerTable &table);
void registerSampling(HandlerTable &table);
void registerScatter(HandlerTable &table);
void registerSequence(HandlerTable &table);
void registerShape(HandlerTable &table);
void registerSort(HandlerTable &table);

} // namespace fsdpc::frontend
