// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds one element, or one vector of elements, of a value at an index. Ops
// fall into three classes: elementwise ops compute from their operands at the
// same index, ops that move elements (IndexMap.h) forward to an operand at
// another index, and the rest (constant, iota, take_along_axis, random numbers)
// have code here.
#include "compiler/codegen/kernels/ElementEmitter.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::kernels;
using nn::shapeOf;
using nn::tensorType;

// Reductions come from earlier stages, and elements from the same scope.
Lanes ElementEmitter::element(Value value, const Index &index) {
  if (Lanes result = reduced.lookup(value); result.value)
    return result;
  Key key{value.getAsOpaquePointer(), {index.begin(), index.end()}};
  auto it = known.find(key);
  if (it != known.end())
    return it->second;
  Lanes result = build(value, index);
  known[key] = result;
  return result;
}

Lanes ElementEmitter::build(Value value, const Index &index) {
  Type element = tensorType(value).getElementType();
  if (auto argument = dyn_cast<BlockArgument>(value))
    return load(buffers[argument.getArgNumber()], element,
                space.linearize(index, shapeOf(value)));

  // An output that an earlier loop over this row has stored is read back,
  // provided that the element lies in this row.
  auto stored = storedRows.find(value);
  if (stored != storedRows.end()) {
    // A kept row holds one row only, so its address counts from the row's
    // beginning, while a result is addressed as a whole.
    int64_t size = tensorType(value).getNumElements() / plan.rows;
    IndexExpr linear = space.linearize(index, shapeOf(value));
    IndexExpr within = space.add(linear, space.scale(plan.row, -size));
    IndexRange range = space.range(within);
    // An index that depends on the row in another way may lead into a row that
    // is computed elsewhere.
    bool ofRow = llvm::none_of(within.terms, [&](auto term) {
      return space.atom(term.first).depth == 0;
    });
    if (ofRow && range.low >= 0 && range.high < size)
      return load(buffers[kernel.getNumArguments() + stored->second], element,
                  isResult(stored->second) ? linear : within);
  }

  return TypeSwitch<Operation *, Lanes>(value.getDefiningOp())
      .Case([&](nn::ConstantOp op) { return constant(op); })
      .Case([&](nn::IotaOp op) { return iota(op, index); })
      .Case([&](nn::TakeAlongAxisOp op) { return takeAlongAxis(op, index); })
      .Case([&](nn::DropoutOp op) { return dropout(op, index); })
      .Case([&](nn::UniformOp op) { return uniform(op, index); })
      .Default([&](Operation *op) {
        return movesElements(op) ? moved(op, index) : elementwise(op, index);
      });
}

// Kernels only contain splat constants; others are operands.
Lanes ElementEmitter::constant(nn::ConstantOp op) {
  Type type = scalarType(tensorType(op.getResult()).getElementType());
  auto elements = cast<DenseElementsAttr>(op.getValue());
  insertAt(0);
  if (isa<FloatType>(type)) {
    APFloat value = elements.getSplatValue<APFloat>();
    bool losesInfo;
    value.convert(cast<FloatType>(type).getFloatSemantics(),
                  APFloat::rmNearestTiesToEven, &losesInfo);
    return {make<arith::ConstantOp>(builder.getFloatAttr(type, value)), 0};
  }
  APInt value = elements.getSplatValue<APInt>();
  return {make<arith::ConstantOp>(builder.getIntegerAttr(type, value)), 0};
}

// All operands have the shape of the result, so they are read at the same
// index.
Lanes ElementEmitter::elementwise(Operation *op, const Index &index) {
  SmallVector<Lanes, 3> operands;
  int depth = 0;
  bool vector = false;
  for (Value operand : op->getOperands()) {
    operands.push_back(element(operand, index));
    depth = std::max(depth, operands.back().depth);
    vector |= isa<VectorType>(operands.back().value.getType());
  }
  insertAt(depth);
  SmallVector<Value, 3> values;
  for (const Lanes &operand : operands)
    values.push_back(vector ? spread(operand.value) : operand.value);
  auto elementwise = cast<nn::ElementwiseOpInterface>(op);
  Value result = elementwise.buildScalar(builder, loc, values);
  // Code computes in f32. The op's result must nevertheless be a number of its
  // 16-bit type, as if each op had stored it, or fusion would change bits.
  // Exact ops (a copy, a maximum) keep it one.
  if (!elementwise.isExact())
    result = roundTo(tensorType(op->getResult(0)).getElementType(), result);
  return {result, depth};
}

Lanes ElementEmitter::select(const Lanes &condition, Lanes onTrue,
                             Lanes onFalse) {
  int depth = std::max({condition.depth, onTrue.depth, onFalse.depth});
  insertAt(depth);
  Value c = condition.value, x = onTrue.value, y = onFalse.value;
  // Lanes may differ in the condition alone: the values are then the same in
  // all lanes and become vectors.
  bool vector = isa<VectorType>(c.getType()) || isa<VectorType>(x.getType()) ||
                isa<VectorType>(y.getType());
  if (vector) {
    x = spread(x);
    y = spread(y);
    if (isa<VectorType>(c.getType()))
      c = spread(c);
  }
  return {make<arith::SelectOp>(c, x, y), depth};
}

