// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Imports a graph node by node. Handlers see values; the importer keeps the
// names (Names.cpp), scopes and refusals (NodeChecks.cpp). A refused node
// poisons its outputs, and nodes that read poisoned values are skipped
// silently, so that one run reports every unsupported node of a model once.
#include "frontends/onnx/GraphImporter.h"

#include "frontends/onnx/GraphTypes.h"

#include "llvm/ADT/ScopeExit.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// "ai.onnx" and "" are the same domain, written in two ways.
GraphImporter::GraphImporter(const ModelFile &model, Weights &weights,
                             ParameterTable &parameters,
                             const fsdp::CompileOptions &options,
                             const TorchExport &torch, Refusals &refusals,
                             MLIRContext *context, ImportSummary &summary)
    : model(model), tensors(weights), parameters(parameters), options(options),
      torch(torch), refusals(refusals), summary(summary),
      b(context, summary.budgets) {
  for (const auto &import : model.proto.opset_import())
    root.opsets[import.domain() == "ai.onnx" ? "" : import.domain()] =
        import.version();
  for (const auto &function : model.proto.functions())
    functions[{function.domain(), function.name()}] = &function;
}

// ---- nodes ----

// Marks the outputs of a refused node, so that its readers are skipped
// silently.
void GraphImporter::poison(const onnx::NodeProto &proto) {
  for (const std::string &output : proto.output()) {
    Entry &entry = frame->values[output];
    entry = Entry();
    entry.isPoisoned = true;
  }
}

// Returns the ONNX type of the first float output, or 0.
int64_t GraphImporter::floatTypeOf(const onnx::NodeProto &proto) {
  for (const std::string &output : proto.output()) {
    Entry *entry = output.empty() ? nullptr : find(output);
    if (entry && entry->value && isa<FloatType>(elementOf(entry->value)))
      return entry->elementType;
  }
  return 0;
}

// Sets the location and the modules of the ops that the node will build.
void GraphImporter::enterScope(const onnx::NodeProto &proto,
                               const std::string &name) {
  b.loc = NameLoc::get(b.builder.getStringAttr(name));
  std::vector<std::string> paths = parsePythonList(
      metadata(proto.metadata_props(), "pkg.torch.onnx.name_scopes"));
  std::vector<std::string> classes = parsePythonList(
      metadata(proto.metadata_props(), "pkg.torch.onnx.class_hierarchy"));
  if (paths.empty() || paths.size() != classes.size()) {
    if (!frame->isInlined) // functions and branches keep the caller's modules
      b.modules = nullptr;
    return;
  }
  auto attributes = [&](const std::vector<std::string> &texts) {
    return llvm::map_to_vector(texts, [&](const std::string &text) {
      return b.builder.getStringAttr(text);
    });
  };
  b.modules = nn::ModulesAttr::get(b.builder.getContext(), attributes(paths),
                                   attributes(classes));
}

// Imports one node. The outputs of a node that is refused are poisoned.
void GraphImporter::importNode(const onnx::NodeProto &proto) {
  std::string name = proto.name();
  if (name.empty() && proto.output_size() > 0)
    name = proto.output(0);
  name = frame->prefix + name;
  // Nodes of a function without modules of their own have those of the call,
  // and the next node has its own again.
  nn::ModulesAttr outerModules = b.modules;
  Location outerLoc = b.loc;
  llvm::scope_exit leave([&] {
    b.modules = outerModules;
    b.loc = outerLoc;
  });
  enterScope(proto, name);

  std::string domain = proto.domain() == "ai.onnx" ? "" : proto.domain();
  auto opset = frame->opsets.find(domain);
  Node node(*this, b, proto, name,
            opset == frame->opsets.end() ? 0 : opset->second);
  Block &block = *b.builder.getInsertionBlock();
  Operation *before = block.empty() ? nullptr : &block.back();
  if (failed(importNode(node, domain)))
    return poison(proto);
  if (options.paramType.ofGraph)
    noteType(block, before, floatTypeOf(proto));
}

