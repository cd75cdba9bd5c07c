// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds nn ops for the nodes of a graph: each function makes one op in its
// plain form, with the modules of the node, or the constant that the op folds
// to (ConstantFolding.cpp).
#include "frontends/onnx/Emitter.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "frontends/onnx/Fold.h"

#include "mlir/IR/Matchers.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// The limit leaves room for products with element sizes and costs in 64 bits.
std::optional<int64_t> frontend::countElements(ArrayRef<int64_t> shape) {
  constexpr int64_t limit = int64_t(1) << 40;
  if (int64_t(shape.size()) > kHighestRank)
    return std::nullopt;
  int64_t count = 1;
  for (int64_t size : shape) {
    if (size < 0 || (size > 0 && count > limit / size))
      return std::nullopt;
    count *= size;
  }
  return count;
}

// Aligns shapes at their last dimensions. A size of 1 yields to any other,
// including 0.
std::optional<Shape> frontend::broadcastShapes(ArrayRef<int64_t> a,
                                               ArrayRef<int64_t> b) {
  Shape result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i) {
    int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      return std::nullopt;
    result[result.size() - 1 - i] = x == 1 ? y : x;
  }
  if (!countElements(result))
    return std::nullopt;
  return result;
}

// Gives the op the modules of the current node.
void Emitter::annotate(Operation *op) {
  // Charged before folding: an op that folds has cost its construction.
  if (!budgets.spend(Cost::ops, 1 + op->getNumOperands()))
    hasTooManyOps = true;
  if (modules)
    op->setAttr(nn::NNDialect::kModulesAttr, modules);
}

// Not through `make`: a constant has nothing to fold.
Value Emitter::constant(DenseElementsAttr value) {
  return nn::ConstantOp::create(builder, loc, value.getType(), value);
}

Value Emitter::scalar(Type element, double value) {
  Attribute attribute = nn::scalarAttr(element, value);
  return constant(
      DenseElementsAttr::get(RankedTensorType::get({}, element), attribute));
}

// The type may be of any size; the constant has one element.
Value Emitter::splat(RankedTensorType type, double value) {
  return broadcast(scalar(type.getElementType(), value), type.getShape());
}

Value Emitter::integers(ArrayRef<int64_t> values) {
  auto type =
      RankedTensorType::get({int64_t(values.size())}, builder.getI64Type());
  return constant(DenseElementsAttr::get(type, values));
}

Value Emitter::like(Value like, double value) {
  return splat(tensorType(like), value);
}

// Built with `op` and not `make`: a broadcast of a constant is the reduced
// form, so there is nothing to fold.
Value Emitter::broadcast(Value input, ArrayRef<int64_t> shape) {
  if (shapeOf(input) == shape)
    return input;
  // A broadcast of a broadcast is a single broadcast.
  if (auto inner = input.getDefiningOp<nn::BroadcastOp>())
    return broadcast(inner.getInput(), shape);
  return op<nn::BroadcastOp>(tensorType(input).clone(shape), input);
}

// A reshape of a reshape is a single reshape.
Value Emitter::reshape(Value input, ArrayRef<int64_t> shape) {
  if (shapeOf(input) == shape)
    return input;
  if (auto inner = input.getDefiningOp<nn::ReshapeOp>())
    return reshape(inner.getInput(), shape);
  return make<nn::ReshapeOp>(tensorType(input).clone(shape), input);
}

// Result dimension i is the input's dimension permutation[i].
Value Emitter::transpose(Value input, ArrayRef<int64_t> permutation) {
  Shape shape, identity;
  for (auto [i, from] : llvm::enumerate(permutation)) {
    shape.push_back(shapeOf(input)[from]);
    identity.push_back(i);
  }
  if (permutation == ArrayRef<int64_t>(identity))
    return input;
  return make<nn::TransposeOp>(tensorType(input).clone(shape), input,
                               permutation);
}

Value Emitter::cast(Value input, Type element) {
  if (elementOf(input) == element)
    return input;
  return make<nn::CastOp>(RankedTensorType::get(shapeOf(input), element),
                          input);
}

Value Emitter::slice(Value input, ArrayRef<int64_t> offsets,
                     ArrayRef<int64_t> strides, ArrayRef<int64_t> shape) {
  auto isOne = [](int64_t stride) { return stride == 1; };
  if (shapeOf(input) == shape && llvm::all_of(strides, isOne))
    return input;
  return make<nn::SliceOp>(tensorType(input).clone(shape), input, offsets,
                           strides);
}

Value Emitter::slice(Value input, int64_t axis, int64_t begin, int64_t size) {
  Shape offsets(rankOf(input), 0), strides(rankOf(input), 1),
      shape(shapeOf(input));
  offsets[axis] = begin;
  shape[axis] = size;
  return slice(input, offsets, strides, shape);
}

Value Emitter::concat(ValueRange inputs, int64_t axis) {
  if (inputs.size() == 1)
    return inputs[0];
  Shape shape(shapeOf(inputs[0]));
  shape[axis] = 0;
  for (Value input : inputs)
    shape[axis] += shapeOf(input)[axis];
  return make<nn::ConcatOp>(tensorType(inputs[0]).clone(shape), inputs, axis);
}

Value Emitter::iota(ArrayRef<int64_t> shape, int64_t axis) {
  // One number per position along the axis, broadcast to the other dimensions.
  Shape reduced(shape.size(), 1);
  reduced[axis] = shape[axis];
  Value numbers = make<nn::IotaOp>(
      RankedTensorType::get(reduced, builder.getI64Type()), axis);
  return broadcast(numbers, shape);
}

Value Emitter::reduce(nn::ReduceKind kind, Value input,
                      ArrayRef<int64_t> axes) {
  Shape shape(shapeOf(input));
  for (int64_t axis : axes)
    shape[axis] = 1;
  // A dimension of size 1 may be the samples of a microbatch of one, and
  // weigh-losses must see that they are combined. It removes the op.
  if (axes.empty())
    return input;
  return make<nn::ReduceOp>(tensorType(input).clone(shape), kind, input, axes);
}

// nn has no mean; the sum is divided by the number of elements.
Value Emitter::mean(Value input, ArrayRef<int64_t> axes) {
  double count = 1;
  for (int64_t axis : axes)
    count *= shapeOf(input)[axis];
  return binary<nn::DivOp>(reduce(nn::ReduceKind::sum, input, axes), count);
}

// No bias; fuse-epilogues adds one later.
Value Emitter::matmul(Value lhs, Value rhs, ArrayRef<int64_t> shape,
                      bool transposeLhs, bool transposeRhs) {
  return make<nn::MatmulOp>(tensorType(lhs).clone(shape), lhs, rhs, Value(),
                            transposeLhs, transposeRhs);
}

Value Emitter::compare(nn::Predicate predicate, Value lhs, Value rhs) {
  auto type = RankedTensorType::get(shapeOf(lhs), builder.getI1Type());
  return make<nn::CmpOp>(type, predicate, lhs, rhs);
}

Value Emitter::select(Value condition, Value onTrue, Value onFalse) {
  return make<nn::SelectOp>(onTrue.getType(), condition, onTrue, onFalse);
}
