// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adds up nodes, bytes and depth over the graph of calls. A function's size is
// computed once, however often it is called, so functions that call each other
// 2^40 times cost no more than their text.
#include "frontends/onnx/InliningCost.h"

using namespace fsdpc::frontend;

// Saturates at one past the limit: enough to be refused, and sums of two such
// values do not overflow.
static int64_t limited(Cost cost, int64_t value) {
  return std::min(value, Budgets::info(cost).limit + 1);
}

// `level` is the depth of nesting, which bounds the recursion.
InliningCost::Size InliningCost::sizeOf(const Nodes &nodes, int64_t level) {
  Size total;
  for (const onnx::NodeProto &node : nodes) {
    Size size = sizeOf(node, level);
    total.nodes = limited(Cost::nodes, total.nodes + size.nodes);
    total.bytes = limited(Cost::inlinedBytes, total.bytes + size.bytes);
    total.depth = std::max(total.depth, size.depth);
  }
  return total;
}

// A call becomes the nodes of its function, each under a name that begins with
// the call's. At most one branch of an If is inlined.
InliningCost::Size InliningCost::sizeOf(const onnx::NodeProto &node,
                                        int64_t level) {
  // The graph's own nodes, at level 0, are not copied.
  int64_t name = node.name().size() + 1, own = level ? node.ByteSizeLong() : 0;
  Size inner;
  auto function = functions.find({node.domain(), node.op_type()});
  if (function != functions.end()) {
    inner = sizeOf(*function->second, level + 1);
  } else {
    for (const onnx::AttributeProto &attribute : node.attribute()) {
      if (!attribute.has_g())
        continue;
      Size branch = level < Budgets::info(Cost::depth).limit
                        ? sizeOf(attribute.g().node(), level + 1)
                        : Size{0, 0, 1};
      inner.nodes = std::max(inner.nodes, branch.nodes);
      inner.bytes = std::max(inner.bytes, branch.bytes);
      inner.depth = std::max(inner.depth, branch.depth + 1);
    }
  }
  // Neither product overflows: names are shorter than 2^31 bytes.
  return {limited(Cost::nodes, inner.nodes + 1),
          limited(Cost::inlinedBytes, own + inner.bytes + name * inner.nodes),
          inner.depth};
}

// A depth of -1 marks a function whose size is being computed.
InliningCost::Size InliningCost::sizeOf(const onnx::FunctionProto &function,
                                        int64_t level) {
  int64_t deepest = Budgets::info(Cost::depth).limit;
  auto [entry, isNew] = known.try_emplace(&function);
  // A function that is entered anew calls itself.
  if (!isNew && entry->second.depth < 0)
    return {0, 0, deepest + 1};
  if (!isNew)
    return entry->second;
  // Not remembered: the same function may be reached by a shorter way.
  if (level > deepest) {
    known.erase(&function);
    return {0, 0, 1};
  }
  entry->second.depth = -1;
  Size size = sizeOf(function.node(), level);
  // Each call copies the function's defaults and opsets.
  size.bytes = limited(Cost::inlinedBytes,
                       size.bytes + int64_t(function.input_size()) +
                           64 * (function.attribute_proto_size() +
                                 int64_t(function.opset_import_size())));
  size.depth = limited(Cost::depth, size.depth + 1);
  known[&function] = size;
  return size;
}

std::string InliningCost::spend(const onnx::GraphProto &graph,
                                Budgets &budgets) {
  Size size = sizeOf(graph.node(), 0);
  for (auto [cost, amount] :
       {std::pair(Cost::depth, size.depth), std::pair(Cost::nodes, size.nodes),
        std::pair(Cost::inlinedBytes, size.bytes)})
    if (!budgets.spend(cost, amount))
      return Budgets::exceeded(cost);
  return "";
}
