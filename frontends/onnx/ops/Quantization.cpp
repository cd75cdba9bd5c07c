// QuantizeLinear and DequantizeLinear, per tensor, per axis or in blocks. The
// quantised types are integers here. Rounding has a gradient of 0, so a model
// trains what stands behind its dequantised weights, not the integers.
#include "frontends/onnx/Node.h"

#include "frontends/onnx/Weights.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// Brings a scale or zero point to the shape of `x`: a scalar, a vector along
// the axis, or one per block of the axis. Returns null after it has refused the
// node.
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

// (x - zero) · scale.
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
  return node.result(b.binary<nn::MulOp>(x, scale));
}

namespace {
struct Range {
  double least, most;
};
} // namespace

static std::optional<Range> rangeOf(int64_t onnxType) {
  using onnx::TensorProto;
  switch (onnxType) {
  case TensorProto::UINT8:
    return Range{0, 255};
  case TensorProto::INT8:
    return Range{-128, 127};
  case TensorProto::UINT16:
    return Range{0, 65535};
  case TensorProto::INT16:
    return Range{-32768, 32767};
  }
  return std::nullopt;
}

// round(x / scale) + zero, saturated. The type is that of 'output_dtype', else
// that of the zero point; both of its forms of 8 bits keep their own type here,
// 16 bits are stored in 32.
static LogicalResult quantize(Node &node) {
  if (failed(node.expectInputs(2, 3)) ||
      failed(node.expectFloat(node.input(0))) ||
      failed(node.expectFloat(node.input(1))))
    return failure();
  Emitter &b = node.b;
  using onnx::TensorProto;
  Value x = node.input(0), zero = node.input(2);
  int64_t type = node.getInt("output_dtype", 0);
  if (type == 0 && zero && elementOf(zero).isInteger(8))
    type = elementOf(zero).isUnsignedInteger() ? TensorProto::UINT8
                                               : TensorProto::INT8;
  else if (type == 0 && zero)
    return node.refuse("the zero point's type is not supported; use int8 or "
                       "uint8, or 'output_dtype'");
  if (type == 0)
    type = TensorProto::UINT8;
  std::optional<Range> range = rangeOf(type);
  if (!range)
    return node.refuse("attribute 'output_dtype' is " + Twine(type) +
                       "; int8, uint8, int16 and uint16 are supported");
  Value scale = alongAxis(node, node.input(1), x);
  if (!scale)
    return failure();
  Value y = b.unary<nn::RoundOp>(b.binary<nn::DivOp>(x, scale));
  if (zero) {
    zero = alongAxis(node, zero, x);
    if (!zero)
      return failure();
    y = b.binary<nn::AddOp>(y, b.cast(zero, elementOf(y)));
  }
  y = b.binary<nn::MinimumOp>(b.binary<nn::MaximumOp>(y, range->least),
                              range->most);
  return node.result(b.cast(y, importedType(type, b.builder.getContext())));
}

void frontend::registerQuantization(HandlerTable &table) {
  table.add("DequantizeLinear", 10, dequantize);
  table.add("QuantizeLinear", 10, quantize);
}
