// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decomposes rotary position embedding into primitives.
#include "compiler/dialects/nn/CompositeOps.h"
#include "compiler/dialects/nn/DecomposeBuilder.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;
using namespace fsdpc::nn;

namespace {

// Returns concat(-x[d/2:], x[:d/2]) along the last axis.
Value rotateHalf(OpBuilder &builder, Location loc, Value x) {
  RankedTensorType type = tensorType(x);
  int64_t axis = type.getRank() - 1, half = type.getShape().back() / 2;
  SmallVector<int64_t> shape(type.getShape());
  shape.back() = half;
  SmallVector<int64_t> start(type.getRank(), 0), middle(start);
  SmallVector<int64_t> unit(type.getRank(), 1);
  middle.back() = half;
  RankedTensorType halfType = type.clone(shape);
  Value first = SliceOp::create(builder, loc, halfType, x, start, unit);
  Value second = SliceOp::create(builder, loc, halfType, x, middle, unit);
  Value negated = NegOp::create(builder, loc, halfType, second);
  return ConcatOp::create(builder, loc, type, ValueRange{negated, first}, axis);
}

} // namespace

// Rotates pairs of elements that are half a row apart (Su et al., RoFormer,
// 2021; the layout of GPT-NeoX and Llama).
SmallVector<Value> RotaryOp::decompose(OpBuilder &builder) {
  DecomposeBuilder b(builder, getLoc());
  Value x = b.enter(getInput()), cos = b.enter(getCos()),
        sin = b.enter(getSin());
  Value result;
  // The transpose of rotate_half is its negative, applied after the sines.
  if (getTransposed())
    result = b.sub(b.mul(x, cos), rotateHalf(builder, getLoc(), b.mul(x, sin)));
  else
    result = b.add(b.mul(x, cos), b.mul(rotateHalf(builder, getLoc(), x), sin));
  return {b.leave(result, getType())};
}
