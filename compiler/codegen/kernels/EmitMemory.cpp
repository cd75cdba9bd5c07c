// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loads, stores, conversions between memory and code, and index arithmetic. A
// load takes one of four forms: a scalar if the address is the same in all
// lanes, a vector if the lanes are adjacent, a shorter vector if runs of lanes
// share their elements, else one load per lane. Indices
// become code term by term, each in the loop that its variable belongs to, so
// that only the innermost terms are computed again in each iteration.
#include "compiler/codegen/kernels/ElementEmitter.h"
#include "compiler/dialects/nn/ElementBytes.h"

#include "compiler/codegen/kernels/Half.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::kernels;
using nn::shapeOf;
using nn::tensorType;

Type kernels::scalarType(Type element) {
  if (nn::isHalf(element))
    return Float32Type::get(element.getContext());
  if (auto integer = dyn_cast<IntegerType>(element))
    return IntegerType::get(element.getContext(), integer.getWidth());
  return element;
}

Type kernels::storageType(Type element) {
  if (nn::isHalf(element))
    return IntegerType::get(element.getContext(), 16);
  if (element.isInteger(1))
    return IntegerType::get(element.getContext(), 8);
  return scalarType(element);
}

Value ElementEmitter::i64(int64_t value) {
  return arith::ConstantIntOp::create(builder, loc, value, 64);
}

// Builds a constant of a scalar or vector type, float or integer.
Value ElementEmitter::splatLike(Type type, double value) {
  Type element = getElementTypeOrSelf(type);
  TypedAttr attr;
  if (isa<FloatType>(element))
    attr = builder.getFloatAttr(element, value);
  else
    attr = builder.getIntegerAttr(element, static_cast<int64_t>(value));
  if (auto vector = dyn_cast<VectorType>(type))
    attr = DenseElementsAttr::get(vector, attr);
  return make<arith::ConstantOp>(attr);
}

Type ElementEmitter::lanesOf(Type element, bool vector) const {
  return vector ? Type(VectorType::get({width}, element)) : element;
}

Value ElementEmitter::spread(Value scalar) {
  if (width == 1 || isa<VectorType>(scalar.getType()))
    return scalar;
  // Vectors stay as they are, so a caller need not know the width of a value.
  return make<vector::BroadcastOp>(VectorType::get({width}, scalar.getType()),
                                   scalar);
}

// ---- indices ----

// Widens an index, by the sign that the tensor's type declares.
Value ElementEmitter::toI64(Value value, Type element) {
  if (element.isInteger(64))
    return value;
  Type type = lanesOf(builder.getI64Type(), isa<VectorType>(value.getType()));
  if (nn::isUnsigned(element))
    return make<arith::ExtUIOp>(type, value);
  return make<arith::ExtSIOp>(type, value);
}

// Emits one atom, as a scalar at the first lane or as a vector of all lanes.
// Dynamic indices are clamped, since data from a file must not lead outside a
// tensor.
Value ElementEmitter::atomValue(const Atom &atom, int id, bool vector) {
  auto inner = [&] {
    return vector ? vectorIndex(atom.inner) : scalarIndex(atom.inner);
  };
  auto number = [&](Value like, int64_t value) {
    return splatLike(like.getType(), value);
  };
  if (atom.kind == Atom::Variable) {
    if (!vector)
      return variables.lookup(id);
    // In a vector, the lanes of the innermost loop are consecutive values of
    // its variable.
    auto steps = llvm::to_vector(llvm::seq<int64_t>(0, width));
    Value step = make<arith::ConstantOp>(
        DenseElementsAttr::get(VectorType::get({width}, builder.getI64Type()),
                               ArrayRef<int64_t>(steps)));
    return make<arith::AddIOp>(spread(variables.lookup(id)), step);
  }
  if (atom.kind == Atom::Dynamic) {
    Type element = getElementTypeOrSelf(atom.tensor.getType());
    Lanes raw = this->element(atom.tensor, atom.index);
    insertAt(atom.depth);
    Value value = toI64(raw.value, element);
    if (vector)
      value = spread(value);
    // An index from a tensor may count from the end.
    if (atom.wraps) {
      Value negative = make<arith::CmpIOp>(arith::CmpIPredicate::slt, value,
                                           number(value, 0));
      Value wrapped = make<arith::AddIOp>(value, number(value, atom.divisor));
      value = make<arith::SelectOp>(negative, wrapped, value);
    }
    value = make<arith::MaxSIOp>(value, number(value, 0));
    return make<arith::MinSIOp>(value, number(value, atom.divisor - 1));
  }
  Value value = inner();
  insertAt(atom.depth);
  // Division by a constant is cheaper without signs, so a value that may be
  // negative is first lifted by a multiple of the divisor.
  int64_t low = space.range(atom.inner).low;
  int64_t lift = low < 0 ? llvm::divideCeil(-low, atom.divisor) : 0;
  auto lifted = [&] {
    return make<arith::AddIOp>(value, number(value, lift * atom.divisor));
  };
  switch (atom.kind) {
  case Atom::Div: {
    Value quotient =
        make<arith::DivUIOp>(lifted(), number(value, atom.divisor));
    return make<arith::SubIOp>(quotient, number(value, lift));
  }
  case Atom::Mod:
    return make<arith::RemUIOp>(lifted(), number(value, atom.divisor));
  default:
    value = make<arith::MaxSIOp>(value, number(value, atom.range.low));
    return make<arith::MinSIOp>(value, number(value, atom.range.high));
  }
}

