// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the metadata of torch's exporter and of the Python package.
//
// torch.export makes a module of its own of each block under torch.no_grad() or
// torch.autocast. The exporter inlines it, but the stack traces of its nodes
// begin in the generated file "<eval_with_key>.N" and not in the user's.
#include "frontends/onnx/TorchExport.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

TracedCall frontend::tracedCall(const onnx::NodeProto &node) {
  return parseTracedCall(
      metadata(node.metadata_props(), "pkg.torch.onnx.fx_node"));
}

bool frontend::isDeclaredFrozen(const onnx::ValueInfoProto &value) {
  return metadata(value.metadata_props(), "fsdpc.requires_grad") == "False";
}

// Returns the name of the block in which the node was traced, or "".
static StringRef blockOf(const onnx::NodeProto &node) {
  StringRef trace =
      metadata(node.metadata_props(), "pkg.torch.onnx.stack_trace");
  if (!trace.consume_front("File \"<eval_with_key>"))
    return "";
  return trace.take_until([](char c) { return c == '"'; });
}

// Returns true for the casts by which autocast is known.
static bool castsToHalf(const TracedCall &call) {
  StringRef type = call.argument(/*never by position*/ ~size_t(0), "dtype");
  return call.target == "aten._to_copy.default" &&
         (type == "torch.bfloat16" || type == "torch.float16");
}

// One pass over the nodes. A block that casts to a half type was autocast's,
// whose gradients the graph has.
TorchExport::TorchExport(const onnx::ModelProto &model)
    : fromTorch(model.producer_name() == "pytorch"),
      complete(!metadata(model.metadata_props(), "fsdpc.export").empty()) {
  llvm::StringSet<> outputs, exempt;
  for (const onnx::ValueInfoProto &output : model.graph().output())
    outputs.insert(output.name());
  for (const onnx::NodeProto &node : model.graph().node()) {
    hasTraces |=
        !metadata(node.metadata_props(), "pkg.torch.onnx.stack_trace").empty();
    TracedCall call = tracedCall(node);
    hasTraining |= call.target.contains("batch_norm_legit_functional");
    StringRef block = blockOf(node);
    if (block.empty())
      continue;
    blocks.insert(block);
    // A model that was an fx.GraphModule itself is one such block with the
    // loss.
    if (castsToHalf(call) ||
        llvm::any_of(node.output(), [&](const std::string &name) {
          return outputs.contains(name);
        }))
      exempt.insert(block);
  }
  for (const auto &block : exempt)
    blocks.erase(block.getKey());
  findStaleBuffers(model.graph());
}

// Calls `visit` with what a node reads, also in its bodies. The running
// statistics of a batch norm are left out: it updates them itself, and does not
// read them in training.
static void forEachRead(const onnx::NodeProto &node,
                        llvm::function_ref<void(StringRef)> visit) {
  bool isBatchNorm = node.op_type() == "BatchNormalization";
  for (auto [i, input] : llvm::enumerate(node.input()))
    if (!isBatchNorm || (i != 3 && i != 4))
      visit(input);
  for (const onnx::AttributeProto &attribute : node.attribute())
    for (const onnx::NodeProto &inner : attribute.g().node())
      forEachRead(inner, visit);
}

// Walks back from the outputs. Updated buffers that no output depends on, such
// as counters of steps, do no harm.
void TorchExport::findStaleBuffers(const onnx::GraphProto &graph) {
  llvm::StringSet<> updates, buffers, needed;
  for (const SignatureEntry &entry : parseSignature(
           metadata(graph.metadata_props(),
                    "pkg.torch.export.ExportedProgram.graph_signature")))
    if (StringRef(entry.kind).ends_with("_MUTATION")) {
      updates.insert(entry.name);
      // An input has its own value in every step.
      if (entry.kind != "USER_INPUT_MUTATION")
        buffers.insert(entry.target);
    }
  if (buffers.empty())
    return;
  // Some exporters also return the updated values.
  for (const onnx::ValueInfoProto &output : graph.output())
    if (!updates.contains(output.name()))
      needed.insert(output.name());
  for (const onnx::NodeProto &node : llvm::reverse(graph.node())) {
    if (llvm::none_of(node.output(), [&](const std::string &name) {
          return needed.contains(name);
        }))
      continue;
    forEachRead(node, [&](StringRef input) {
      needed.insert(input);
      if (buffers.contains(input))
        staleBuffers.try_emplace(&node, input);
    });
  }
}

StringRef TorchExport::staleBuffer(const onnx::NodeProto &node) const {
  auto found = staleBuffers.find(&node);
  return found == staleBuffers.end() ? StringRef() : StringRef(found->second);
}

std::string TorchExport::unknowns() const {
  if (!fromTorch || complete)
    return "";
  return std::string("requires_grad=False, ") +
         (hasTraces ? "" : "torch.no_grad(), ") + "hooks and custom backwards";
}

bool TorchExport::mayLackGradient(const onnx::NodeProto &node) const {
  return !complete && blocks.contains(blockOf(node));
}

bool TorchExport::fixesStatistics(const onnx::NodeProto &node) const {
  return (complete || hasTraining) &&
         tracedCall(node).target.contains("batch_norm_legit_no_training");
}
