// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Approximations of exp, log, expm1, log1p, tanh and erf in f32. exp and log
// are polynomials fitted at Chebyshev nodes (mpmath.chebyfit) after the range
// reductions of Cody and Waite, Software Manual for the Elementary Functions
// (1980). erf and tanh are rational functions without a range reduction, fitted
// by weighted least squares so as to minimise the largest relative error in f32
// arithmetic.
#include "compiler/codegen/kernels/ExpandMath.h"

#include "compiler/dialects/nn/ScalarBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

#include "llvm/ADT/DenseMap.h"

#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::kernels;

namespace {

// Builds the expansions of one op, in front of it. Values are f32 scalars or
// vectors; callEachLane takes f64 too.
class Expander : public nn::ScalarBuilder {
public:
  Expander(OpBuilder &builder, Location loc)
      : ScalarBuilder(builder, loc), builder(builder), loc(loc) {}

  Value expandExp(Value x);
  Value expandExpm1(Value x);
  Value expandLog(Value x);
  Value expandLog1p(Value x) {
    return log1p(x, [&](Value u) { return expandLog(u); });
  }
  Value expandAtan(Value x);
  Value expandOdd(Value x, double bound, ArrayRef<double> numerator,
                  ArrayRef<double> denominator);
  Value callEachLane(Operation *op, StringRef name);

private:
  struct Reduced {
    Value power, rest; // 2ⁿ⁻¹ and exp(r) - 1
  };
  Reduced reduceExp(Value x);

  // NaN stays NaN.
  Value clamp(Value x, double low, double high) {
    x = select(compare(arith::CmpFPredicate::OGT, x, high), constant(x, high),
               x);
    return select(compare(arith::CmpFPredicate::OLT, x, low), constant(x, low),
                  x);
  }
  // Horner's scheme; coefficients start with the highest power.
  Value polynomial(Value x, ArrayRef<double> coefficients) {
    Value sum = constant(x, coefficients.front());
    for (double c : coefficients.drop_front())
      sum = fma(sum, x, constant(x, c));
    return sum;
  }
  Value select(Value condition, Value x, Value y) {
    return make<arith::SelectOp>(condition, x, y);
  }
  Value compare(arith::CmpFPredicate predicate, Value x, double y) {
    return make<arith::CmpFOp>(predicate, x, constant(x, y));
  }
  Type like(Value x, Type element) {
    if (auto vector = dyn_cast<VectorType>(x.getType()))
      return VectorType::get(vector.getShape(), element);
    return element;
  }
  Value bits(Value x) {
    return make<arith::BitcastOp>(like(x, builder.getI32Type()), x);
  }
  Value fromBits(Value x) {
    return make<arith::BitcastOp>(like(x, builder.getF32Type()), x);
  }

