// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// QuantizeLinear and DequantizeLinear, per tensor, per axis or in blocks, and
// DynamicQuantizeLinear. Rounding has a gradient of 0, so a model trains what
// stands behind its dequantised weights, not the quantised values.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/ops/Rounding.h"

#include "onnx-ml.pb.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// Brings a scale or zero point to the shape of `x`: a scalar, a vector along
// the axis, or one per block of the axis. Returns null after it has refused the
// node. Blocks repeat each scale block_size times along the axis; the last
// block may be cut short.
static Value alongAxis(Node &node, Value scale, Value x) {
  Emitter &b = node.b;
  if (tensorType(scale).getNumElements() == 1)
    return b.broadcast(b.reshape(scale, {}), shapeOf(x));
  auto axis = node.axis(node.getInt("axis", 1), rankOf(x));
  if (!axis)
    return Value();
  int64_t block = node.getInt("block_size", 0);
  if (block == 0 && rankOf(scale) == 1 &&
      shapeOf(scale)[0] == shapeOf(x)[*axis]) {
    Shape perElement(rankOf(x), 1);
    perElement[*axis] = shapeOf(x)[*axis];
    return b.broadcast(b.reshape(scale, perElement), shapeOf(x));
  }
  Shape blocks(shapeOf(x));
  if (block > 0)
    blocks[*axis] = (blocks[*axis] + block - 1) / block;
  if (block <= 0 || shapeOf(scale) != ArrayRef<int64_t>(blocks))
    return (void)node.refuse("the scale and the zero point must be scalars, "
                             "vectors along 'axis', or one per block"),
           Value();
  Shape split(blocks), wide, whole(blocks);
  split.insert(split.begin() + *axis + 1, 1);
  wide = split;
  wide[*axis + 1] = block;
  whole[*axis] *= block;
  if (failed(node.checkShape(whole)))
    return Value();
  Value repeated = b.reshape(b.broadcast(b.reshape(scale, split), wide), whole);
  return b.slice(repeated, *axis, 0, shapeOf(x)[*axis]);
}

// (x - zero) · scale. The scale may be a parameter, and then gets a gradient.
static LogicalResult dequantize(Node &node) {
  if (failed(node.expectInputs(2, 3)) ||
      failed(node.expectFloat(node.input(1))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0), scale = alongAxis(node, node.input(1), x);
  if (!scale)
    return failure();
  Type real = elementOf(scale);
  x = b.cast(x, real);
  if (node.has(2)) {
    Value zero = alongAxis(node, node.input(2), x);
    if (!zero)
      return failure();
    x = b.binary<nn::SubOp>(x, b.cast(zero, real));
  }
  return node.result(b.binary<nn::MulOp>(x, scale),
                     node.getInt("output_dtype", node.elementType(1)));
}

// round(x / scale) + zero, saturated; for a narrow float x / scale + zero,
// rounded. The type is that of 'output_dtype', else that of the zero point.
// Rounds half to even, as ONNX says.
static LogicalResult quantize(Node &node) {
  if (failed(node.expectInputs(2, 3)) ||
      failed(node.expectFloat(node.input(0))) ||
      failed(node.expectFloat(node.input(1))))
    return failure();
  Emitter &b = node.b;
  using onnx::TensorProto;
  Value x = node.input(0), zero = node.input(2);
  int64_t type = node.getInt("output_dtype", 0);
  if (type == 0)
    type = zero ? node.elementType(2) : int64_t(TensorProto::UINT8);
  bool isFloat = isNarrowFloat(type);
  if (!isFloat && (bitsOf(type) > 16 ||
                   !(isSignedInteger(type) || isUnsignedInteger(type))))
    return node.refuse("the quantised type is " + nameOf(type) +
                       "; integers of up to 16 bits, float8 and float4 are "
                       "supported");
  Value scale = alongAxis(node, node.input(1), x);
  if (!scale)
    return failure();
  Value y = b.binary<nn::DivOp>(x, scale);
  if (!isFloat)
    y = b.unary<nn::RoundOp>(y);
  if (zero) {
    zero = alongAxis(node, zero, x);
    if (!zero)
      return failure();
    y = b.binary<nn::AddOp>(y, b.cast(zero, elementOf(y)));
  }
  if (isFloat)
    return node.result(rounded(b, y, type, readConversion(node)), type);
  return node.result(saturated(b, y, type), type);
}

// The scale and the zero point come from the extremes of x and 0, which are
// quantised to uint8. 0 is in the range, so that it is exact after
// quantisation. A tensor of zeros has scale 1/255.
static LogicalResult dynamicQuantize(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  if (tensorType(x).getNumElements() == 0)
    return node.refuse("the input is empty");
  Shape axes;
  for (int64_t i = 0; i < rankOf(x); ++i)
    axes.push_back(i);
  auto extreme = [&](nn::ReduceKind kind) {
    return b.reshape(b.reduce(kind, x, axes), {});
  };
  Value most = b.binary<nn::MaximumOp>(extreme(nn::ReduceKind::max), 0.0);
  Value least = b.binary<nn::MinimumOp>(extreme(nn::ReduceKind::min), 0.0);
  Value isFlat = b.compare(nn::Predicate::eq, most, least);
  Value width =
      b.select(isFlat, b.like(most, 1), b.binary<nn::SubOp>(most, least));
  Value scale = b.binary<nn::DivOp>(width, 255.0);
  Value zero = b.unary<nn::NegOp>(b.binary<nn::DivOp>(least, scale));
  zero = b.binary<nn::MinimumOp>(b.binary<nn::MaximumOp>(zero, 0.0), 255.0);
  zero = b.unary<nn::RoundOp>(zero);
  Value y = b.unary<nn::RoundOp>(
      b.binary<nn::DivOp>(x, b.broadcast(scale, shapeOf(x))));
  y = b.binary<nn::AddOp>(y, b.broadcast(zero, shapeOf(x)));
  using onnx::TensorProto;
  node.setOutput(0, saturated(b, y, TensorProto::UINT8), TensorProto::UINT8);
  node.setOutput(1, scale, node.elementType(0));
  node.setOutput(2, saturated(b, zero, TensorProto::UINT8), TensorProto::UINT8);
  return success();
}

void frontend::registerQuantization(HandlerTable &table) {
  table.add("DequantizeLinear", 10, dequantize);
  table.add("QuantizeLinear", 10, quantize);
  table.add("DynamicQuantizeLinear", 11, dynamicQuantize);
}
