// Builds and folds nn ops. A constant that repeats along a dimension is kept as
// a smaller constant and an nn.broadcast, and elementwise ops fold in the
// smaller shape: the causal masks that exporters write out, B×1×T×T, never
// exist in memory. Budgets bound every constant that is made and all of them
// together (Budgets.h).
#include "frontends/onnx/Emitter.h"

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

// ---- constants ----

// Returns true if a constant of this type may be made.
static bool isFoldable(RankedTensorType type) {
  std::optional<int64_t> count = countElements(type.getShape());
  return count && *count * elementBytes(type) <= kFoldedBytes;
}

// Returns the constant under an nn.broadcast, or the constant itself; null if
// the value is not constant.
static DenseElementsAttr reducedConstant(Value value) {
  if (auto broadcast = value.getDefiningOp<nn::BroadcastOp>())
    value = broadcast.getInput();
  DenseElementsAttr constant;
  matchPattern(value, m_Constant(&constant));
  return constant;
}

// Broadcasts a constant to `type`, or returns null if the result is too large.
static DenseElementsAttr expand(DenseElementsAttr value,
                                RankedTensorType type) {
  if (value.getType() == type)
    return value;
  if (value.isSplat())
    return value.resizeSplat(type);
  if (!isFoldable(type))
    return nullptr;
  // Walks the result in row-major order. The input's stride is 0 along
  // dimensions in which it repeats.
  auto from = cast<RankedTensorType>(value.getType());
  int64_t rank = type.getRank(), missing = rank - from.getRank();
  Shape strides(rank, 0), index(rank, 0);
  int64_t width = elementBytes(type), stride = width;
  for (int64_t d = from.getRank() - 1; d >= 0; --d) {
    if (from.getDimSize(d) != 1)
      strides[d + missing] = stride;
    stride *= from.getDimSize(d);
  }
  std::vector<char> elements = bytesOf(value);
  std::vector<char> result(type.getNumElements() * width);
  const char *at = elements.data();
  for (size_t to = 0; to < result.size(); to += width) {
    memcpy(&result[to], at, width);
    for (int64_t d = rank - 1; d >= 0; --d) {
      at += strides[d];
      if (++index[d] < type.getDimSize(d))
        break;
      at -= strides[d] * index[d];
      index[d] = 0;
    }
  }
  return constantFrom(type, result);
}

// Expanding may cost memory once per caller; the emitter's own folds use the
// reduced form.
DenseElementsAttr frontend::constantOf(Value value) {
  DenseElementsAttr constant = reducedConstant(value);
  return constant ? expand(constant, tensorType(value)) : nullptr;
}

// The limit is checked on the type first, so that a large constant is not even
// expanded.
std::optional<SmallVector<int64_t>> frontend::integersOf(Value value,
                                                         int64_t limit) {
  if (!elementOf(value).isIntOrIndex() ||
      tensorType(value).getNumElements() > limit)
    return std::nullopt;
  DenseElementsAttr constant = constantOf(value);
  if (!constant)
    return std::nullopt;
  // True is 1; sign-extending one bit would make it -1.
  bool isBool = elementOf(value).isInteger(1);
  SmallVector<int64_t> result;
  for (const APInt &element : constant.getValues<APInt>())
    result.push_back(isBool ? element.getZExtValue() : element.getSExtValue());
  return result;
}

// ---- folding ----

// Reduces dimensions along which a constant does not change to 1.
static DenseElementsAttr reduceRepeats(DenseElementsAttr value) {
  auto type = cast<RankedTensorType>(value.getType());
  if (value.isSplat())
    return value.resizeSplat(RankedTensorType::get({}, type.getElementType()));
  if (type.getRank() < 2)
    return value;
  Shape shape(type.getShape());
  std::vector<char> bytes = bytesOf(value);
  // Reads the bytes as [outer, shape[d], inner]. If all slices along d are
  // equal, it keeps the first, so later dimensions look at fewer bytes.
  for (int64_t d = 0; d < type.getRank(); ++d) {
    int64_t outer = 1, inner = elementBytes(type);
    for (int64_t i = 0; i < d; ++i)
      outer *= shape[i];
    for (int64_t i = d + 1; i < type.getRank(); ++i)
      inner *= shape[i];
    bool repeats = shape[d] > 1;
    for (int64_t o = 0; o < outer && repeats; ++o)
      for (int64_t k = 1; k < shape[d] && repeats; ++k)
        repeats = memcmp(&bytes[o * shape[d] * inner],
                         &bytes[(o * shape[d] + k) * inner], inner) == 0;
    if (!repeats)
      continue;
    for (int64_t o = 1; o < outer; ++o)
      memmove(&bytes[o * inner], &bytes[o * shape[d] * inner], inner);
    bytes.resize(outer * inner);
    shape[d] = 1;
  }
  return constantFrom(type.clone(shape), bytes);
}

