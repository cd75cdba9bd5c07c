// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random numbers inside a model: the noise of a VAE or of diffusion, dropped
// paths, Gumbel noise. They are nn.uniform, a function of the model, the seed
// of the run, the step, the microbatch and the element, so that they do not
// depend on the number of ranks and a recomputed one is the same. The attribute
// `seed` of a node is not read: --seed of the program stands for all of them.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/Node.h"

#include "frontends/onnx/ElementTypes.h"
#include "frontends/onnx/GraphImporter.h"

#include <numbers>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// Returns numbers between 0 and 1, neither included.
static Value uniform(Node &node, ArrayRef<int64_t> shape) {
  Emitter &b = node.b;
  auto type = RankedTensorType::get(shape, b.builder.getF32Type());
  return b.make<nn::UniformOp>(
      type, node.importer.random(),
      b.builder.getI64IntegerAttr(node.importer.drawOrdinal()));
}

// Box and Muller, A Note on the Generation of Random Normal Deviates, 1958:
// sqrt(-2 ln u) · cos(2π v).
static Value normal(Node &node, ArrayRef<int64_t> shape) {
  Emitter &b = node.b;
  Value radius = b.unary<nn::SqrtOp>(
      b.binary<nn::MulOp>(b.unary<nn::LogOp>(uniform(node, shape)), -2));
  Value angle = b.binary<nn::MulOp>(uniform(node, shape), 2 * std::numbers::pi);
  return b.binary<nn::MulOp>(radius, b.unary<nn::CosOp>(angle));
}

// Returns the shape of the result: that of the input, or attribute 'shape'.
static std::optional<Shape> shapeOfDraw(Node &node, bool isLike) {
  if (failed(node.expectInputs(isLike, isLike)))
    return std::nullopt;
  if (isLike)
    return Shape(shapeOf(node.input(0)));
  std::optional<SmallVector<int64_t>> shape = node.getInts("shape");
  if (!shape) {
    (void)node.refuse("attribute 'shape' is missing");
    return std::nullopt;
  }
  if (failed(node.checkShape(*shape)))
    return std::nullopt;
  return Shape(shape->begin(), shape->end());
}

// Returns the ONNX type of the result: attribute 'dtype', else the input's.
// Refuses what is not a plain float.
static std::optional<int64_t> typeOfDraw(Node &node, bool isLike) {
  int64_t type = node.getInt("dtype", isLike ? node.elementType(0)
                                             : onnx::TensorProto::FLOAT);
  Type element = importedType(type, node.b.builder.getContext());
  if (element && isa<FloatType>(element) && !isStorageType(type))
    return type;
  (void)node.refuse("random numbers of type " + nameOf(type) +
                    " are not supported");
  return std::nullopt;
}

// Emits draw · scale + offset.
template <bool isLike, bool isNormal> static LogicalResult random(Node &node) {
  std::optional<Shape> shape = shapeOfDraw(node, isLike);
  std::optional<int64_t> type = shape ? typeOfDraw(node, isLike) : std::nullopt;
  if (!type)
    return failure();
  double offset = node.getFloat(isNormal ? "mean" : "low", 0);
  double scale =
      isNormal ? node.getFloat("scale", 1) : node.getFloat("high", 1) - offset;
  Emitter &b = node.b;
  Value draw = isNormal ? normal(node, *shape) : uniform(node, *shape);
  if (scale != 1)
    draw = b.binary<nn::MulOp>(draw, scale);
  if (offset != 0)
    draw = b.binary<nn::AddOp>(draw, offset);
  Type element = importedType(*type, b.builder.getContext());
  return node.result(b.cast(draw, element), *type);
}

// 1 with the probability that the input holds, else 0. No gradient passes.
static LogicalResult bernoulli(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  Value probability = node.input(0);
  int64_t type = node.getInt("dtype", node.elementType(0));
  Type element = importedType(type, b.builder.getContext());
  if (!element || isStorageType(type))
    return node.refuse("results of type " + nameOf(type) +
                       " are not supported");
  // In 16 bits a draw could round up to 1.
  Value draw = uniform(node, shapeOf(probability));
  if (nn::isHalf(elementOf(probability)))
    probability = b.cast(probability, elementOf(draw));
  draw = b.cast(draw, elementOf(probability));
  return node.result(
      b.cast(b.compare(nn::Predicate::lt, draw, probability), element), type);
}

// Indices of classes, drawn by unnormalised log-probabilities with replacement.
// The class whose log-probability plus Gumbel noise, -ln(-ln u), is the largest
// has just its probability (Gumbel, Statistical Theory of Extreme Values,
// 1954), so there are no sums of probabilities to search.
static LogicalResult multinomial(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  // In 16 bits many sums would be equal, of which the first counts.
  Value logits = node.input(0);
  if (nn::isHalf(elementOf(logits)))
    logits = b.cast(logits, b.builder.getF32Type());
  int64_t type = node.getInt("dtype", onnx::TensorProto::INT32);
  int64_t samples = node.getInt("sample_size", 1);
  if (type != onnx::TensorProto::INT32 && type != onnx::TensorProto::INT64)
    return node.refuse("attribute 'dtype' is " + nameOf(type) +
                       "; it must be int32 or int64");
  if (rankOf(logits) != 2 || shapeOf(logits)[1] == 0 || samples < 1)
    return node.refuse("the input must be a matrix with classes, and attribute "
                       "'sample_size' at least 1");
  int64_t rows = shapeOf(logits)[0], classes = shapeOf(logits)[1];
  Shape shape = {rows, samples, classes};
  if (failed(node.checkShape(shape)))
    return failure();
  auto minusLog = [&](Value x) {
    return b.unary<nn::NegOp>(b.unary<nn::LogOp>(x));
  };
  Value noise =
      b.cast(minusLog(minusLog(uniform(node, shape))), elementOf(logits));
  Value sum = b.binary<nn::AddOp>(
      b.broadcast(b.reshape(logits, {rows, 1, classes}), shape), noise);
  Value largest = b.broadcast(b.reduce(nn::ReduceKind::max, sum, {2}), shape);
  Value places = b.iota(shape, 2);
  // The first of equal sums counts. NaN attains nothing, so a row with one is
  // the last class.
  Value chosen = b.select(b.compare(nn::Predicate::eq, sum, largest), places,
                          b.like(places, double(classes - 1)));
  return node.result(
      b.cast(b.reshape(b.reduce(nn::ReduceKind::min, chosen, {2}),
                       {rows, samples}),
             importedType(type, b.builder.getContext())),
      type);
}

void frontend::registerRandom(HandlerTable &table) {
  table.add("RandomUniform", 1, random<false, false>);
  table.add("RandomUniformLike", 1, random<true, false>);
  table.add("RandomNormal", 1, random<false, true>);
  table.add("RandomNormalLike", 1, random<true, true>);
  table.add("Bernoulli", 15, bernoulli);
  table.add("Multinomial", 7, multinomial);
}