// Two comparisons; LLVM turns them into one if it can.
Lanes ElementEmitter::holds(const Condition &condition) {
  int depth = space.depth(condition.expr);
  bool vector = vectorizes(condition.expr);
  Value value =
      vector ? vectorIndex(condition.expr) : scalarIndex(condition.expr);
  insertAt(depth);
  auto compare = [&](arith::CmpIPredicate predicate, int64_t bound) -> Value {
    return make<arith::CmpIOp>(predicate, value,
                               splatLike(value.getType(), bound));
  };
  Value low = compare(arith::CmpIPredicate::sge, condition.allowed.low);
  Value high = compare(arith::CmpIPredicate::sle, condition.allowed.high);
  return {make<arith::AndIOp>(low, high), depth};
}

// Returns `value` where element `at` of `ids` lies in [low, low + count), else
// NaN, or the smallest integer. The load of the value is clamped, so it is
// safe.
Lanes ElementEmitter::whereInside(const Lanes &value, Type element, Value ids,
                                  const Index &at, int64_t low, int64_t count) {
  Lanes raw = this->element(ids, at);
  insertAt(raw.depth);
  Value id = toI64(raw.value, tensorType(ids).getElementType());
  if (low != 0)
    id = make<arith::SubIOp>(id, splatLike(id.getType(), low));
  // One unsigned comparison tests both ends.
  Value inside = make<arith::CmpIOp>(arith::CmpIPredicate::ult, id,
                                     splatLike(id.getType(), count));
  // An id outside the table must not look like a row. NaN reaches the loss and
  // is seen; integers have no NaN and take their least value.
  insertAt(0);
  Type type = scalarType(element);
  double poison = std::numeric_limits<double>::quiet_NaN();
  if (!isa<FloatType>(type)) {
    bool isUnsigned = element.isInteger(1) || element.isUnsignedInteger();
    poison =
        isUnsigned ? 0 : -std::ldexp(1.0, type.getIntOrFloatBitWidth() - 1);
  }
  return select({inside, raw.depth}, value, {splatLike(type, poison), 0});
}

// Reads through an op that moves elements, by its index map.
Lanes ElementEmitter::moved(Operation *op, const Index &index) {
  SmallVector<Source, 1> sources = sourcesOf(space, op, index);
  Type type = scalarType(tensorType(op->getResult(0)).getElementType());
  auto zero = [&]() -> Lanes {
    insertAt(0);
    return {splatLike(type, 0), 0};
  };
  Lanes result;
  // Builds selects from the last source to the first, since the first whose
  // conditions hold decides.
  for (const Source &source : llvm::reverse(sources)) {
    Lanes value = element(source.value, source.index);
    if (source.conditions.empty()) {
      result = value;
      continue;
    }
    if (!result.value)
      result = zero();
    Lanes condition = holds(source.conditions.front());
    for (const Condition &other : llvm::drop_begin(source.conditions)) {
      Lanes next = holds(other);
      insertAt(0);
      Lanes never = {splatLike(builder.getI1Type(), 0), 0};
      condition = select(condition, next, never);
    }
    result = select(condition, value, result);
  }
  if (!result.value)
    return zero();
  auto lookup = dyn_cast<nn::EmbeddingOp>(op);
  if (!lookup)
    return result;
  // Negative ids count from the end.
  int64_t rows = shapeOf(lookup.getTable())[0];
  return whereInside(result, tensorType(lookup.getResult()).getElementType(),
                     lookup.getIds(), Index(index.begin(), index.end() - 1),
                     -rows, 2 * rows);
}

Lanes ElementEmitter::iota(nn::IotaOp op, const Index &index) {
  const IndexExpr &expr = index[op.getAxis()];
  Type element = tensorType(op.getResult()).getElementType();
  Type type = scalarType(element);
  bool vector = vectorizes(expr);
  int depth = space.depth(expr);
  // Uses lanes of 32 bits if the values fit: they take half the registers.
  std::optional<int64_t> stride = space.laneStride(expr);
  bool isShort = vector && stride && !type.isInteger(64) &&
                 space.range(expr).high + width * *stride < (int64_t(1) << 31);
  Value value = vector && !isShort ? vectorIndex(expr) : scalarIndex(expr);
  insertAt(depth);
  if (isShort) {
    SmallVector<int32_t> steps;
    for (int64_t lane = 0; lane < width; ++lane)
      steps.push_back(lane * *stride);
    Type i32 = builder.getI32Type();
    Value step = make<arith::ConstantOp>(DenseElementsAttr::get(
        VectorType::get({width}, i32), ArrayRef<int32_t>(steps)));
    value =
        make<arith::AddIOp>(spread(make<arith::TruncIOp>(i32, value)), step);
  }
  unsigned bits = getElementTypeOrSelf(value.getType()).getIntOrFloatBitWidth();
  type = lanesOf(type, vector);
  if (isa<FloatType>(element)) {
    value = make<arith::SIToFPOp>(type, value);
    value = roundTo(element, value);
  } else if (element.getIntOrFloatBitWidth() < bits) {
    value = make<arith::TruncIOp>(type, value);
  }
  return {value, depth};
}

// The index is clamped for the load, and the value is replaced where the index
// was outside.
Lanes ElementEmitter::takeAlongAxis(nn::TakeAlongAxisOp op,
                                    const Index &index) {
  int64_t size = shapeOf(op.getInput()).back();
  Index source = index;
  source.back() = space.dynamic(op.getIndex(), index, size, /*wraps=*/false);
  return whereInside(element(op.getInput(), source),
                     tensorType(op.getResult()).getElementType(), op.getIndex(),
                     index, 0, size);
}