Value ElementEmitter::scalarIndex(const IndexExpr &expr) {
  // Adds the terms of outer loops first, so that their sum is computed outside.
  insertAt(0);
  Value sum;
  for (int depth = 0; depth <= 2; ++depth) {
    for (auto [id, factor] : expr.terms) {
      Atom atom = space.atom(id); // a copy: emitting may add atoms
      if (atom.depth != depth)
        continue;
      Value value = atomValue(atom, id, /*vector=*/false);
      insertAt(depth);
      if (factor != 1)
        value = make<arith::MulIOp>(value, i64(factor));
      sum = sum ? make<arith::AddIOp>(sum, value) : value;
    }
  }
  if (!sum)
    return i64(expr.constant);
  insertAt(space.depth(expr));
  return expr.constant ? make<arith::AddIOp>(sum, i64(expr.constant)) : sum;
}

// Adds the terms that all lanes share as a scalar first, then the varying ones.
Value ElementEmitter::vectorIndex(const IndexExpr &expr) {
  IndexExpr uniform = expr, varying;
  llvm::erase_if(uniform.terms,
                 [&](auto term) { return space.atom(term.first).usesLane; });
  for (auto term : expr.terms)
    if (space.atom(term.first).usesLane)
      varying.terms.push_back(term);
  Value base = scalarIndex(uniform);
  int depth = space.depth(expr);
  insertAt(depth);
  Value sum = spread(base);
  for (auto [id, factor] : varying.terms) {
    Atom atom = space.atom(id);
    insertAt(depth);
    Value value = atomValue(atom, id, /*vector=*/true);
    insertAt(depth);
    if (factor != 1)
      value = make<arith::MulIOp>(value, splatLike(value.getType(), factor));
    sum = make<arith::AddIOp>(sum, value);
  }
  return sum;
}

// ---- memory ----

Value ElementEmitter::pointer(Value buffer, Type storage, Value position) {
  Type type = LLVM::LLVMPointerType::get(builder.getContext());
  return make<LLVM::GEPOp>(type, storage, buffer, ValueRange{position});
}

// Returns the smaller of the buffer's alignment and what the address adds to
// it. Without a known alignment it is the element's own.
unsigned ElementEmitter::alignmentOf(Value buffer, Type storage,
                                     const IndexExpr &address) const {
  int64_t size = nn::elementBytes(storage);
  int64_t whole = alignments.lookup(buffer);
  if (whole <= size)
    return size;
  int64_t own = size * space.alignment(address, width);
  return own ? std::min(own, whole) : whole;
}

std::optional<int64_t> ElementEmitter::runOf(const IndexExpr &address) const {
  return lanesAligned && llvm::isPowerOf2_64(width)
             ? space.laneRun(address, width)
             : std::nullopt;
}

// One lane's position: from the first lane's position and the stride, or,
// without a stride, from the vector of all positions.
Value ElementEmitter::lanePlace(Value position, std::optional<int64_t> stride,
                                int64_t lane) {
  if (stride)
    return make<arith::AddIOp>(position, i64(lane * *stride));
  return make<vector::ExtractOp>(position, ArrayRef<int64_t>{lane});
}

Lanes ElementEmitter::load(Value buffer, Type element, const IndexExpr &address,
                           int depth) {
  Type storage = storageType(element);
  unsigned size = nn::elementBytes(storage);
  depth = std::max(depth, space.depth(address));
  Value stored;
  if (!vectorizes(address)) {
    Value position = scalarIndex(address);
    insertAt(depth);
    stored =
        make<LLVM::LoadOp>(storage, pointer(buffer, storage, position), size);
  } else if (space.laneStride(address) == 1) {
    Value position = scalarIndex(address);
    insertAt(depth);
    stored = make<LLVM::LoadOp>(VectorType::get({width}, storage),
                                pointer(buffer, storage, position),
                                alignmentOf(buffer, storage, address));
  } else if (std::optional<int64_t> run = runOf(address)) {
    Value position = scalarIndex(address);
    insertAt(depth);
    Type type = VectorType::get({width / *run}, storage);
    Value few =
        make<LLVM::LoadOp>(type, pointer(buffer, storage, position), size);
    SmallVector<int64_t> lanes;
    for (int64_t lane = 0; lane < width; ++lane)
      lanes.push_back(lane / *run);
    stored = make<vector::ShuffleOp>(few, few, lanes);
  } else if (std::optional<int64_t> stride = space.laneStride(address);
             stride || !target.gathers) {
    // One load per lane. The gather instructions of processors are no faster,
    // and those of most are slower.
    Value position = stride ? scalarIndex(address) : vectorIndex(address);
    insertAt(depth);
    SmallVector<Value> elements;
    for (int64_t lane = 0; lane < width; ++lane) {
      Value place = lanePlace(position, stride, lane);
      elements.push_back(
          make<LLVM::LoadOp>(storage, pointer(buffer, storage, place), size));
    }
    stored = make<vector::FromElementsOp>(VectorType::get({width}, storage),
                                          elements);
  } else {
    // Lanes at unrelated addresses: LLVM selects a gather, or takes it apart.
    Value positions = vectorIndex(address);
    insertAt(depth);
    Type pointers = VectorType::get(
        {width}, LLVM::LLVMPointerType::get(builder.getContext()));
    Value addresses =
        make<LLVM::GEPOp>(pointers, storage, buffer, ValueRange{positions});
    Value all = splatLike(VectorType::get({width}, builder.getI1Type()), 1);
    stored = make<LLVM::masked_gather>(VectorType::get({width}, storage),
                                       addresses, all, ValueRange(), size);
  }
  return {widen(stored, element), depth};
}

