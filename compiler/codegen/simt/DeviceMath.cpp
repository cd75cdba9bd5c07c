// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// f64 functions for GPUs, by the range reductions of Cody and Waite, Software
// Manual for the Elementary Functions (1980), and Taylor series. f64 is rare in
// training, so the code is short rather than fast. CUDA's libdevice was
// rejected (docs/rationale/cuda.md): it is one more file to find and link.
#include "compiler/codegen/simt/DeviceMath.h"

#include "compiler/dialects/nn/ScalarBuilder.h"

#include "llvm/ADT/DenseMap.h"

#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// 1.5 · 2⁵²: adding it rounds to integers.
constexpr double kRound = 6755399441055744;
// ln 2 and π/2, each split into a number of few bits, whose products with small
// integers are exact, and the rest.
constexpr double kLog2High = 6.93147180369123816490e-01;
constexpr double kLog2Low = 1.90821492927058770002e-10;
constexpr double kHalfPiHigh = 1.57079632673412561417e+00;
constexpr double kHalfPiLow = 6.07710050650619224932e-11;

constexpr double kLargestAngle = 0x1p50;

// Builds the expansions of one op. All take and return f64; scalars and vectors
// alike.
class Expander : public nn::ScalarBuilder {
public:
  Expander(OpBuilder &builder, Location loc)
      : ScalarBuilder(builder, loc), builder(builder) {}

  Value exp64(Value x);
  Value expm164(Value x);
  Value log64(Value x);
  Value pow64(Value x, Value y);
  Value tanh64(Value x);
  Value sine64(Value x, int64_t quadrant); // sin(x + quadrant · π/2)
  Value convert(Value x, Type element);

private:
  struct Reduced {
    Value n, r; // an integer and a float
  };
  Reduced reduceExp(Value x);
  Type like(Value x, Type element) {
    if (auto vector = dyn_cast<VectorType>(x.getType()))
      return VectorType::get(vector.getShape(), element);
    return element;
  }
  Value bits(Value x) {
    return make<arith::BitcastOp>(like(x, builder.getI64Type()), x);
  }
  Value fromBits(Value x) {
    return make<arith::BitcastOp>(like(x, builder.getF64Type()), x);
  }
  Value select(Value condition, Value x, Value y) {
    return make<arith::SelectOp>(condition, x, y);
  }
  Value compare(arith::CmpFPredicate predicate, Value x, Value y) {
    return make<arith::CmpFOp>(predicate, x, y);
  }
  Value compare(arith::CmpFPredicate predicate, Value x, double y) {
    return compare(predicate, x, constant(x, y));
  }
  // Returns an i1 that is true where the bit is set.
  Value isBit(Value integer, int64_t bit) {
    Value one = make<arith::AndIOp>(integer, constant(integer, bit));
    return make<arith::CmpIOp>(arith::CmpIPredicate::ne, one,
                               constant(integer, 0));
  }
  // Σ x^k · c(k) for k from 0 to `last`.
  Value series(Value x, int last, llvm::function_ref<double(int)> c) {
    Value sum = constant(x, c(last));
    for (int k = last - 1; k >= 0; --k)
      sum = fma(sum, x, constant(x, c(k)));
    return sum;
  }
  // 2ⁿ for an integer n in the exponent range of normal numbers.
  Value power(Value n) {
    Value biased = make<arith::AddIOp>(n, constant(n, 1023));
    return fromBits(make<arith::ShLIOp>(biased, constant(n, 52)));
  }

  OpBuilder &builder;
};

double factorial(int n) { return n < 2 ? 1 : n * factorial(n - 1); }

Value Expander::convert(Value x, Type element) {
  Type type = like(x, element);
  if (x.getType() == type)
    return x;
  return element.isF64() ? make<arith::ExtFOp>(type, x)
                         : make<arith::TruncFOp>(type, x);
}

// x = n · ln 2 + r.
Expander::Reduced Expander::reduceExp(Value x) {
  Value shifted =
      fma(x, constant(x, 1.44269504088896340736), constant(x, kRound));
  Value n = sub(shifted, constant(x, kRound));
  Value r = fma(n, constant(x, -kLog2High), x);
  r = fma(n, constant(x, -kLog2Low), r);
  // `shifted` holds n in its lowest bits.
  return {make<arith::SubIOp>(bits(shifted), bits(constant(x, kRound))), r};
}

