// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes a training model of onnxruntime-training apart. Its outputs are the
// loss, further ones that the user has asked for, and those of the accumulators
// of the gradients, whose names say the parameters.
#include "frontends/onnx/RuntimeTraining.h"

#include "frontends/onnx/ort/ort_checkpoint.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

static bool isAccumulator(const onnx::NodeProto &node) {
  return node.domain() == kRuntimeDomain &&
         node.op_type() == "InPlaceAccumulatorV2";
}

bool frontend::isRuntimeTraining(const onnx::GraphProto &graph) {
  return llvm::any_of(graph.node(), isAccumulator);
}

namespace {

class RuntimeSplit {
public:
  RuntimeSplit(ModelFile &model, MLIRContext *context)
      : model(model), graph(*model.proto.mutable_graph()),
        loc(UnknownLoc::get(context)) {}

  FailureOr<Training> run();

private:
  InFlightDiagnostic refuse() {
    return emitError(loc) << "the training model '" << model.path << "' ";
  }
  LogicalResult takeAccumulators();
  void keepForward();
  LogicalResult addValue(const onnx::TensorProto &tensor);
  LogicalResult readFiles();

  ModelFile &model;
  onnx::GraphProto &graph;
  Location loc;
  Training result;
  llvm::StringSet<> accumulated; // outputs of accumulators
  llvm::StringMap<const onnx::TypeProto *> inputs;
};

} // namespace

template <typename List, typename Keep>
static void filter(List &list, Keep keep) {
  List kept;
  for (auto &element : list)
    if (keep(element))
      *kept.Add() = std::move(element);
  list.Swap(&kept);
}

// The gradient of a parameter is called after it.
LogicalResult RuntimeSplit::takeAccumulators() {
  llvm::StringSet<> tensors;
  for (const auto &input : graph.input())
    tensors.insert(input.name());
  for (const auto &tensor : graph.initializer())
    tensors.insert(tensor.name());
  for (const onnx::NodeProto &node : graph.node()) {
    if (!isAccumulator(node))
      continue;
    StringRef gradient, parameter;
    if (node.input_size() > 1)
      parameter = gradient = node.input(1);
    if (!parameter.consume_back("_grad") || !tensors.contains(parameter))
      return refuse() << "accumulates '" << gradient
                      << "', which is no gradient of an input: 'NAME_grad' is "
                         "that of 'NAME'";
    if (!result.parameters.insert(parameter).second)
      return refuse() << "accumulates the gradient of '" << parameter
                      << "' twice";
    result.trained.push_back({parameter.str(), gradient.str()});
    accumulated.insert(node.output().begin(), node.output().end());
  }
  filter(*graph.mutable_output(), [&](const auto &output) {
    return !accumulated.contains(output.name());
  });
  if (graph.output_size() == 0)
    return refuse() << "has no output but gradients; generate it with a loss";
  result.loss = graph.output(0).name();
  return success();
}

// Adds what a node reads, also in the graphs inside of it.
static void addReads(const onnx::NodeProto &node, llvm::StringSet<> &names) {
  names.insert(node.input().begin(), node.input().end());
  auto addAll = [&](const onnx::GraphProto &inner) {
    for (const onnx::NodeProto &other : inner.node())
      addReads(other, names);
    for (const auto &output : inner.output())
      names.insert(output.name());
  };
  for (const auto &attribute : node.attribute()) {
    if (attribute.has_g())
      addAll(attribute.g());
    for (const auto &inner : attribute.graphs())
      addAll(inner);
  }
}

// Drops the last outputs of a node that only its gradient has read: those of a
// norm would keep it from being one op. Batch norms get back the name by which
// their statistics are found.
static void restore(onnx::NodeProto &node, const llvm::StringSet<> &needed) {
  bool isBatchNorm =
      node.domain() == kRuntimeDomain && node.op_type() == "BatchNormInternal";
  if (isBatchNorm) {
    node.clear_domain();
    node.set_op_type("BatchNormalization");
  }
  for (int i = node.output_size(); i > (isBatchNorm ? 3 : 1); --i) {
    if (needed.contains(node.output(i - 1)))
      break;
    node.mutable_output()->RemoveLast();
  }
}