// A splat costs nothing: its attribute stores one element of any shape.
DenseElementsAttr Emitter::expandOnce(DenseElementsAttr value,
                                      RankedTensorType type) {
  if (value.getType() == type)
    return value;
  auto [entry, fresh] = expanded.try_emplace({value, type});
  if (fresh && (value.isSplat() ||
                (isFoldable(type) && allows(type.getNumElements(), type))))
    entry->second = expand(value, type);
  return entry->second;
}

// Remembers the first budget that ran out, which a later node's error names
// (Node::integers).
bool Emitter::allows(int64_t steps, RankedTensorType made) {
  Cost cost = Cost::foldedSteps;
  bool allowed = budgets.spend(cost, steps);
  if (allowed) {
    cost = Cost::foldedBytes;
    allowed = budgets.spend(cost, made.getNumElements() * elementBytes(made));
  }
  if (!allowed && !unfolded)
    unfolded = cost;
  return allowed;
}

// A failed fold is remembered as null, so it is not tried again either.
DenseElementsAttr Emitter::foldOnce(Operation *op,
                                    ArrayRef<DenseElementsAttr> operands) {
  SmallVector<const void *, 6> key = {
      op->getName().getAsOpaquePointer(),
      op->getPropertiesAsAttribute().getAsOpaquePointer(),
      op->getResult(0).getType().getAsOpaquePointer()};
  for (DenseElementsAttr operand : operands)
    key.push_back(operand.getAsOpaquePointer());
  auto [entry, fresh] = folded.try_emplace(key);
  if (fresh && allows(foldingCost(op), llvm::cast<RankedTensorType>(
                                           op->getResult(0).getType()))) {
    entry->second = foldConstants(op, operands);
    if (entry->second)
      entry->second = reduceRepeats(entry->second);
  }
  return entry->second;
}

// Folds on reduced constants. There are three cases: a broadcast only changes
// the type that the constant is broadcast to; an elementwise op is computed in
// the smaller shape of its operands; any other op needs its operands in full.
// Returns the op's result if it stays, or a constant, and then the op is
// erased.
Value Emitter::fold(Operation *op) {
  Value result = op->getResult(0);
  auto type = tensorType(result);
  SmallVector<DenseElementsAttr> operands;
  for (Value operand : op->getOperands())
    if (DenseElementsAttr constant = reducedConstant(operand))
      operands.push_back(constant);
    else
      return result;

  DenseElementsAttr value;
  auto isRepeated = [](auto pair) {
    return std::get<0>(pair).getType() != std::get<1>(pair).getType();
  };
  bool repeated =
      llvm::any_of(llvm::zip(op->getOperands(), operands), isRepeated);
  if (repeated && isa<nn::BroadcastOp>(op)) {
    value = operands[0];
  } else if (repeated && isa<nn::ElementwiseOpInterface>(op)) {
    // Computed in the shape to which the reduced operands broadcast, with a
    // clone of the op that is never inserted.
    std::optional<Shape> shape = Shape();
    for (DenseElementsAttr operand : operands)
      shape = broadcastShapes(
          *shape, llvm::cast<RankedTensorType>(operand.getType()).getShape());
    if (!isFoldable(type.clone(*shape)))
      return result;
    for (DenseElementsAttr &operand : operands)
      operand = expandOnce(
          operand, RankedTensorType::get(*shape, operand.getElementType()));
    // The clone only carries name and attributes; the types of its operands are
    // those of the original.
    Operation *smaller = op->clone();
    smaller->getResult(0).setType(type.clone(*shape));
    value = foldOnce(smaller, operands);
    smaller->destroy();
  } else {
    // A broadcast of a full constant is the reduced form already.
    if (!isFoldable(type) || isa<nn::BroadcastOp>(op))
      return result;
    for (auto [constant, operand] : llvm::zip(operands, op->getOperands()))
      if (!(constant = expandOnce(constant, tensorType(operand))))
        return result;
    // An iota has no operands and folds here.
    value = foldOnce(op, operands);
  }
  if (!value)
    return result;
  op->erase();
  return broadcast(constant(value), type.getShape());
}

// ---- building ----

// Gives the op the module scope of the current node.
void Emitter::annotate(Operation *op) {
  // Charged before folding: an op that folds has cost its construction.
  if (!budgets.spend(Cost::ops, 1 + op->getNumOperands()))
    hasTooManyOps = true;
  if (scope)
    op->setAttr(nn::NNDialect::kScopeAttr, scope);
  if (classes)
    op->setAttr(nn::NNDialect::kClassAttr, classes);
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
  // Reducing dimensions of size 1 changes nothing, for every kind.
  if (axes.empty() || shapeOf(input) == ArrayRef<int64_t>(shape))
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
