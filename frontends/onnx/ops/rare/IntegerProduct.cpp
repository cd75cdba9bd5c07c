// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of integers: MatMulInteger, ConvInteger, QLinearMatMul and
// QLinearConv. nn multiplies floats, which are exact up to 2^24: products of
// 8-bit integers are added up in parts that stay below, and the parts as i32.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "frontends/onnx/ops/Rounding.h"
#include "frontends/onnx/ops/Window.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// The products of two differences of 8-bit integers, each at most 255 · 255, of
// which a float adds up so many exactly.
static constexpr int64_t kExactTerms = 256;

// Returns input i less its zero point (input `zero`, if the node has it), as
// f32. The zero point is a scalar, or has one element per index of `axis`.
// Returns null after it has refused the node. Subtracting first keeps the
// product linear: no correction terms for the zero points are needed
// afterwards.
static Value centred(Node &node, int64_t i, int64_t zero, int64_t axis) {
  Emitter &b = node.b;
  Value x = node.input(i);
  if (bitsOf(node.elementType(i)) != 8 || !isa<IntegerType>(elementOf(x)) ||
      elementOf(x).isInteger(1))
    return (void)node.refuse("input " + Twine(i) + " must be int8 or uint8"),
           Value();
  x = b.cast(x, b.builder.getF32Type());
  Value offset = node.input(zero);
  if (!offset)
    return x;
  Shape column(rankOf(x), 1);
  int64_t count = tensorType(offset).getNumElements();
  if (count != 1 && count == shapeOf(x)[axis])
    column[axis] = count;
  else if (count != 1)
    return (void)node.refuse("the zero point in input " + Twine(zero) +
                             " must be a scalar or have one element per row, "
                             "column or channel"),
           Value();
  offset = b.reshape(b.cast(offset, elementOf(x)), column);
  return b.binary<nn::SubOp>(x, b.broadcast(offset, shapeOf(x)));
}

// The product of batches of matrices of whole numbers, as i32. Returns null
// after it has refused the node. The inner dimension is cut into runs of
// kExactTerms; each run is one f32 product, exact because its sum stays below
// 2^24, and the runs are added as i32, which wraps as ONNX's result does.
static Value exactProduct(Node &node, Value lhs, Value rhs) {
  Emitter &b = node.b;
  int64_t rank = std::max(rankOf(lhs), rankOf(rhs));
  if (rankOf(lhs) < 2 || rankOf(rhs) < 2 ||
      shapeOf(lhs).back() != shapeOf(rhs).end()[-2])
    return (void)node.refuse("the operands must be matrices, or batches of "
                             "matrices, that can be multiplied"),
           Value();
  auto batch =
      broadcastShapes(shapeOf(lhs).drop_back(2), shapeOf(rhs).drop_back(2));
  if (!batch)
    return (void)node.refuse("the batch dimensions do not broadcast"), Value();
  Shape shape(*batch);
  shape.append({shapeOf(lhs).end()[-2], shapeOf(rhs).back()});
  if (failed(node.checkShape(shape)))
    return Value();
  auto wide = [&](Value x) {
    Shape whole(*batch);
    whole.append(shapeOf(x).end() - 2, shapeOf(x).end());
    return b.broadcast(x, whole);
  };
  // Slicing comes after broadcasting, so that both operands have the rank of
  // the result.
  lhs = wide(lhs), rhs = wide(rhs);
  int64_t inner = shapeOf(lhs).back();
  Type i32 = b.builder.getI32Type();
  Value sum = b.splat(RankedTensorType::get(shape, i32), 0);
  for (int64_t k = 0; k < inner; k += kExactTerms) {
    int64_t size = std::min(kExactTerms, inner - k);
    Value part = b.matmul(b.slice(lhs, rank - 1, k, size),
                          b.slice(rhs, rank - 2, k, size), shape);
    sum = b.binary<nn::AddOp>(sum, b.cast(part, i32));
  }
  return sum;
}

// Inputs: A, B, and their zero points, per row of A and per column of B.
static LogicalResult matMulInteger(Node &node) {
  if (failed(node.expectInputs(2, 4)))
    return failure();
  Value a = centred(node, 0, 2, rankOf(node.input(0)) - 2);
  Value c = a ? centred(node, 1, 3, rankOf(node.input(1)) - 1) : Value();
  Value sum = c ? exactProduct(node, a, c) : Value();
  return sum ? node.result(sum) : failure();
}

// The convolution of whole numbers x (N×C×…) and filter, as i32. Returns null
// after it has refused the node. A window of K elements may cover kExactTerms /
// K channels at a time; groups keep their channels together.
static Value exactConvolution(Node &node, Value x, Value filter) {
  Emitter &b = node.b;
  int64_t rank = rankOf(x), group = node.getInt("group", 1);
  auto refuse = [&](const Twine &reason) {
    (void)node.refuse(reason);
    return Value();
  };
  if ((rank != 3 && rank != 4) || rankOf(filter) != rank)
    return refuse("only 1 and 2 spatial dimensions are supported");
  auto w =
      readWindow(node, shapeOf(x).drop_front(2), shapeOf(filter).drop_front(2));
  if (!w)
    return Value();
  auto image = [&](Value value) {
    ArrayRef<int64_t> s = shapeOf(value);
    return rank == 4 ? value : b.reshape(value, {s[0], s[1], 1, s[2]});
  };
  x = image(x), filter = image(filter);
  ArrayRef<int64_t> f = shapeOf(filter), s = shapeOf(x);
  if (group < 1 || s[1] % group != 0 || s[1] / group != f[1] ||
      f[0] % group != 0)
    return refuse("the filter does not fit the input's channels in " +
                  Twine(group) + " groups");
  int64_t channels = kExactTerms / (f[2] * f[3]);
  if (channels < 1 || (group > 1 && channels < f[1]))
    return refuse("the filter has too many elements for an exact sum");
  Shape shape = {s[0], f[0], w->output[0], w->output[1]};
  if (failed(node.checkShape(shape)))
    return Value();
  channels = group > 1 ? s[1] : channels;
  Type i32 = b.builder.getI32Type();
  Value sum = b.splat(RankedTensorType::get(shape, i32), 0);
  for (int64_t c = 0; c < s[1]; c += channels) {
    int64_t size = std::min(channels, s[1] - c);
    Value taps = group > 1 ? filter : b.slice(filter, 1, c, size);
    Value part =
        b.make<nn::Conv2dOp>(tensorType(x).clone(shape), b.slice(x, 1, c, size),
                             taps, w->strides, w->pads, w->dilations, group);
    sum = b.binary<nn::AddOp>(sum, b.cast(part, i32));
  }
  if (rank == 4)
    return sum;
  return b.reshape(sum, {shape[0], shape[1], shape[3]});
}