// Stores are never hoisted: they go into the innermost loop.
void ElementEmitter::store(Value buffer, Type element, const IndexExpr &address,
                           Value value) {
  Type storage = storageType(element);
  unsigned size = nn::elementBytes(storage);
  bool vector = vectorizes(address);
  std::optional<int64_t> stride = space.laneStride(address);
  if (!vector || stride == 1) {
    Value position = scalarIndex(address);
    insertAt(2);
    LLVM::StoreOp::create(
        builder, loc, narrow(vector ? spread(value) : value, element),
        pointer(buffer, storage, position),
        vector ? alignmentOf(buffer, storage, address) : size);
    return;
  }
  Value position = stride ? scalarIndex(address) : vectorIndex(address);
  insertAt(2);
  // Lanes that are not adjacent are stored one by one, in ascending order.
  Value stored = narrow(spread(value), element);
  for (int64_t lane = 0; lane < width; ++lane)
    LLVM::StoreOp::create(
        builder, loc, make<vector::ExtractOp>(stored, ArrayRef<int64_t>{lane}),
        pointer(buffer, storage, lanePlace(position, stride, lane)), size);
}

// ---- results ----

void ElementEmitter::storeOutput(const Root &root) {
  Lanes value = element(root.value, root.index);
  if (root.output < 0)
    return;
  IndexExpr address = space.linearize(root.index, shapeOf(root.value));
  if (!isResult(root.output)) {
    // A kept row holds the current row only, so the row's offset is taken off.
    int64_t size = tensorType(root.value).getNumElements() / plan.rows;
    address = space.add(address, space.scale(plan.row, -size));
  }
  store(buffers[kernel.getNumArguments() + root.output],
        tensorType(root.value).getElementType(), address, value.value);
}

// The first row of a block stores instead of adding, if the sums have not been
// set to 0 before.
void ElementEmitter::addToOutput(const Root &root) {
  Lanes value = element(root.value, root.index);
  Value buffer = buffers[kernel.getNumArguments() + root.output];
  nn::ReduceOp reduce = root.reduce;
  Type type = tensorType(reduce.getResult()).getElementType();
  Lanes sum = load(buffer, type, root.sum, 2);
  insertAt(2);
  Value own = spread(value.value), before = sum.value;
  if (isFirstRow)
    before = make<arith::SelectOp>(isFirstRow, neutral(reduce, own.getType()),
                                   before);
  store(buffer, type, root.sum, combine(reduce, before, own));
}

// ---- conversions ----

Value ElementEmitter::widen(Value stored, Type element) {
  if (element.isInteger(1))
    // Booleans are bytes in memory and i1 in code. Any byte but 0 is true.
    return make<arith::CmpIOp>(arith::CmpIPredicate::ne, stored,
                               splatLike(stored.getType(), 0));
  if (!nn::isHalf(element))
    return stored;
  Value wide = widenHalfBits(builder, loc, stored, element);
  roundedBits[wide] = stored;
  return wide;
}

// A value that was loaded from a 16-bit type or rounded to it keeps its bits,
// so converting it back is free. Other values (a maximum, a select) are numbers
// of the type already, so their conversion is exact.
Value ElementEmitter::narrow(Value value, Type element) {
  bool vector = isa<VectorType>(value.getType());
  if (element.isInteger(1))
    return make<arith::ExtUIOp>(lanesOf(builder.getI8Type(), vector), value);
  if (!nn::isHalf(element))
    return value;
  if (Value bits = roundedBits.lookup(value))
    return bits;
  if (element.isF16())
    return roundToHalfBits(builder, loc, value, element, target.roundsBf16);
  Value bits =
      make<arith::BitcastOp>(lanesOf(builder.getI32Type(), vector), value);
  bits = make<arith::ShRUIOp>(bits, splatLike(bits.getType(), 16));
  return make<arith::TruncIOp>(lanesOf(builder.getI16Type(), vector), bits);
}

// Goes through widen, which remembers the bits for a later store.
Value ElementEmitter::roundTo(Type element, Value value) {
  if (!nn::isHalf(element))
    return value;
  Value bits = roundToHalfBits(builder, loc, value, element, target.roundsBf16);
  return widen(bits, element);
}
