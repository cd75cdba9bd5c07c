// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Walks the graph node by node, inlines functions and the branches that are
// taken, and builds @microbatch. Nodes must be in topological order, as ONNX
// demands; a node whose input is defined later is refused.
#pragma once

#include "frontends/onnx/ElementTypes.h"
#include "frontends/onnx/InliningCost.h"
#include "frontends/onnx/Node.h"
#include "frontends/onnx/Parameters.h"
#include "frontends/onnx/Refusals.h"
#include "frontends/onnx/TorchExport.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fsdpc::frontend {

/// Used for one import: construct, `run`, then `findOutput` and `findLoss`. It
/// keeps references to all arguments of its constructor.
class GraphImporter {
public:
  /// `summary` counts nodes, and keeps the budgets. `refusals` has the tensors
  /// that were refused before: what reads them is skipped.
  GraphImporter(const ModelFile &model, Weights &weights,
                ParameterTable &parameters, const fsdp::CompileOptions &options,
                const TorchExport &torch, Refusals &refusals,
                mlir::MLIRContext *context, ImportSummary &summary);

  /// Imports all nodes into the body of `function`, whose arguments are the
  /// inputs. Emits one error for all that is refused.
  mlir::LogicalResult run(mlir::func::FuncOp function,
                          llvm::ArrayRef<std::string> inputs);
  /// Returns the loss, a float of one element: the tensor named by --loss or
  /// the sum that it says, or the only output that is a single float and not
  /// kept by
  /// --keep-output. Tensors of more elements are reduced by --loss-reduction.
  /// Returns null after an error if there is none or more than one.
  mlir::Value findLoss();
  /// Returns the tensor of that name, which --keep-output names. Returns null
  /// after an error if there is none, or if no node computes it.
  mlir::Value findOutput(llvm::StringRef name);
  /// A tensor from outside of a graph. `elementType` is an ONNX type, or 0.
  struct Given {
    llvm::StringRef name;
    mlir::Value value;
    int64_t elementType;
  };
  /// Imports a graph that is no part of the microbatch into `body` and returns
  /// its outputs of those names. Only `given` is visible to it. Emits one error
  /// for all nodes that are refused.
  mlir::FailureOr<llvm::SmallVector<mlir::Value>>
  importBeside(mlir::Block &body, const onnx::GraphProto &graph,
               llvm::ArrayRef<Given> given,
               llvm::ArrayRef<std::string> outputs);
  llvm::StringRef path() const { return model.path; }
  /// For what is built after the graph, such as reports.
  Emitter &emitter() { return b; }

  // ---- for Node ----
  mlir::Value lookup(llvm::StringRef name); ///< null for a sequence
  llvm::ArrayRef<mlir::Value> lookupSequence(llvm::StringRef name);
  /// Returns what a name stands for, and spends the length of a sequence, which
  /// is copied, on the budgets. Returns nullopt if it exceeds them, or if the
  /// name is not defined.
  std::optional<Item> lookupItem(llvm::StringRef name);
  /// Returns the ONNX type of a tensor's elements.
  int64_t elementType(llvm::StringRef name);
  /// `elementType` is an ONNX type; 0 stands for the one that importNode
  /// derives.
  void define(llvm::StringRef name, mlir::Value value, int64_t elementType = 0);
  void define(llvm::StringRef name, Item item);
  /// Returns the attribute, or the one of the calling node that it refers to;
  /// null if the caller has not set it.
  const onnx::AttributeProto *
  resolve(const onnx::AttributeProto &attribute) const;
  void refuse(Node &node, const llvm::Twine &reason);