void RuntimeSplit::keepForward() {
  llvm::StringSet<> needed;
  for (const auto &output : graph.output())
    needed.insert(output.name());
  std::vector<bool> isKept(graph.node_size());
  for (int i = graph.node_size() - 1; i >= 0; --i) {
    const onnx::NodeProto &node = graph.node(i);
    isKept[i] = llvm::any_of(node.output(), [&](const std::string &output) {
      return !output.empty() && needed.contains(output);
    });
    if (isKept[i])
      addReads(node, needed);
  }
  auto kept = isKept.begin();
  filter(*graph.mutable_node(), [&](const auto &) { return *kept++; });
  for (onnx::NodeProto &node : *graph.mutable_node())
    restore(node, needed);
  filter(*graph.mutable_input(), [&](const auto &input) {
    return needed.contains(input.name()) || result.trains(input.name());
  });
  std::vector<ByteRange> ranges;
  auto range = model.initializers.begin();
  filter(*graph.mutable_initializer(), [&](const auto &tensor) {
    bool isNeeded = needed.contains(tensor.name());
    if (isNeeded)
      ranges.push_back(*range);
    ++range;
    return isNeeded;
  });
  model.initializers = std::move(ranges);
  // Values of parameters are in the checkpoint.
  for (const auto &tensor : graph.initializer())
    if (!result.trains(tensor.name()))
      result.constants.insert(tensor.name());
}

// Describes a value of the checkpoint as external data of ONNX.
static onnx::TensorProto protoOf(const OrtTensor &tensor,
                                 const std::string &checkpoint) {
  onnx::TensorProto proto;
  proto.set_name(tensor.name);
  for (int64_t size : tensor.shape)
    proto.add_dims(size);
  proto.set_data_type(tensor.type);
  proto.set_data_location(onnx::TensorProto::EXTERNAL);
  auto add = [&](const char *key, const std::string &value) {
    onnx::StringStringEntryProto &entry = *proto.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  };
  add("location", checkpoint + (tensor.isExternal ? ".data" : ""));
  add("offset", std::to_string(tensor.offset));
  if (!tensor.isExternal)
    add("length", std::to_string(tensor.bytes));
  return proto;
}

// Makes an input that the checkpoint has a value of an initializer. Other
// values of the checkpoint belong to parameters that the loss does not need.
LogicalResult RuntimeSplit::addValue(const onnx::TensorProto &tensor) {
  auto input = inputs.find(tensor.name());
  if (input == inputs.end())
    return success();
  const auto &type = input->second->tensor_type();
  bool fits = type.elem_type() == tensor.data_type() &&
              type.shape().dim_size() == tensor.dims_size();
  for (int i = 0; fits && i < tensor.dims_size(); ++i)
    fits = type.shape().dim(i).dim_value() == tensor.dims(i);
  if (!fits)
    return refuse() << "has the parameter '" << tensor.name()
                    << "' with another type or shape than its checkpoint; "
                       "give the checkpoint of this model";
  *graph.add_initializer() = tensor;
  model.initializers.push_back({});
  return success();
}

// The files have the model's prefix. Each may be missing: values are then given
// to the program, and the optimizer to the compiler.
LogicalResult RuntimeSplit::readFiles() {
  namespace path = llvm::sys::path;
  StringRef prefix = path::filename(model.path);
  if (!prefix.consume_back("training_model.onnx"))
    return success();
  std::string folder = path::parent_path(model.path).str();
  folder = folder.empty() ? "." : folder;
  std::string checkpoint = (prefix + "checkpoint").str();
  std::string optimizer =
      folder + "/" + (prefix + "optimizer_model.onnx").str();
  if (llvm::sys::fs::exists(optimizer))
    result.optimizerFile = optimizer;
  if (!llvm::sys::fs::exists(folder + "/" + checkpoint))
    return success();
  Result<OrtCheckpoint> values = readOrtCheckpoint(folder, checkpoint);
  if (!values)
    return refuse() << "has a checkpoint that cannot be read: "
                    << values.error().message;
  if (!values->states.empty())
    emitWarning(loc) << "the program does not begin with the moments in '"
                     << checkpoint
                     << "'; to go on with them, give --resume what 'fsdpc ckpt "
                        "convert --from onnxruntime' makes of the file";
  for (const onnx::ValueInfoProto &input : graph.input())
    inputs.try_emplace(input.name(), &input.type());
  for (const auto *tensors : {&values->trained, &values->frozen})
    for (const OrtTensor &tensor : *tensors)
      if (failed(addValue(protoOf(tensor, checkpoint))))
        return failure();
  llvm::StringSet<> names;
  for (const auto &tensor : graph.initializer())
    names.insert(tensor.name());
  for (const Training::Trained &trained : result.trained)
    if (!names.contains(trained.parameter))
      return refuse() << "has no value of '" << trained.parameter
                      << "' in its checkpoint '" << checkpoint
                      << "'; give the checkpoint of this model";
  filter(*graph.mutable_input(),
         [&](const auto &input) { return !names.contains(input.name()); });
  return success();
}

FailureOr<Training> RuntimeSplit::run() {
  result.isOfRuntime = true;
  if (failed(takeAccumulators()))
    return failure();
  keepForward();
  if (failed(readFiles()))
    return failure();
  return std::move(result);
}

FailureOr<Training> frontend::takeRuntimeTraining(ModelFile &model,
                                                  MLIRContext *context) {
  return RuntimeSplit(model, context).run();
}