// Finds the node's function or handler and calls it. The order of the checks is
// that of their messages: the first thing that is wrong is the one to report.
LogicalResult GraphImporter::importNode(Node &node, StringRef domain) {
  const onnx::NodeProto &proto = node.proto;
  auto refused = [&](const Twine &reason) {
    refuse(node, reason);
    return failure();
  };
  // A function of the model takes precedence over a handler of the same name.
  auto function = functions.find({proto.domain(), proto.op_type()});
  bool isFunction = function != functions.end();
  Handler handler = handlers.find(
      domain.empty() ? proto.op_type() : (domain + "." + proto.op_type()).str(),
      node.version);
  if (!isFunction && !handler)
    return refused(unsupported(node));
  if (failed(checkInputs(node, isFunction)))
    return failure();
  if (std::string lost = lostInExport(proto); !lost.empty())
    return refused(lost);
  if (std::optional<Cost> cost = exceededBy(proto))
    return refused("the nodes up to this one need " + Budgets::exceeded(*cost) +
                   "; export a smaller or simpler graph");
  // A handler that fails must have refused. If one has not, this names the node
  // all the same.
  size_t before = refusals.size();
  if (failed(isFunction ? inlineFunction(node, *function->second)
                        : handler(node)))
    return refusals.size() == before ? refused("the node is malformed")
                                     : failure();
  if (isDetach(tracedCall(proto)))
    stopGradients(proto);
  return checkOutputs(node, isFunction);
}

// Nodes are in topological order by ONNX's rules.
void GraphImporter::importNodes(
    const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes) {
  for (const onnx::NodeProto &node : nodes) {
    // After the op budget every further node would be refused for it, too.
    if (refusals.size() >= kMostRefusals ||
        (b.hasTooManyOps && !refusals.empty()))
      return;
    importNode(node);
  }
}

// ---- the whole graph ----

// Emits an error for tensors that nodes read but nothing defines: the model was
// saved without its weights.
LogicalResult GraphImporter::checkDefined() {
  const onnx::GraphProto &graph = model.proto.graph();
  llvm::StringSet<> defined;
  for (const auto &input : graph.input())
    defined.insert(input.name());
  for (const auto &tensor : graph.initializer())
    defined.insert(tensor.name());
  for (const auto &node : graph.node())
    for (const std::string &output : node.output())
      defined.insert(output);
  SmallVector<StringRef> missing;
  for (const auto &node : graph.node())
    for (const std::string &input : node.input())
      if (!input.empty() && defined.insert(input).second)
        missing.push_back(input);
  if (missing.empty())
    return success();
  InFlightDiagnostic error = emitError(b.builder.getUnknownLoc());
  error << "'" << model.path << "' does not define " << missing.size()
        << " tensors that its nodes use (";
  for (auto [i, name] : llvm::enumerate(ArrayRef(missing).take_front(3)))
    error << (i ? ", '" : "'") << name << "'";
  error << (missing.size() > 3 ? ", …" : "")
        << "); to export without weights, save with "
           "include_initializers=False, keep_initializers_as_inputs=True";
  refusals.attachTo(error);
  return error;
}

// Defines inputs, then initializers: a name that is both has the initializer's
// value.
LogicalResult GraphImporter::run(func::FuncOp function,
                                 ArrayRef<std::string> inputs) {
  if (failed(checkDefined()))
    return failure();
  // Comes before any node is imported: nested functions can ask for 2^40 nodes.
  std::string reason =
      InliningCost(functions).spend(model.proto.graph(), summary.budgets);
  if (!reason.empty()) {
    InFlightDiagnostic error = emitError(b.builder.getUnknownLoc());
    error << "'" << model.path << "' has " << reason
          << "; export with fewer functions, or inline them with onnx.inliner";
    refusals.attachTo(error);
    return error;
  }
  Block *body = function.addEntryBlock();
  b.builder.setInsertionPointToEnd(body);
  for (auto [name, argument] : llvm::zip(inputs, body->getArguments()))
    define(name, argument);
  for (const auto &input : model.proto.graph().input()) {
    Entry &entry = root.values[input.name()];
    if (const NamedTensor *tensor = parameters.find(input.name()))
      entry.loaded = tensor;
    entry.elementType = input.type().tensor_type().elem_type();
  }
  for (const auto &tensor : model.proto.graph().initializer()) {
    Entry &entry = root.values[tensor.name()];
    entry.loaded = parameters.find(tensor.name());
    entry.elementType = tensor.data_type();
  }
  for (const auto &name : refusals.tensorNames())
    root.values[name.getKey()].isPoisoned = true;
  importNodes(model.proto.graph().node());
  b.modules = nullptr;
  b.loc = b.builder.getUnknownLoc();
  return refusals.report();
}