// Inputs: x, filter, and their zero points; pads have the value of x's. The
// zero points are subtracted before the convolution, so padding with 0 is
// padding with x's zero point.
static LogicalResult convInteger(Node &node) {
  if (failed(node.expectInputs(2, 4)))
    return failure();
  Value x = centred(node, 0, 2, 0);
  Value filter = x ? centred(node, 1, 3, 0) : Value();
  Value sum = filter ? exactConvolution(node, x, filter) : Value();
  return sum ? node.result(sum) : failure();
}

// Quantises the sum, an i32, of products of two quantised values: inputs 1, 4
// and 6 are the scales of both operands and of the result, input 7 is the
// result's zero point. The second operand's scale may have one element per
// index of `axis` of the result. i32 to f32 rounds above 2^24. The factor is
// one product, so each element rounds once more.
static LogicalResult requantise(Node &node, Value sum, int64_t axis) {
  Emitter &b = node.b;
  Type f32 = b.builder.getF32Type();
  Value y = b.cast(sum, f32);
  auto scale = [&](int64_t i) -> Value {
    Value value = node.input(i);
    int64_t count = tensorType(value).getNumElements();
    Shape column(rankOf(y), 1);
    if (failed(node.expectFloat(value)))
      return Value();
    if (count != 1 && (i != 4 || count != shapeOf(y)[axis]))
      return (void)node.refuse("the scale in input " + Twine(i) +
                               " has too many elements"),
             Value();
    column[axis] = count;
    return b.broadcast(b.reshape(value, column), shapeOf(y));
  };
  Value first = scale(1), second = first ? scale(4) : Value();
  Value third = second ? scale(6) : Value();
  if (!third)
    return failure();
  Value factor = b.binary<nn::DivOp>(b.binary<nn::MulOp>(first, second), third);
  y = b.unary<nn::RoundOp>(b.binary<nn::MulOp>(y, factor));
  int64_t type = node.elementType(7);
  Value zero = node.input(7);
  if (bitsOf(type) != 8 || !isa<IntegerType>(elementOf(zero)) ||
      tensorType(zero).getNumElements() != 1)
    return node.refuse(
        "the zero point of the result must be one int8 or uint8");
  zero = b.broadcast(b.reshape(b.cast(zero, f32), {}), shapeOf(y));
  return node.result(saturated(b, b.binary<nn::AddOp>(y, zero), type), type);
}

// Inputs: a, its scale and zero point, b, its scale and zero point, and those
// of the result. The input of each scale and zero point follows its operand: 1
// and 2 for a, 4 and 5 for b, 6 and 7 for the result.
static LogicalResult qLinearMatMul(Node &node) {
  if (failed(node.expectInputs(8, 8)))
    return failure();
  Value a = centred(node, 0, 2, rankOf(node.input(0)) - 2);
  Value c = a ? centred(node, 3, 5, rankOf(node.input(3)) - 1) : Value();
  Value sum = c ? exactProduct(node, a, c) : Value();
  return sum ? requantise(node, sum, rankOf(sum) - 1) : failure();
}

// The same of a convolution, and a bias of i32 whose scale is the product of
// the operands'.
static LogicalResult qLinearConv(Node &node) {
  if (failed(node.expectInputs(8, 9)))
    return failure();
  Emitter &b = node.b;
  Value x = centred(node, 0, 2, 0);
  Value filter = x ? centred(node, 3, 5, 0) : Value();
  Value sum = filter ? exactConvolution(node, x, filter) : Value();
  if (!sum)
    return failure();
  // It is in units of the sum, so it is added before the result is scaled.
  if (Value bias = node.input(8)) {
    int64_t channels = shapeOf(sum)[1];
    if (elementOf(bias) != elementOf(sum) ||
        shapeOf(bias) != ArrayRef<int64_t>({channels}))
      return node.refuse("the bias must have one int32 per output channel");
    Shape perChannel(rankOf(sum) - 1, 1);
    perChannel[0] = channels;
    sum = b.binary<nn::AddOp>(
        sum, b.broadcast(b.reshape(bias, perChannel), shapeOf(sum)));
  }
  return requantise(node, sum, 1);
}

void frontend::registerIntegerProduct(HandlerTable &table) {
  table.add("MatMulInteger", 10, matMulInteger);
  table.add("ConvInteger", 10, convInteger);
  table.add("QLinearMatMul", 10, qLinearMatMul);
  table.add("QLinearConv", 10, qLinearConv);
}
