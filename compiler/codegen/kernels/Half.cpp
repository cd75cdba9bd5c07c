// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// bf16 is rounded with integer arithmetic unless the processor has AVX-512
// BF16: LLVM's own fallback is a call of a library function for each lane. f16
// needs no such code, since F16C belongs to x86-64-v3 and PTX converts it as
// well.
#include "compiler/codegen/kernels/Half.h"

#include "compiler/dialects/nn/ScalarBuilder.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

// Returns the type with `element` in as many lanes as `value` has.
static Type typeLike(Value value, Type element) {
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    return VectorType::get(vector.getShape(), element);
  return element;
}

// bf16 is the upper half of an f32, so widening shifts the bits into place.
Value kernels::widenHalfBits(OpBuilder &builder, Location loc, Value bits,
                             Type half) {
  nn::ScalarBuilder s(builder, loc);
  if (half.isF16())
    return s.make<arith::ExtFOp>(
        typeLike(bits, builder.getF32Type()),
        s.make<arith::BitcastOp>(typeLike(bits, half), bits));
  Value wide =
      s.make<arith::ExtUIOp>(typeLike(bits, builder.getI32Type()), bits);
  wide = s.make<arith::ShLIOp>(wide, s.constant(wide, 16));
  return s.make<arith::BitcastOp>(typeLike(bits, builder.getF32Type()), wide);
}

Value kernels::roundToHalfBits(OpBuilder &builder, Location loc, Value value,
                               Type half, bool hardwareBf16) {
  nn::ScalarBuilder s(builder, loc);
  Type i16 = typeLike(value, builder.getI16Type()),
       i32 = typeLike(value, builder.getI32Type());
  if (half.isF16() || hardwareBf16) {
    Value rounded = s.make<arith::TruncFOp>(typeLike(value, half), value);
    return s.make<arith::BitcastOp>(i16, rounded);
  }
  // Round to nearest, ties to even: adds half of the last place that stays,
  // less one if that place is even. The addition could turn a NaN into an
  // infinity, so a NaN becomes the canonical quiet NaN.
  Value bits = s.make<arith::BitcastOp>(i32, value);
  Value sixteen = s.constant(bits, 16);
  Value last = s.make<arith::AndIOp>(s.make<arith::ShRUIOp>(bits, sixteen),
                                     s.constant(bits, 1));
  Value rounded = s.make<arith::AddIOp>(
      s.make<arith::AddIOp>(bits, s.constant(bits, 0x7fff)), last);
  Value isNan = s.make<arith::CmpFOp>(arith::CmpFPredicate::UNO, value, value);
  rounded =
      s.make<arith::SelectOp>(isNan, s.constant(bits, 0x7fc00000), rounded);
  return s.make<arith::TruncIOp>(i16, s.make<arith::ShRUIOp>(rounded, sixteen));
}

void kernels::expandRoundingToBf16(Operation *root) {
  root->walk([](arith::TruncFOp op) {
    Value from = op.getIn();
    if (!getElementTypeOrSelf(from).isF32() ||
        !getElementTypeOrSelf(op.getType()).isBF16())
      return;
    OpBuilder builder(op);
    Value bits = roundToHalfBits(builder, op.getLoc(), from,
                                 builder.getBF16Type(), false);
    op.replaceAllUsesWith(
        arith::BitcastOp::create(builder, op.getLoc(), op.getType(), bits)
            .getResult());
    op.erase();
  });
}
