// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Constants, and the folding of nn ops. A constant that repeats along a
// dimension is kept as a smaller constant and an nn.broadcast, and elementwise
// ops fold in the smaller shape: the causal masks that exporters write out,
// B×1×T×T, never exist in memory. Budgets bound every constant that is made and
// all of them together (Budgets.h).
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/Emitter.h"

#include "frontends/onnx/Fold.h"

#include "mlir/IR/Matchers.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// ---- constants ----

// Returns true if a constant of this type may be made.
static bool isFoldable(RankedTensorType type) {
  std::optional<int64_t> count = countElements(type.getShape());
  return count && *count * nn::elementBytes(type) <= kFoldedBytes;
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
  int64_t width = nn::elementBytes(type), stride = width;
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
    int64_t outer = 1, inner = nn::elementBytes(type);
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
    allowed =
        budgets.spend(cost, made.getNumElements() * nn::elementBytes(made));
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