  // ---- for handlers ----
  Weights &weights() { return tensors; }
  /// Defines the initializers of a nested graph in the current frame.
  mlir::LogicalResult defineInitializers(Node &node,
                                         const onnx::GraphProto &graph);
  /// Imports the branch of an If whose condition is constant.
  mlir::LogicalResult inlineBranch(Node &node, const onnx::GraphProto &branch);
  /// Imports the body of a loop once, with items for its inputs, and returns
  /// those of its outputs. Spends `size`, the body's cost, on the budgets.
  mlir::LogicalResult inlineBody(Node &node, const onnx::GraphProto &body,
                                 const InliningCost::Size &size,
                                 int64_t iteration, llvm::ArrayRef<Item> inputs,
                                 llvm::SmallVectorImpl<Item> &outputs);
  InliningCost::Size costOf(const onnx::GraphProto &body) {
    return InliningCost(functions).of(body);
  }
  /// Returns the row of an embedding that receives no gradient, if any.
  std::optional<int64_t> paddingIndex(Node &node) const;
  /// Returns the label smoothing of a cross-entropy, 0 for none.
  double labelSmoothing(Node &node) const;
  /// Returns true if the node uses the statistics of the batch.
  bool trainsBatchNorm(Node &node);
  /// running = (1 - momentum) · running + momentum · value, as in PyTorch;
  /// ONNX's momentum is 1 minus this one. Refuses statistics that are not
  /// buffers.
  mlir::LogicalResult updateStatistics(Node &node, mlir::Value mean,
                                       mlir::Value variance, double momentum);
  /// Returns how often a microbatch updates a running statistic, in one update.
  int64_t updatesOf(llvm::StringRef buffer) const {
    return updateCounts.lookup(buffer);
  }
  /// Returns the ordinal of a dropout, which keys its random numbers, or
  /// nullopt if it does not run.
  std::optional<int64_t> dropoutOrdinal(Node &node, double ratio,
                                        std::optional<double> trainingMode);
  /// Returns the ordinal of an nn.uniform. Dropouts and draws are numbered
  /// together.
  int64_t drawOrdinal();
  /// Returns the random state of the microbatch, one op per function.
  mlir::Value random();

private:
  /// The meaning of a name: an item, or a symbol that is loaded.
  struct Entry : Item {
    const NamedTensor *loaded = nullptr; ///< a symbol, loaded anew at each use
    /// An ONNX type; 0 stands for the natural type of the carrier.
    int64_t elementType = 0;
    bool isPoisoned = false;
  };
  /// The names of one graph. A branch also sees those of its surroundings
  /// (parent); a function does not.
  struct Frame {
    Frame *parent = nullptr;
    llvm::StringMap<Entry> values;
    /// The attributes of the call.
    std::map<std::string, const onnx::AttributeProto *> attributes;
    std::map<std::string, int64_t> opsets;
    std::string prefix; ///< of node names
    bool isInlined = false;
  };

  Entry *find(llvm::StringRef name);
  /// Returns the buffer that a name stands for, or null.
  const NamedTensor *bufferOf(llvm::StringRef name);
  /// Returns the type of nn that carries the elements of a tensor.
  static mlir::Type carrierOf(const Entry &entry);
  static int64_t elementTypeOf(const Entry &entry);
  /// Returns the ONNX type of an output whose handler has not said it: that of
  /// the first input with the same carrier, since ONNX's ops take and give one
  /// type where they do not name another.
  int64_t derivedType(const onnx::NodeProto &proto, mlir::Value output);
  int64_t floatTypeOf(const onnx::NodeProto &proto);
  void
  importNodes(const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes);
  void importNode(const onnx::NodeProto &proto);
  mlir::LogicalResult importNode(Node &node, llvm::StringRef domain);
  mlir::LogicalResult checkInputs(Node &node, bool isFunction);
  mlir::LogicalResult checkOutputs(Node &node, bool isFunction);
  mlir::LogicalResult inlineFunction(Node &node,
                                     const onnx::FunctionProto &function);
  mlir::LogicalResult checkDefined();
  /// Returns the budget that the node's inputs or earlier nodes have exceeded.
  std::optional<Cost> exceededBy(const onnx::NodeProto &proto);
  void poison(const onnx::NodeProto &proto);
  void enterScope(const onnx::NodeProto &proto, const std::string &name);
  std::string unsupported(const Node &node) const;
  /// Returns why the gradients of the node are not those of the module, or "".
  std::string lostInExport(const onnx::NodeProto &proto);
  bool dependsOnTrainable(mlir::Value value);
  void stopGradients(const onnx::NodeProto &proto);
  std::string describeInputs(const onnx::NodeProto &proto);
  mlir::Value findNamed(llvm::StringRef name, llvm::StringRef flag);
  mlir::Value findTerm(llvm::StringRef name);
  mlir::Value findChosenLoss();
  void listOutputs(mlir::InFlightDiagnostic &error) const;

  const ModelFile &model;
  Weights &tensors;
  ParameterTable &parameters;
  const fsdp::CompileOptions &options;
  const TorchExport &torch;
  Refusals &refusals;
  ImportSummary &summary;
  Emitter b;
  HandlerTable handlers;
  Frame root;
  Frame *frame = &root;
  FunctionTable functions;
  mlir::Value randomValue;
  /// The one update of each buffer in a microbatch.
  llvm::DenseMap<const NamedTensor *, fsdp::UpdateStatisticsOp> updates;
  llvm::StringMap<int64_t> updateCounts; ///< by the buffer's symbol
  llvm::DenseSet<mlir::Operation *>
      untrained; ///< no trainable parameter before
};

} // namespace fsdpc::frontend