// 2ⁿ · exp(r). 2ⁿ is applied in two factors, since 2ⁿ itself may be
// subnormal or infinite.
Value Expander::exp64(Value x) {
  // exp(-746) is 0 and exp(710) ∞, both after rounding, so the clamp changes no
  // result and n stays in the range of power().
  constexpr double kLow = -746, kHigh = 710;
  x = select(compare(arith::CmpFPredicate::OGT, x, kHigh), constant(x, kHigh),
             x);
  x = select(compare(arith::CmpFPredicate::OLT, x, kLow), constant(x, kLow), x);
  Reduced reduced = reduceExp(x);
  Value y = series(reduced.r, 13, [](int k) { return 1 / factorial(k); });
  Value half = make<arith::ShRSIOp>(reduced.n, constant(reduced.n, 1));
  Value rest = make<arith::SubIOp>(reduced.n, half);
  return mul(mul(y, power(half)), power(rest));
}

// 2ⁿ · (exp(r) - 1) + (2ⁿ - 1), in halves, since 2ⁿ may be infinite.
Value Expander::expm164(Value x) {
  constexpr double kLow = -60, kHigh = 710;
  // expm1(-60) is -1 in f64.
  Value bounded = select(compare(arith::CmpFPredicate::OGT, x, kHigh),
                         constant(x, kHigh), x);
  bounded = select(compare(arith::CmpFPredicate::OLT, bounded, kLow),
                   constant(x, kLow), bounded);
  Reduced reduced = reduceExp(bounded);
  Value rest =
      mul(reduced.r,
          series(reduced.r, 13, [](int k) { return 1 / factorial(k + 1); }));
  Value half = power(make<arith::SubIOp>(reduced.n, constant(reduced.n, 1)));
  Value y = fma(half, rest, sub(half, constant(x, 0.5)));
  return orTiny(x, add(y, y));
}

// x = 2ᵉ · m with m in [√½, √2); log m = 2 artanh((m - 1) / (m + 1)).
Value Expander::log64(Value x) {
  Value isTiny = compare(arith::CmpFPredicate::OLT, x, 0x1p-1022);
  Value scaled = select(isTiny, mul(x, 0x1p54), x);
  Value b = bits(scaled);
  Value e = make<arith::ShRSIOp>(
      make<arith::SubIOp>(b, bits(constant(x, 0.70710678118654752))),
      constant(b, 52));
  Value m =
      fromBits(make<arith::SubIOp>(b, make<arith::ShLIOp>(e, constant(b, 52))));
  Value n = make<arith::SIToFPOp>(x.getType(), e);
  n = select(isTiny, sub(n, constant(n, 54)), n);
  Value one = constant(x, 1);
  // |s| is at most 0.172, so twelve terms reach full precision.
  Value s = div(sub(m, one), add(m, one));
  Value p = series(mul(s, s), 11, [](int k) { return 2.0 / (2 * k + 1); });
  Value y = fma(s, p, mul(n, kLog2Low));
  y = fma(n, constant(n, kLog2High), y);
  y = select(compare(arith::CmpFPredicate::OEQ, x, 0), constant(x, -kInfinity),
             y);
  y = select(compare(arith::CmpFPredicate::OLT, x, 0), constant(x, kNaN), y);
  // The comparison is false for ∞ and for NaN.
  return select(compare(arith::CmpFPredicate::OLT, x, kInfinity), y, x);
}

// As C's pow: 1 to any power and anything to the power 0 are 1, and so is -1 to
// the power ±∞; a zero has a sign.
Value Expander::pow64(Value x, Value y) {
  // |x|^y = exp(y · log |x|), which also gives the results for 0 and ∞.
  Value size = make<math::AbsFOp>(x), one = constant(x, 1);
  Value result = exp64(mul(y, log64(size)));
  // 0 · ∞ is not what 1 to the power ∞ means.
  result = select(compare(arith::CmpFPredicate::OEQ, size, 1), one, result);
  // A negative base has powers of whole exponents only, where -∞ counts as one.
  Value isWhole = compare(arith::CmpFPredicate::OEQ, make<math::FloorOp>(y), y);
  Value half = mul(y, 0.5);
  Value isEven =
      compare(arith::CmpFPredicate::OEQ, make<math::FloorOp>(half), half);
  Value isOdd = make<arith::AndIOp>(
      isWhole, make<arith::XOrIOp>(isEven, constant(isEven, 1)));
  Value isBelow = compare(arith::CmpFPredicate::OLT, x, 0);
  Value isInfinite = compare(arith::CmpFPredicate::OEQ, size, kInfinity);
  Value hasPower = make<arith::OrIOp>(isWhole, isInfinite);
  result =
      select(make<arith::AndIOp>(
                 isBelow, make<arith::XOrIOp>(hasPower, constant(hasPower, 1))),
             constant(x, kNaN), result);
  // An odd power has the sign of the base, also where it is a zero or an
  // infinity.
  result = select(isOdd, make<math::CopySignOp>(result, x), result);
  Value isOne = make<arith::OrIOp>(compare(arith::CmpFPredicate::OEQ, x, 1),
                                   compare(arith::CmpFPredicate::OEQ, y, 0));
  return select(isOne, one, result);
}

