// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parts of GraphImporter that import other graphs than the model's: in
// place functions, the branches of If and the bodies of loops, and beside it
// those of the model's own training. Each has a frame of names of its own; a
// branch and a body also see the names around them.
#include "frontends/onnx/GraphImporter.h"
#include "runtime/support/concat.h"

#include "llvm/ADT/ScopeExit.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

LogicalResult
// Outputs take the frame's entries, so a function may return parameters,
// sequences and poisoned values alike.
GraphImporter::inlineFunction(Node &node, const onnx::FunctionProto &function) {
  if (node.proto.input_size() > function.input_size() ||
      node.proto.output_size() > function.output_size())
    return node.refuse(
        "the call has more inputs or outputs than the function declares");
  Frame inner;
  inner.prefix = node.name + "/";
  inner.isInlined = true;
  for (const auto &import : function.opset_import())
    inner.opsets[import.domain() == "ai.onnx" ? "" : import.domain()] =
        import.version();
  // Defaults come first, so that the attributes of the call replace them.
  for (const auto &attribute : function.attribute_proto())
    inner.attributes[attribute.name()] = &attribute; // defaults
  for (const auto &attribute : node.proto.attribute())
    if (const onnx::AttributeProto *resolved = resolve(attribute))
      inner.attributes[attribute.name()] = resolved;
  for (int i = 0; i < node.proto.input_size(); ++i) {
    if (node.proto.input(i).empty())
      continue;
    const Entry &entry = *find(node.proto.input(i));
    // A sequence is copied.
    if (!summary.budgets.spend(Cost::ops, entry.sequence.size()))
      return node.refuse(Budgets::exceeded(Cost::ops));
    inner.values[function.input(i)] = entry;
  }
  // The function sees its parameters only; `inner` has no parent.
  Frame *outer = frame;
  frame = &inner;
  size_t before = refusals.size();
  importNodes(function.node());
  frame = outer;
  for (int i = 0; i < node.proto.output_size(); ++i) {
    auto found = inner.values.find(function.output(i));
    if (refusals.size() == before && found == inner.values.end())
      return node.refuse("the function does not define output '" +
                         function.output(i) + "'");
    if (node.isUsed(i) && found != inner.values.end())
      frame->values[node.proto.output(i)] = found->second;
  }
  return success(refusals.size() == before);
}

// They are constants: parameters are initializers of the model's own graph.
LogicalResult GraphImporter::defineInitializers(Node &node,
                                                const onnx::GraphProto &graph) {
  for (const onnx::TensorProto &tensor : graph.initializer()) {
    FailureOr<DenseElementsAttr> value = tensors.constant(tensor);
    if (failed(value))
      return node.refuse(
          "initializer '" + tensor.name() +
          "' of a nested graph cannot be read: " + tensors.problem);
    define(tensor.name(), b.constant(*value), tensor.data_type());
  }
  return success();
}

// A branch sees the names around it, unlike a function.
LogicalResult GraphImporter::inlineBranch(Node &node,
                                          const onnx::GraphProto &branch) {
  if (branch.output_size() < node.proto.output_size())
    return node.refuse("the branch has too few outputs");
  Frame inner;
  inner.parent = frame;
  inner.attributes = frame->attributes;
  inner.opsets = frame->opsets;
  inner.prefix = node.name + "/";
  inner.isInlined = true;
  frame = &inner;
  size_t before = refusals.size();
  if (succeeded(defineInitializers(node, branch)))
    importNodes(branch.node());
  // Copies the results while the branch's names are still visible.
  SmallVector<Entry> results;
  for (int i = 0; i < node.proto.output_size(); ++i)
    if (Entry *entry = find(branch.output(i).name());
        entry &&
        summary.budgets.spend(Cost::ops, int64_t(entry->sequence.size())))
      results.push_back(*entry);
  frame = inner.parent;
  if (refusals.size() != before)
    return failure();
  if (int(results.size()) != node.proto.output_size())
    return node.refuse("the branch does not define all of its outputs");
  for (int i = 0; i < node.proto.output_size(); ++i)
    if (node.isUsed(i))
      frame->values[node.proto.output(i)] = results[i];
  return success();
}

