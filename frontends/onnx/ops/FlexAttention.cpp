// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// FlexAttention of the preview domain: attention whose scores and weights pass
// through graphs of the model. Without graphs it is nn.attention; a graph may
// do anything to the scores, so with one it is products and a softmax.
#include "compiler/dialects/nn/CompositeOps.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "frontends/onnx/GraphImporter.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// Applies the graph of an attribute, if the node has it, to scores or weights.
// Returns null after it has refused the node. The graph is imported in place
// with the scores as its input; its own nodes count against the budgets.
static Value modified(Node &node, StringRef name, Value x) {
  const onnx::AttributeProto *graph = node.attribute(name);
  if (!graph)
    return x;
  if (!graph->has_g() || graph->g().output_size() != 1)
    return (void)node.refuse("attribute '" + name +
                             "' must be a graph with one output"),
           Value();
  SmallVector<Item> outputs;
  InliningCost::Size size = node.importer.costOf(graph->g());
  if (failed(node.importer.inlineBody(node, graph->g(), size, 0,
                                      {Item::tensor(x)}, outputs)))
    return Value();
  Value result = outputs[0].value;
  if (!result || result.getType() != x.getType())
    return (void)node.refuse("the graph '" + name +
                             "' must keep the shape and the element type"),
           Value();
  return result;
}

// Query heads may be a multiple of the key's, as in Attention.
static LogicalResult flexAttention(Node &node) {
  if (failed(node.expectInputs(3, 3)))
    return failure();
  Emitter &b = node.b;
  Value x[3];
  for (int64_t i = 0; i < 3; ++i) {
    x[i] = node.input(i);
    if (failed(node.expectFloat(x[i])))
      return failure();
    if (rankOf(x[i]) != 4 || tensorType(x[i]).getNumElements() == 0)
      return node.refuse("inputs must have rank 4 and must not be empty");
  }
  // See If: such a graph would escape the count of nodes before the import.
  for (const onnx::AttributeProto &given : node.proto.attribute())
    if (!given.ref_attr_name().empty())
      return node.refuse("attributes that the caller of a function passes are "
                         "not supported");
  auto [q, k, v] = x;
  ArrayRef<int64_t> qs = shapeOf(q), ks = shapeOf(k), vs = shapeOf(v);
  if (qs[0] != ks[0] || ks.take_front(3) != vs.take_front(3) ||
      qs[3] != ks[3] || qs[1] % ks[1] != 0)
    return node.refuse("query, key and value have incompatible shapes");
  double scale = node.getFloat("scale", 1 / std::sqrt(double(qs[3])));
  Shape shape = {qs[0], qs[1], qs[2], vs[3]};
  if (!node.attribute("score_mod") && !node.attribute("prob_mod")) {
    // The log-sum-exp of each row of scores, which the backward reads.
    auto lse = RankedTensorType::get(qs.take_front(3), b.builder.getF32Type());
    auto result = b.op<nn::AttentionOp>(
        TypeRange{tensorType(q).clone(shape), lse}, q, k, v, Value(),
        b.builder.getF64FloatAttr(scale), UnitAttr());
    return node.result(result.getResult());
  }
  // Repeats each head of the keys and values for its group of queries.
  auto repeated = [&](Value value) {
    ArrayRef<int64_t> s = shapeOf(value);
    int64_t times = qs[1] / s[1];
    Value wide = b.broadcast(b.reshape(value, {s[0], s[1], 1, s[2], s[3]}),
                             {s[0], s[1], times, s[2], s[3]});
    return b.reshape(wide, {s[0], qs[1], s[2], s[3]});
  };
  Value scores = b.matmul(q, repeated(k), {qs[0], qs[1], qs[2], ks[2]},
                          /*transposeLhs=*/false, /*transposeRhs=*/true);
  scores = modified(node, "score_mod", b.binary<nn::MulOp>(scores, scale));
  Value weights =
      scores ? modified(node, "prob_mod", b.unary<nn::SoftmaxOp>(scores))
             : Value();
  return weights ? node.result(b.matmul(weights, repeated(v), shape))
                 : failure();
}

void frontend::registerFlexAttention(HandlerTable &table) {
  table.add("ai.onnx.preview.FlexAttention", 1, flexAttention);
}