  OpBuilder &builder;
  Location loc;
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Rational functions in x²; coefficients start with the highest power.
constexpr double kTanhBound = 8.862292289733887;
constexpr double kTanhNumerator[] = {1.36063052e-08, 2.07890202e-05,
                                     0.00350647288, 0.13390179, 0.999999982};
constexpr double kTanhDenominator[] = {7.8790152e-07, 0.000330346691,
                                       0.0259183541, 0.46723497, 1};
constexpr double kErfBound = 3.908191204071045;
constexpr double kErfNumerator[] = {2.06017836e-06, 0.000284958157,
                                    0.00374775287,  0.0526955986,
                                    0.189927243,    1.12837912};
constexpr double kErfDenominator[] = {
    3.81997887e-05, 0.00115908164, 0.0149332043, 0.11392033, 0.50165141, 1};
constexpr double kHalfPi = 1.57079632679489662;
constexpr double kLog2Low = -2.12194440e-4; // ln 2 = 0.693359375 + this
constexpr double kLog2High = 0.693359375;

// x = n · ln 2 + r; 2ⁿ⁻¹, and exp(r) - 1 = r + r² · p(r). 2ⁿ itself is not
// representable in f32 for n = 128.
Expander::Reduced Expander::reduceExp(Value x) {
  constexpr double kRound = 12582912; // 1.5 · 2²³: adding it rounds to integers
  Value shifted = fma(x, constant(x, 1.44269504088896341), constant(x, kRound));
  Value n = sub(shifted, constant(x, kRound));
  // Subtracts n · ln 2 in two parts; the product with the first is exact.
  Value r = fma(n, constant(x, -kLog2High), x);
  r = fma(n, constant(x, -kLog2Low), r);
  Value p = polynomial(r, {0.0013926926614, 0.00836377387441, 0.0416665501103,
                           0.166665733819, 0.5});
  // `shifted` holds n in its lowest bits, and a shift by 23 moves them to the
  // exponent and the rest out.
  Value exponent = make<arith::ShLIOp>(bits(shifted), constant(bits(x), 23));
  Value power =
      fromBits(make<arith::AddIOp>(exponent, constant(exponent, 126 << 23)));
  return {power, fma(mul(r, r), p, r)};
}

// 2ⁿ · exp(r). Results below 1.8e-38, just above the smallest normal number,
// become 0. At kHigh the product overflows to ∞.
Value Expander::expandExp(Value x) {
  constexpr double kLow = -86.9, kHigh = 89;
  Reduced reduced = reduceExp(clamp(x, kLow, kHigh));
  Value y = add(reduced.rest, constant(x, 1));
  // y · 2ⁿ, since the power is 2ⁿ⁻¹.
  y = mul(add(y, y), reduced.power);
  return select(compare(arith::CmpFPredicate::OLT, x, kLow), constant(x, 0), y);
}

// 2ⁿ · (exp(r) - 1) + (2ⁿ - 1): neither term loses a digit that counts. Below
// kLow the result is -1.
Value Expander::expandExpm1(Value x) {
  constexpr double kLow = -30, kHigh = 89;
  Reduced reduced = reduceExp(clamp(x, kLow, kHigh));
  Value y =
      fma(reduced.power, reduced.rest, sub(reduced.power, constant(x, 0.5)));
  return orTiny(x, add(y, y));
}

// x = 2ᵉ · (1 + f) with 1 + f in [√½, √2).
Value Expander::expandLog(Value x) {
  constexpr double kSmallest = 1.17549435e-38;
  // Subnormal numbers have no exponent bits, so they are scaled by 2²³ first.
  Value tiny = compare(arith::CmpFPredicate::OLT, x, kSmallest);
  Value scaled = select(tiny, mul(x, 8388608), x);
  Value b = bits(scaled);
  // Counting the exponent from √½ (0x3f3504f3) makes m lie in [√½, √2).
  Value e = make<arith::ShRSIOp>(
      make<arith::SubIOp>(b, constant(b, 0x3f3504f3)), constant(b, 23));
  Value m =
      fromBits(make<arith::SubIOp>(b, make<arith::ShLIOp>(e, constant(b, 23))));
  Value n = make<arith::SIToFPOp>(like(x, builder.getF32Type()), e);
  n = select(tiny, sub(n, constant(n, 23)), n);
  Value f = sub(m, constant(m, 1));
  Value square = mul(f, f);
  Value p = polynomial(f, {0.0697161147145, -0.114797338466, 0.116854199235,
                           -0.124256873315, 0.142490576457, -0.166678023195,
                           0.200007157489, -0.24999996958, 0.3333333118});
  // Adds the small terms first.
  Value y = mul(mul(f, square), p);
  y = fma(n, constant(n, kLog2Low), y);
  y = fma(square, constant(f, -0.5), y);
  y = fma(n, constant(n, kLog2High), add(f, y));
  // log(0) is -∞, the log of a negative number NaN; ∞ and NaN are returned as
  // they are.
  y = select(compare(arith::CmpFPredicate::OEQ, x, 0), constant(x, -kInfinity),
             y);
  double nan = std::numeric_limits<double>::quiet_NaN();
  y = select(compare(arith::CmpFPredicate::OLT, x, 0), constant(x, nan), y);
  // The comparison is false for ∞ and for NaN.
  return select(compare(arith::CmpFPredicate::OLT, x, kInfinity), y, x);
}

// x · p(x²) / q(x²), with x clamped to where the function reaches 1 in f32. The
// quotient is 1 or more there, and is clamped to 1 in turn.
Value Expander::expandOdd(Value x, double bound, ArrayRef<double> numerator,
                          ArrayRef<double> denominator) {
  x = clamp(x, -bound, bound);
  Value square = mul(x, x);
  Value y = div(mul(x, polynomial(square, numerator)),
                polynomial(square, denominator));
  return clamp(y, -1, 1);
}

// Cephes' atanf: an argument above tan(π/8) is rotated by π/4 or π/2, and a
// polynomial serves the rest. Relative error 2e-7.
Value Expander::expandAtan(Value x) {
  Value size = make<math::AbsFOp>(x);
  Value isLarge = compare(arith::CmpFPredicate::OGT, size, 2.414213562373095);
  Value isMiddle = compare(arith::CmpFPredicate::OGT, size, 0.4142135623730950);
  auto choose = [&](Value large, Value middle, Value small) {
    return select(isLarge, large, select(isMiddle, middle, small));
  };
  Value one = constant(x, 1);
  Value r = div(choose(constant(x, -1), sub(size, one), size),
                choose(size, add(size, one), one));
  Value angle =
      choose(constant(x, kHalfPi), constant(x, kHalfPi / 2), constant(x, 0));
  Value square = mul(r, r);
  Value p = polynomial(square, {8.05374449538e-2, -1.38776856032e-1,
                                1.99777106478e-1, -3.33329491539e-1});
  Value y = add(angle, fma(mul(square, p), r, r));
  return make<math::CopySignOp>(y, x);
}

// Replaces the op with a call of the C library's function for each lane.
Value Expander::callEachLane(Operation *op, StringRef name) {
  Type type = op->getResult(0).getType();
  Type element = getElementTypeOrSelf(type);
  std::string symbol = element.isF32() ? (name + "f").str() : name.str();
  auto module = op->getParentOfType<ModuleOp>();
  auto callee = module.lookupSymbol<func::FuncOp>(symbol);
  if (!callee) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(module.getBody());
    SmallVector<Type> inputs(op->getNumOperands(), element);
    callee = func::FuncOp::create(builder, loc, symbol,
                                  builder.getFunctionType(inputs, element));
    callee.setPrivate();
  }
  auto call = [&](ValueRange operands) {
    return func::CallOp::create(builder, loc, callee, operands).getResult(0);
  };
  auto vector = dyn_cast<VectorType>(type);
  if (!vector)
    return call(op->getOperands());
  Value result = constant(op->getResult(0), 0);
  for (int64_t lane = 0; lane < vector.getNumElements(); ++lane) {
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(
          make<vector::ExtractOp>(operand, ArrayRef<int64_t>{lane}));
    result =
        make<vector::InsertOp>(call(operands), result, ArrayRef<int64_t>{lane});
  }
  return result;
}

// Computes an op of the math dialect: in f32 by code of our own if there is
// some, else by a function of libm, lane by lane.
struct Expansion {
  StringRef function;
  Value (*inF32)(Expander &, Value) = nullptr;
};

const llvm::DenseMap<TypeID, Expansion> &expansions() {
  static const llvm::DenseMap<TypeID, Expansion> table = {
      {TypeID::get<math::ExpOp>(),
       {"exp", [](Expander &e, Value x) { return e.expandExp(x); }}},
      {TypeID::get<math::ExpM1Op>(),
       {"expm1", [](Expander &e, Value x) { return e.expandExpm1(x); }}},
      {TypeID::get<math::Log1pOp>(),
       {"log1p", [](Expander &e, Value x) { return e.expandLog1p(x); }}},
      {TypeID::get<math::LogOp>(),
       {"log", [](Expander &e, Value x) { return e.expandLog(x); }}},
      {TypeID::get<math::TanhOp>(),
       {"tanh",
        [](Expander &e, Value x) {
          return e.expandOdd(x, kTanhBound, kTanhNumerator, kTanhDenominator);
        }}},
      {TypeID::get<math::ErfOp>(),
       {"erf",
        [](Expander &e, Value x) {
          return e.expandOdd(x, kErfBound, kErfNumerator, kErfDenominator);
        }}},
      {TypeID::get<math::AtanOp>(),
       {"atan", [](Expander &e, Value x) { return e.expandAtan(x); }}},
      {TypeID::get<math::SinOp>(), {"sin"}},
      {TypeID::get<math::CosOp>(), {"cos"}},
      {TypeID::get<math::PowFOp>(), {"pow"}},
  };
  return table;
}

} // namespace

// Collects first, since expansions add ops while the walk runs.
void kernels::expandMath(ModuleOp module) {
  SmallVector<std::pair<Operation *, Expansion>> ops;
  module.walk([&](Operation *op) {
    auto found = expansions().find(op->getName().getTypeID());
    if (found != expansions().end())
      ops.push_back({op, found->second});
  });
  for (auto [op, expansion] : ops) {
    OpBuilder builder(op);
    Expander e(builder, op->getLoc());
    Value x = op->getOperand(0);
    bool isF32 = getElementTypeOrSelf(x.getType()).isF32();
    Value result = isF32 && expansion.inF32
                       ? expansion.inF32(e, x)
                       : e.callEachLane(op, expansion.function);
    op->replaceAllUsesWith(ValueRange{result});
    op->erase();
  }
}
