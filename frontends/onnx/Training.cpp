// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Splits the algorithm of a model's `training_info` at its Gradient nodes. What
// neither a gradient nor a tensor of the algorithm that changes affects is part
// of the forward, such as the loss and the targets; the rest is the update.
#include "frontends/onnx/RuntimeTraining.h"

#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace fsdpc::frontend;

namespace {

using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
using Bindings =
    google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>;

class Split {
public:
  Split(ModelFile &model, MLIRContext *context)
      : model(model), loc(UnknownLoc::get(context)),
        info(model.proto.training_info(0)), algorithm(info.algorithm()) {}

  LogicalResult run(bool withUpdate, Training &training);

private:
  InFlightDiagnostic refuse() {
    return emitError(loc) << "training_info of '" << model.path << "' ";
  }
  LogicalResult readBindings(const Bindings &bindings, StringRef what,
                             std::map<std::string, std::string> &to);
  LogicalResult readGradient(const onnx::NodeProto &node);
  LogicalResult readGradients();
  void findChanging();
  void extendForward();
  LogicalResult extractUpdate();

  static bool isGradient(const onnx::NodeProto &node) {
    return node.op_type() == "Gradient" && node.domain() == kTrainingDomain;
  }

  ModelFile &model;
  Location loc;
  const onnx::TrainingInfoProto &info;
  const onnx::GraphProto &algorithm;
  Training result;
  llvm::StringSet<> changing; // what gradients and states affect
};

} // namespace

LogicalResult Split::readBindings(const Bindings &bindings, StringRef what,
                                  std::map<std::string, std::string> &to) {
  llvm::StringSet<> known;
  for (const onnx::GraphProto *graph : {&model.proto.graph(), &algorithm})
    for (const auto &tensor : graph->initializer())
      known.insert(tensor.name());
  for (const auto &binding : bindings) {
    if (!known.contains(binding.key()))
      return refuse() << "has " << what << " of '" << binding.key()
                      << "', which is no initializer of the model or of the "
                         "algorithm";
    if (!to.try_emplace(binding.key(), binding.value()).second)
      return refuse() << "has two entries of " << what << " for '"
                      << binding.key() << "'";
  }
  return success();
}

// The tensors of which the gradients are taken must be the ones that the node
// is given: a gradient at another place is no gradient of this step.
LogicalResult Split::readGradient(const onnx::NodeProto &node) {
  const onnx::AttributeProto *xs = nullptr, *y = nullptr;
  for (const auto &attribute : node.attribute()) {
    xs = attribute.name() == "xs" ? &attribute : xs;
    y = attribute.name() == "y" ? &attribute : y;
  }
  auto name = node.name().empty() && node.output_size() > 0 ? node.output(0)
                                                            : node.name();
  if (!xs || !y || y->s().empty() || xs->strings_size() == 0 ||
      xs->strings_size() > node.input_size() ||
      xs->strings_size() < node.output_size())
    return refuse() << "has a Gradient node '" << name
                    << "' without 'y' or with other inputs and outputs than "
                       "'xs' says";
  if (!result.loss.empty() && result.loss != y->s())
    return refuse() << "takes gradients of '" << result.loss << "' and of '"
                    << y->s() << "'; a program has one loss: add them up";
  result.loss = y->s();
  for (int i = 0; i < node.output_size(); ++i) {
    const std::string &x = xs->strings(i);
    if (node.input(i) != x)
      return refuse() << "has a Gradient node '" << name << "' whose input "
                      << i << " is '" << node.input(i) << "', but 'xs' says '"
                      << x << "'";
    if (node.output(i).empty() || !result.updates.contains(x))
      continue;
    if (!result.parameters.insert(x).second)
      return refuse() << "takes the gradient of '" << x << "' twice";
    result.trained.push_back({x, node.output(i)});
  }
  return success();
}

LogicalResult Split::readGradients() {
  for (const onnx::NodeProto &node : algorithm.node())
    if (isGradient(node) && failed(readGradient(node)))
      return failure();
  return success();
}

void Split::findChanging() {
  for (const auto &tensor : algorithm.initializer())
    if (result.updates.contains(tensor.name()))
      changing.insert(tensor.name());
  for (const onnx::NodeProto &node : algorithm.node())
    if (isGradient(node) ||
        llvm::any_of(node.input(), [&](const std::string &input) {
          return changing.contains(input);
        }))
      changing.insert(node.output().begin(), node.output().end());
  changing.erase("");
}

