// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A module in bf16 is exported with weights in bf16; one under autocast with
// weights in f32 and casts beside their uses; fsdpc.export(dtype=…) writes the
// f32 masters with a cast each. Autocast's casts make a weight 16 bits wide
// where nothing else reads it: gathering the cast of a shard gives the bits of
// casting what was gathered, with half of the bytes.
#include "frontends/onnx/GraphTypes.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/NNDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;
using onnx::TensorProto;

static bool isHalf(int64_t type) {
  return type == TensorProto::BFLOAT16 || type == TensorProto::FLOAT16;
}

// Returns the type that a cast gives, or 0 for other nodes.
static int64_t castType(const onnx::NodeProto &node) {
  if (node.op_type() == "Cast")
    for (const onnx::AttributeProto &attribute : node.attribute())
      if (attribute.name() == "to")
        return attribute.i();
  return 0;
}

GraphTypes::GraphTypes(const onnx::ModelProto &model) {
  const onnx::GraphProto &graph = model.graph();
  for (const onnx::ValueInfoProto &input : graph.input())
    stored[input.name()] = input.type().tensor_type().elem_type();
  for (const onnx::TensorProto &tensor : graph.initializer()) {
    stored[tensor.name()] = tensor.data_type();
    storesBf16 |= tensor.data_type() == TensorProto::BFLOAT16;
    storesF16 |= tensor.data_type() == TensorProto::FLOAT16;
  }
  addNodes(graph.node());
  for (const onnx::FunctionProto &function : model.functions())
    addNodes(function.node());
}

// Names of nested graphs and functions are taken for those of the graph: a name
// that is read there as well counts as read in f32.
void GraphTypes::addNodes(
    const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes) {
  SmallVector<const onnx::GraphProto *> nested;
  auto add = [&](const onnx::NodeProto &node) {
    int64_t type = castType(node);
    castsToBf16 |= type == TensorProto::BFLOAT16;
    castsToF16 |= type == TensorProto::FLOAT16;
    if (!isHalf(type))
      for (const std::string &input : node.input())
        readInF32.insert(input);
    for (const onnx::AttributeProto &attribute : node.attribute()) {
      if (attribute.has_g())
        nested.push_back(&attribute.g());
      for (const onnx::GraphProto &graph : attribute.graphs())
        nested.push_back(&graph);
    }
  };
  llvm::for_each(nodes, add);
  while (!nested.empty()) {
    const onnx::GraphProto *graph = nested.pop_back_val();
    llvm::for_each(graph->node(), add);
    for (const onnx::ValueInfoProto &output : graph->output())
      readInF32.insert(output.name());
  }
}

LogicalResult GraphTypes::resolve(StringRef path, fsdp::ParamType &type,
                                  MLIRContext *context) const {
  bool stores = storesBf16 || storesF16;
  bool bf16 = stores ? storesBf16 : castsToBf16;
  bool f16 = stores ? storesF16 : castsToF16;
  if (bf16 && f16)
    return emitError(UnknownLoc::get(context))
           << "'--param-dtype=graph' takes one type of 16 bits, but '" << path
           << "' has both bf16 and f16; export it with one of them";
  if (!bf16 && !f16) {
    emitRemark(UnknownLoc::get(context))
        << "'" << path
        << "' has no type of 16 bits; '--param-dtype=graph' computes in f32";
    type = fsdp::ParamType();
    return success();
  }
  type.type = bf16 ? ElementType::bf16 : ElementType::f16;
  return success();
}

bool GraphTypes::isF32(StringRef tensor) const {
  return !isHalf(stored.lookup(tensor)) && readInF32.contains(tensor);
}

void frontend::noteType(Block &block, Operation *before, int64_t onnxType) {
  MLIRContext *context = block.getParentOp()->getContext();
  Type type = Float32Type::get(context);
  if (onnxType == TensorProto::BFLOAT16)
    type = BFloat16Type::get(context);
  else if (onnxType == TensorProto::FLOAT16)
    type = Float16Type::get(context);
  auto first = before ? std::next(before->getIterator()) : block.begin();
  for (Operation &op : llvm::make_range(first, block.end())) {
    bool computes = op.getNumOperands() > 0 &&
                    llvm::any_of(op.getResultTypes(), [](Type result) {
                      return getElementTypeOrSelf(result).isF32();
                    });
    if (computes && !op.hasAttr(nn::NNDialect::kTypeAttr))
      op.setAttr(nn::NNDialect::kTypeAttr, TypeAttr::get(type));
  }
}