// tanh |x| = 1 - 2 / (exp(2 |x|) + 1), with the sign of x. exp may be ∞.
Value Expander::tanh64(Value x) {
  Value size = make<math::AbsFOp>(x);
  Value one = constant(x, 1);
  Value y = sub(one, div(constant(x, 2), add(exp64(add(size, size)), one)));
  return make<math::CopySignOp>(y, x);
}

// x = n · π/2 + r. Beyond kLargestAngle n is not known, and the result is NaN.
Value Expander::sine64(Value x, int64_t quadrant) {
  Value shifted =
      fma(x, constant(x, 0.636619772367581343076), constant(x, kRound));
  Value n = sub(shifted, constant(x, kRound));
  Value r = fma(n, constant(x, -kHalfPiHigh), x);
  r = fma(n, constant(x, -kHalfPiLow), r);
  Value square = mul(r, r);
  auto sign = [](int k) { return k % 2 ? -1.0 : 1.0; };
  Value sine = mul(r, series(square, 8, [&](int k) {
                     return sign(k) / factorial(2 * k + 1);
                   }));
  Value cosine =
      series(square, 8, [&](int k) { return sign(k) / factorial(2 * k); });
  // The two lowest bits of n are the quadrant: bit 0 exchanges sine and cosine,
  // bit 1 changes the sign.
  Value q = bits(shifted);
  q = make<arith::AddIOp>(q, constant(q, quadrant));
  Value y = select(isBit(q, 1), cosine, sine);
  y = select(isBit(q, 2), neg(y), y);
  Value isReduced =
      compare(arith::CmpFPredicate::OLT, make<math::AbsFOp>(x), kLargestAngle);
  return select(isReduced, y, constant(x, kNaN));
}

// Computes an op of the math dialect in f64. If `alsoF32` is set, f32 is
// widened to f64 and back; otherwise expand-math has f32 code of its own. A
// null function means that the op has no code for GPUs on f64.
struct Expansion {
  bool alsoF32;
  Value (*inF64)(Expander &, ArrayRef<Value>);
};

const llvm::DenseMap<TypeID, Expansion> &expansions() {
  using Operands = ArrayRef<Value>;
  static const llvm::DenseMap<TypeID, Expansion> table = {
      {TypeID::get<math::ExpOp>(),
       {false, [](Expander &e, Operands x) { return e.exp64(x[0]); }}},
      {TypeID::get<math::ExpM1Op>(),
       {false, [](Expander &e, Operands x) { return e.expm164(x[0]); }}},
      {TypeID::get<math::Log1pOp>(),
       {false,
        [](Expander &e, Operands x) {
          return e.log1p(x[0], [&](Value u) { return e.log64(u); });
        }}},
      {TypeID::get<math::LogOp>(),
       {false, [](Expander &e, Operands x) { return e.log64(x[0]); }}},
      {TypeID::get<math::TanhOp>(),
       {false, [](Expander &e, Operands x) { return e.tanh64(x[0]); }}},
      {TypeID::get<math::ErfOp>(), {false, nullptr}},
      {TypeID::get<math::AtanOp>(), {false, nullptr}},
      {TypeID::get<math::SinOp>(),
       {true, [](Expander &e, Operands x) { return e.sine64(x[0], 0); }}},
      {TypeID::get<math::CosOp>(),
       {true, [](Expander &e, Operands x) { return e.sine64(x[0], 1); }}},
      {TypeID::get<math::PowFOp>(),
       {true, [](Expander &e, Operands x) { return e.pow64(x[0], x[1]); }}},
  };
  return table;
}

} // namespace

LogicalResult simt::expandDeviceMath(ModuleOp module) {
  // Collects first, since expansions add ops to the module.
  SmallVector<std::pair<Operation *, Expansion>> ops;
  module.walk([&](Operation *op) {
    auto found = expansions().find(op->getName().getTypeID());
    if (found == expansions().end())
      return;
    bool isF64 = getElementTypeOrSelf(op->getResult(0).getType()).isF64();
    if (isF64 || found->second.alsoF32)
      ops.push_back({op, found->second});
  });
  for (auto [op, expansion] : ops) {
    if (!expansion.inF64)
      return op->emitOpError("on f64 has no code for GPUs; compute it in f32");
    OpBuilder builder(op);
    Expander e(builder, op->getLoc());
    SmallVector<Value> x;
    for (Value operand : op->getOperands())
      x.push_back(e.convert(operand, builder.getF64Type()));
    Value result = expansion.inF64(e, x);
    Type element = getElementTypeOrSelf(op->getResult(0).getType());
    op->replaceAllUsesWith(ValueRange{e.convert(result, element)});
    op->erase();
  }
  return success();
}
