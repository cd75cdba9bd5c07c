// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Constants, generated tensors, and type conversions. Generated tensors become
// a small constant or an nn.iota plus broadcasts, never a large constant, so
// that importing a model with long sequences needs no memory for its masks.
#include "frontends/onnx/ops/Rounding.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/reference/Reference.h"
#include "frontends/onnx/GraphImporter.h"
#include "frontends/onnx/Weights.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// ONNX has an attribute per kind of value; one of them is set.
static LogicalResult constant(Node &node) {
  Emitter &b = node.b;
  // Sparse tensors and strings have attributes of their own, which end below.
  // The tensor's bytes are read now, within the budget for folded constants.
  if (const auto *value = node.attribute("value"); value && value->has_t()) {
    auto tensor = node.importer.weights().constant(value->t());
    if (failed(tensor))
      return node.refuse("cannot read attribute 'value': " +
                         node.importer.weights().problem);
    return node.result(b.constant(*tensor), value->t().data_type());
  }
  if (const auto *value = node.attribute("value_int"))
    return node.result(b.reshape(b.integers({value->i()}), {}));
  if (const auto *value = node.attribute("value_float"))
    return node.result(b.scalar(b.builder.getF32Type(), value->f()));
  if (auto values = node.getInts("value_ints"))
    return node.result(b.integers(*values));
  if (const auto *value = node.attribute("value_floats")) {
    SmallVector<float> floats(value->floats().begin(), value->floats().end());
    auto type =
        RankedTensorType::get({int64_t(floats.size())}, b.builder.getF32Type());
    return node.result(
        b.constant(DenseElementsAttr::get(type, ArrayRef(floats))));
  }
  return node.refuse("the value must be a tensor or numbers");
}

// The shape can be huge; a broadcast scalar takes no memory. The shape must be
// constant, as all shapes are.
static LogicalResult constantOfShape(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  Emitter &b = node.b;
  auto shape = node.integers(0, "'input'");
  if (!shape || failed(node.checkShape(*shape)))
    return failure();
  Value value = b.scalar(b.builder.getF32Type(), 0);
  int64_t type = onnx::TensorProto::FLOAT;
  if (const auto *given = node.attribute("value"); given && given->has_t()) {
    auto tensor = node.importer.weights().constant(given->t());
    if (failed(tensor) || (*tensor).getNumElements() != 1)
      return node.refuse("attribute 'value' must have one element");
    value = b.reshape(b.constant(*tensor), {});
    type = given->t().data_type();
  }
  return node.result(b.broadcast(value, *shape), type);
}

// start + step · iota. The length must be constant, since shapes are static. A
// float range of many elements has the rounding of step · i, not of a running
// sum.
static LogicalResult range(Node &node) {
  if (failed(node.expectInputs(3, 3)))
    return failure();
  Emitter &b = node.b;
  auto start = node.number(0, "'start'"), limit = node.number(1, "'limit'");
  auto step = start && limit ? node.number(2, "'delta'") : std::nullopt;
  if (!step)
    return failure();
  // ONNX's max(0, ceil((limit - start) / step)), in doubles for all types.
  double count =
      *step == 0 ? -1 : std::max(0.0, std::ceil((*limit - *start) / *step));
  if (!(count >= 0 && count < double(1 << 30)))
    return node.refuse("the range is infinite or too large");
  Type element = elementOf(node.input(0));
  // The iota is cast before it is scaled, so that a float step stays a float.
  Value numbers = b.cast(b.iota({int64_t(count)}, 0), element);
  if (*step != 1)
    numbers = b.binary<nn::MulOp>(numbers, *step);
  if (*start != 0)
    numbers = b.binary<nn::AddOp>(numbers, *start);
  return node.result(numbers);
}

// Wide floats all become f32 (importedType), so a cast between them is dropped:
// --param-dtype decides the type that the model computes in. The node says
// which casts saturate and how floats round (readConversion): ONNX has
// attributes for 8-bit floats.
static LogicalResult castTo(Node &node, int64_t type) {
  if (!importedType(type, node.b.builder.getContext()))
    return node.refuse("element type " + nameOf(type) + " is not supported");
  return node.result(converted(node.b, node.input(0), node.elementType(0), type,
                               readConversion(node)),
                     type);
}

static LogicalResult cast(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  return castTo(node, node.getInt("to", 0));
}

static LogicalResult castLike(Node &node) {
  if (failed(node.expectInputs(2, 2)))
    return failure();
  return castTo(node, node.elementType(1));
}

// The diagonal is where the column equals the row plus k. Two iotas and a
// comparison: no constant of the matrix's size.
static LogicalResult eyeLike(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  int64_t type = node.getInt("dtype", node.elementType(0));
  Type element = importedType(type, b.builder.getContext());
  if (rankOf(x) != 2 || !element)
    return node.refuse(
        "the input must be a matrix, and attribute 'dtype' a supported type");
  Value row =
      b.binary<nn::AddOp>(b.iota(shapeOf(x), 0), double(node.getInt("k", 0)));
  return node.result(
      b.cast(b.compare(nn::Predicate::eq, b.iota(shapeOf(x), 1), row), element),
      type);
}

// How many elements are not 0 decides the shape, so the input must be constant:
// a mask, say, that the exporter computes from shapes. For a scalar the result
// has no rows, where NumPy's has one.
static LogicalResult nonZero(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  Emitter &b = node.b;
  DenseElementsAttr value = constantOf(node.input(0));
  if (!value)
    return node.refuse("the shape of the result depends on the input's values, "
                       "which must be constant; use a mask with Where instead");
  ArrayRef<int64_t> shape = value.getType().getShape();
  int64_t count = value.getNumElements(), rank = shape.size();
  auto tensor = nn::ReferenceTensor::fromAttr(value);
  if (failed(tensor) || !b.spend(Cost::foldedSteps, count) ||
      !b.spend(Cost::foldedBytes, count * 8 * std::max<int64_t>(rank, 1)))
    return node.refuse("the input is too large");
  SmallVector<int64_t> places; // in row-major order
  for (int64_t i = 0; i < count; ++i)
    if (tensor->isFloat() ? tensor->floats[i] != 0 : tensor->ints[i] != 0)
      places.push_back(i);
  SmallVector<int64_t> indices;
  int64_t inner = count;
  for (int64_t size : shape) {
    inner /= std::max<int64_t>(size, 1);
    for (int64_t place : places)
      indices.push_back(place / inner % size);
  }
  return node.result(
      b.reshape(b.integers(indices), {rank, int64_t(places.size())}),
      onnx::TensorProto::INT64);
}

void frontend::registerConstants(HandlerTable &table) {
  table.add("Constant", 1, constant);
  table.add("ConstantOfShape", 9, constantOfShape);
  table.add("Range", 11, range);
  table.add("Cast", 6, cast, CodeUse::rearranges);
  table.add("CastLike", 15, castLike);
  table.add("EyeLike", 9, eyeLike);
  table.add("NonZero", 9, nonZero);
}