// `outputs` receives an item per output also after a refusal, so that the
// caller may index it.
LogicalResult GraphImporter::inlineBody(
    Node &node, const onnx::GraphProto &body, const InliningCost::Size &size,
    int64_t iteration, ArrayRef<Item> inputs, SmallVectorImpl<Item> &outputs) {
  if (body.input_size() != int64_t(inputs.size()))
    return node.refuse("the body must have " + Twine(inputs.size()) +
                       " inputs");
  Frame inner;
  inner.parent = frame;
  inner.attributes = frame->attributes;
  inner.opsets = frame->opsets;
  inner.prefix = concat(node.name, "/", iteration, "/");
  inner.isInlined = true;
  for (auto [cost, amount] :
       {std::pair(Cost::nodes, size.nodes + 1),
        std::pair(Cost::inlinedBytes, size.bytes + int64_t(inputs.size()))})
    if (!summary.budgets.spend(cost, amount))
      return node.refuse("iteration " + Twine(iteration) + " needs " +
                         Budgets::exceeded(cost));
  frame = &inner;
  for (auto [input, item] : llvm::zip(body.input(), inputs))
    define(input.name(), item);
  size_t before = refusals.size();
  if (succeeded(defineInitializers(node, body)))
    importNodes(body.node());
  for (const auto &output : body.output()) {
    std::optional<Item> item =
        refusals.size() == before ? lookupItem(output.name()) : std::nullopt;
    int64_t type = item ? elementType(output.name()) : 0;
    if (refusals.size() == before && !item)
      (void)node.refuse("the body does not define output '" + output.name() +
                        "'");
    else if (type && !isPlainType(type))
      (void)node.refuse("output '" + output.name() +
                        "' of the body has element type " + nameOf(type) +
                        ", which loops do not carry");
    outputs.push_back(item.value_or(Item()));
  }
  frame = inner.parent;
  return success(refusals.size() == before);
}

// The graph's own constants come after what is given, which replaces them.
FailureOr<SmallVector<Value>>
GraphImporter::importBeside(Block &body, const onnx::GraphProto &graph,
                            ArrayRef<Given> given,
                            ArrayRef<std::string> outputs) {
  Location loc = b.builder.getUnknownLoc();
  std::string reason = InliningCost(functions).spend(graph, summary.budgets);
  if (!reason.empty())
    return emitError(loc) << "training_info of '" << model.path << "' has "
                          << reason;
  OpBuilder::InsertionGuard guard(b.builder);
  b.builder.setInsertionPointToEnd(&body);
  Frame inner;
  inner.opsets = root.opsets;
  frame = &inner;
  // Random numbers of a microbatch are none of this graph's.
  Value ofMicrobatch = std::exchange(randomValue, Value());
  llvm::scope_exit leave([&] {
    frame = &root;
    randomValue = ofMicrobatch;
    b.modules = nullptr;
    b.loc = loc;
  });
  for (const Given &tensor : given)
    define(tensor.name, tensor.value, tensor.elementType);
  for (const onnx::TensorProto &tensor : graph.initializer()) {
    if (find(tensor.name()))
      continue;
    FailureOr<DenseElementsAttr> value = tensors.constant(tensor);
    if (failed(value))
      return emitError(loc) << "'" << tensor.name() << "' of '" << model.path
                            << "' cannot be read: " << tensors.problem;
    define(tensor.name(), b.constant(*value), tensor.data_type());
  }
  importNodes(graph.node());
  if (failed(refusals.report()))
    return failure();
  SmallVector<Value> values;
  for (const std::string &output : outputs) {
    values.push_back(lookup(output));
    if (!values.back())
      return emitError(loc)
             << "training_info of '" << model.path << "' does not compute '"
             << output << "', which a binding names";
  }
  return values;
}