// Adds to the graph what the loss needs, and what else is computed from the
// model's tensors, such as an accuracy.
void Split::extendForward() {
  onnx::GraphProto &graph = *model.proto.mutable_graph();
  llvm::StringSet<> computed, needed;
  for (const onnx::NodeProto &node : graph.node())
    computed.insert(node.output().begin(), node.output().end());
  auto any = [](const auto &names, const llvm::StringSet<> &set) {
    return llvm::any_of(names, [&](const std::string &name) {
      return !name.empty() && set.contains(name);
    });
  };
  auto mayJoin = [&](const onnx::NodeProto &node) {
    return !isGradient(node) && !any(node.output(), changing);
  };
  for (const onnx::NodeProto &node : algorithm.node())
    if (mayJoin(node) && any(node.input(), computed))
      computed.insert(node.output().begin(), node.output().end());
  needed.insert(result.loss);
  SmallVector<const onnx::NodeProto *> joining;
  for (const onnx::NodeProto &node : llvm::reverse(algorithm.node()))
    if (mayJoin(node) &&
        (any(node.output(), computed) || any(node.output(), needed))) {
      joining.push_back(&node);
      needed.insert(node.input().begin(), node.input().end());
    }
  for (const onnx::NodeProto *node : llvm::reverse(joining))
    *graph.add_node() = *node;
  for (const auto &tensor : algorithm.initializer())
    if (needed.contains(tensor.name())) {
      *graph.add_initializer() = tensor;
      result.constants.insert(tensor.name());
    }
  for (const auto &input : algorithm.input())
    if (needed.contains(input.name()))
      *graph.add_input() = input;
  for (const auto &output : algorithm.output())
    if (computed.contains(output.name()) &&
        !any(ArrayRef(output.name()), changing))
      *graph.add_output() = output;
  // Without a range, a value is embedded.
  model.initializers.resize(graph.initializer_size());
}

// Returns true for the binding of a running mean or variance, which the import
// of the batch normalisation updates itself.
static bool updatesStatistics(const onnx::NodeProto &node,
                              const std::string &tensor,
                              const std::string &value) {
  if (node.op_type() != "BatchNormalization" || node.input_size() != 5)
    return false;
  for (int i = 1; i < std::min(node.output_size(), 3); ++i)
    if (node.output(i) == value && node.input(2 + i) == tensor)
      return true;
  return false;
}

// Keeps the nodes that the bindings need. The update of a parameter depends on
// the step alone, so what a microbatch computes cannot be read.
LogicalResult Split::extractUpdate() {
  llvm::StringMap<const onnx::NodeProto *> ofMicrobatch;
  for (const onnx::NodeProto &node : model.proto.graph().node())
    for (const std::string &output : node.output())
      ofMicrobatch[output] = &node;
  llvm::StringSet<> data, needed;
  for (const auto &input : model.proto.graph().input())
    data.insert(input.name());
  for (const auto &tensor : model.proto.graph().initializer())
    data.erase(tensor.name());
  std::erase_if(result.updates, [&](const auto &update) {
    auto found = ofMicrobatch.find(update.second);
    return found != ofMicrobatch.end() &&
           updatesStatistics(*found->second, update.first, update.second);
  });
  for (const auto &[tensor, value] : result.updates)
    needed.insert(value);
  SmallVector<const onnx::NodeProto *> kept;
  for (const onnx::NodeProto &node : llvm::reverse(algorithm.node())) {
    if (isGradient(node) ||
        llvm::none_of(node.output(), [&](const std::string &output) {
          return !output.empty() && needed.contains(output);
        }))
      continue;
    kept.push_back(&node);
    needed.insert(node.input().begin(), node.input().end());
  }
  llvm::StringSet<> own;
  for (const onnx::NodeProto *node : kept)
    own.insert(node->output().begin(), node->output().end());
  for (const onnx::NodeProto *node : llvm::reverse(kept)) {
    for (const std::string &input : node->input())
      if (!input.empty() && !own.contains(input) &&
          (ofMicrobatch.contains(input) || data.contains(input)))
        return refuse() << "updates parameters by node '" << node->name()
                        << "' (" << node->op_type() << "), which reads '"
                        << input
                        << "' of a microbatch; an update may read parameters, "
                           "gradients, states and numbers, or give "
                           "--optimizer";
    *result.update.add_node() = *node;
  }
  for (const auto &tensor : algorithm.initializer()) {
    if (needed.contains(tensor.name()) ||
        result.updates.contains(tensor.name()))
      *result.update.add_initializer() = tensor;
    // Old files list initializers among the inputs, too.
    needed.erase(tensor.name());
  }
  for (const auto &input : algorithm.input())
    if (needed.contains(input.name()))
      *result.update.add_input() = input;
  return success();
}

LogicalResult Split::run(bool withUpdate, Training &training) {
  if (failed(readBindings(info.initialization_binding(),
                          "initialization_binding", result.initial)) ||
      failed(readBindings(info.update_binding(), "update_binding",
                          result.updates)) ||
      failed(readGradients()))
    return failure();
  result.initialization = info.initialization();
  findChanging();
  extendForward();
  if (withUpdate && failed(extractUpdate()))
    return failure();
  training = std::move(result);
  return success();
}

FailureOr<Training> Training::take(ModelFile &model, bool withUpdate,
                                   MLIRContext *context) {
  Training training;
  int count = model.proto.training_info_size();
  if (count == 0 && isRuntimeTraining(model.proto.graph()))
    return takeRuntimeTraining(model, context);
  if (count == 0)
    return training;
  if (count > 1)
    return emitError(UnknownLoc::get(context))
           << "'" << model.path << "' has " << count
           << " entries of training_info, but a program has one update; keep "
              "one of them";
  if (failed(Split(model, context).run(withUpdate, training)))
    return failure();
  return training;
}
