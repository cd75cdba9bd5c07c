// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference of elementwise ops: one function of doubles and one of 64-bit
// integers. Results are rounded to the op's type by the caller, so bf16 is the
// exact function of rounded operands, rounded once.
#include "compiler/dialects/nn/reference/Families.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <cmath>
#include <functional>

using namespace mlir;

namespace fsdpc::nn::reference {

// exp overflows to ∞ for large -x, and 1 / ∞ is 0.
static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), which cannot overflow.
static double softplus(double x) {
  return std::log1p(std::exp(-std::abs(x))) + (x < 0 ? 0 : x);
}

static constexpr double kGeluCubic = 0.044715;

// x · Φ(x), or its approximation by tanh (Hendrycks and Gimpel, 2016).
double gelu(double x, GeluForm form) {
  if (form == GeluForm::erf)
    return x * (1 + std::erf(x * M_SQRT1_2)) / 2;
  double u = std::sqrt(M_2_PI) * (x + kGeluCubic * x * x * x);
  return x * (1 + std::tanh(u)) / 2;
}

// d gelu / dx: Φ(x) + x · φ(x), or the derivative of the approximation.
double geluDerivative(double x, GeluForm form) {
  if (form == GeluForm::erf)
    return (1 + std::erf(x * M_SQRT1_2)) / 2 +
           x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
  // Further out the slope is 0 or 1, and its factors would be 0 · ∞.
  x = std::isnan(x) ? x : std::clamp(x, -32.0, 32.0);
  double c = std::sqrt(M_2_PI);
  double t = std::tanh(c * (x + kGeluCubic * x * x * x));
  return (1 + t) / 2 + x * (1 - t * t) * c * (1 + 3 * kGeluCubic * x * x) / 2;
}

/// NaN if either operand is NaN. The first operand wins if it is a NaN; a NaN
/// in the second fails the comparison and is returned.
static double maximum(double x, double y) {
  return std::isnan(x) || x > y ? x : y;
}
static int64_t maximum(int64_t x, int64_t y) { return std::max(x, y); }

// Negates twice, so that only the maximum has to define NaN.
static double minimum(double x, double y) { return -maximum(-x, -y); }
static int64_t minimum(int64_t x, int64_t y) { return std::min(x, y); }

/// Integers wrap, which C++ leaves undefined for signed ones.
template <typename Fn> static int64_t wrap(int64_t x, int64_t y, Fn function) {
  return static_cast<int64_t>(
      function(static_cast<uint64_t>(x), static_cast<uint64_t>(y)));
}
static double plus(double x, double y) { return x + y; }
static int64_t plus(int64_t x, int64_t y) { return wrap(x, y, std::plus<>()); }
static double minus(double x, double y) { return x - y; }
static int64_t minus(int64_t x, int64_t y) {
  return wrap(x, y, std::minus<>());
}
static double times(double x, double y) { return x * y; }
static int64_t times(int64_t x, int64_t y) {
  return wrap(x, y, std::multiplies<>());
}
static double negate(double x) { return -x; }
static int64_t negate(int64_t x) { return minus(int64_t(0), x); }
static double absolute(double x) { return std::abs(x); }
static int64_t absolute(int64_t x) { return x < 0 ? negate(x) : x; }

/// The smallest integer divided by -1 does not fit, and the processor traps.
static double divide(double x, double y) { return x / y; }
static int64_t divide(int64_t x, int64_t y) {
  if (y == -1)
    return negate(x);
  return y == 0 ? 0 : x / y;
}

// The sign is that of y, as in Python.
static double floorMod(double x, double y) { return x - y * std::floor(x / y); }

// C++'s remainder has the sign of x; this one has that of y, as in Python.
static int64_t floorMod(int64_t x, int64_t y) {
  if (y == 0 || y == -1)
    return 0;
  int64_t remainder = x % y;
  return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y
                                                      : remainder;
}

static double power(double x, double y) { return std::pow(x, y); }

/// Computes by squaring, since an exponent may have 63 bits. A negative
/// exponent gives 0, for every base.
static int64_t power(int64_t x, int64_t y) {
  int64_t result = y < 0 ? 0 : 1;
  for (; y > 0; y >>= 1, x = times(x, x))
    if (y & 1)
      result = times(result, x);
  return result;
}

// With NaN only `ne` is true, as in the kernels.
template <typename T> static bool compare(Predicate predicate, T x, T y) {
  switch (predicate) {
  case Predicate::eq:
    return x == y;
  case Predicate::ne:
    return x != y;
  case Predicate::lt:
    return x < y;
  case Predicate::le:
    return x <= y;
  case Predicate::gt:
    return x > y;
  case Predicate::ge:
    return x >= y;
  }
  llvm_unreachable("unknown predicate");
}

/// Truncates. What the type cannot hold becomes its nearest integer, and NaN
/// the smallest.
static int64_t toInteger(double x, Type element) {
  unsigned bits = element.getIntOrFloatBitWidth();
  bool isUnsigned = element.isUnsignedInteger();
  double limit = std::ldexp(1.0, isUnsigned ? bits : bits - 1);
  // The power of two is exact in a double; the largest integer may not be.
  if (x >= limit)
    return isUnsigned ? llvm::maxUIntN(bits) : llvm::maxIntN(bits);
  if (!(x > (isUnsigned ? 0 : -limit))) // also NaN
    return isUnsigned ? 0 : llvm::minIntN(bits);
  return static_cast<int64_t>(x);
}

// Integers are widened to 64 bits already, so only floats to integers and truth
// values convert here; ReferenceTensor::round does the rest.
static void cast(const ReferenceTensor &in, ReferenceTensor &out) {
  bool toBool = out.element.isInteger(1);
  for (int64_t i = 0; i < out.size(); ++i) {
    if (out.isFloat())
      out.floats[i] = in.isFloat() ? in.floats[i] : in.ints[i];
    else if (in.isFloat())
      out.ints[i] =
          toBool ? in.floats[i] != 0 : toInteger(in.floats[i], out.element);
    else
      out.ints[i] = toBool ? in.ints[i] != 0 : in.ints[i];
  }
}

static void select(Inputs in, ReferenceTensor &out) {
  for (int64_t i = 0; i < out.size(); ++i) {
    const ReferenceTensor &from = in[0].ints[i] ? in[1] : in[2];
    if (out.isFloat())
      out.floats[i] = from.floats[i];
    else
      out.ints[i] = from.ints[i];
  }
}

// The operands' type decides, since the result is always i1.
static void compare(CmpOp op, Inputs in, ReferenceTensors &out) {
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].ints[i] =
        in[0].isFloat()
            ? compare(op.getPredicate(), in[0].floats[i], in[1].floats[i])
            : compare(op.getPredicate(), in[0].ints[i], in[1].ints[i]);
}

// In multiples of the step of bf16 at x, which has 8 digits, and no step below
// that of its least normal number.
static double toNeighbour(double x, uint32_t word) {
  if (!std::isfinite(x))
    return x;
  int exponent;
  std::frexp(x, &exponent);
  double step = std::ldexp(1.0, std::max(exponent, -125) - 8);
  double low = std::trunc(x / step);
  double part = std::abs(x / step - low) * 65536;
  bool away = part + (word >> 16) >= 65536;
  return (low + (away ? std::copysign(1.0, x) : 0)) * step;
}

static void roundStochastic(RoundStochasticOp, Inputs in,
                            ReferenceTensors &out) {
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].floats[i] =
        toNeighbour(in[0].floats[i], static_cast<uint32_t>(in[1].ints[i]));
}

using Floats = ArrayRef<double>;
using Ints = ArrayRef<int64_t>;

/// Evaluates `element(op, x)` per element of the result, `x` being the
/// operands' elements there.
template <typename T, typename OpTy, typename Element>
static void forEachElement(OpTy op, Inputs in,
                           std::vector<T> ReferenceTensor::*data,
                           ReferenceTensor &out, Element element) {
  // One buffer for all elements, since this loop folds large constants.
  SmallVector<T> x(in.size());
  for (int64_t i = 0; i < out.size(); ++i) {
    for (size_t operand = 0; operand < in.size(); ++operand)
      x[operand] = (in[operand].*data)[i];
    (out.*data)[i] = element(op, ArrayRef<T>(x));
  }
}

/// Registers an op by its value at one element: `element(op, x)` takes `Floats`
/// or `Ints`, or both where it is generic.
template <typename OpTy, typename Element>
static void add(ReferenceTable &table, Element element) {
  table.add<OpTy>([element](OpTy op, Inputs in, ReferenceTensors &out) {
    // A function may take only one of the two kinds; the other is not compiled.
    if constexpr (std::is_invocable_v<Element, OpTy, Floats>)
      if (out[0].isFloat())
        return forEachElement(op, in, &ReferenceTensor::floats, out[0],
                              element);
    if constexpr (std::is_invocable_v<Element, OpTy, Ints>)
      if (!out[0].isFloat())
        return forEachElement(op, in, &ReferenceTensor::ints, out[0], element);
    llvm_unreachable("the op's verifier admits no such element type");
  });
}

// Generic lambdas serve floats and integers alike; the overloads above tell the
// two apart.
static void addArithmetic(ReferenceTable &table) {
  add<CopyOp>(table, [](CopyOp, auto x) { return x[0]; });
  add<NegOp>(table, [](NegOp, auto x) { return negate(x[0]); });
  add<AbsOp>(table, [](AbsOp, auto x) { return absolute(x[0]); });
  add<AddOp>(table, [](AddOp, auto x) { return plus(x[0], x[1]); });
  add<SubOp>(table, [](SubOp, auto x) { return minus(x[0], x[1]); });
  add<MulOp>(table, [](MulOp, auto x) { return times(x[0], x[1]); });
  add<DivOp>(table, [](DivOp, auto x) { return divide(x[0], x[1]); });
  add<ModOp>(table, [](ModOp, auto x) { return floorMod(x[0], x[1]); });
  add<PowOp>(table, [](PowOp, auto x) { return power(x[0], x[1]); });
  add<MaximumOp>(table, [](MaximumOp, auto x) { return maximum(x[0], x[1]); });
  add<MinimumOp>(table, [](MinimumOp, auto x) { return minimum(x[0], x[1]); });
  add<NotOp>(table, [](NotOp, Ints x) { return x[0] ^ 1; });
  add<AndOp>(table, [](AndOp, Ints x) { return x[0] & x[1]; });
  add<OrOp>(table, [](OrOp, Ints x) { return x[0] | x[1]; });
  add<XorOp>(table, [](XorOp, Ints x) { return x[0] ^ x[1]; });
}

// Functions of floats only, from the C library, in double precision.
static void addFunctions(ReferenceTable &table) {
  add<ExpOp>(table, [](ExpOp, Floats x) { return std::exp(x[0]); });
  add<LogOp>(table, [](LogOp, Floats x) { return std::log(x[0]); });
  add<Expm1Op>(table, [](Expm1Op, Floats x) { return std::expm1(x[0]); });
  add<Log1pOp>(table, [](Log1pOp, Floats x) { return std::log1p(x[0]); });
  add<SqrtOp>(table, [](SqrtOp, Floats x) { return std::sqrt(x[0]); });
  add<RsqrtOp>(table, [](RsqrtOp, Floats x) { return 1 / std::sqrt(x[0]); });
  add<TanhOp>(table, [](TanhOp, Floats x) { return std::tanh(x[0]); });
  add<ErfOp>(table, [](ErfOp, Floats x) { return std::erf(x[0]); });
  add<SigmoidOp>(table, [](SigmoidOp, Floats x) { return sigmoid(x[0]); });
  add<SoftplusOp>(table, [](SoftplusOp, Floats x) { return softplus(x[0]); });
  add<ReluOp>(table, [](ReluOp, Floats x) { return maximum(x[0], 0.0); });
  add<SinOp>(table, [](SinOp, Floats x) { return std::sin(x[0]); });
  add<AtanOp>(table, [](AtanOp, Floats x) { return std::atan(x[0]); });
  add<CosOp>(table, [](CosOp, Floats x) { return std::cos(x[0]); });
  add<FloorOp>(table, [](FloorOp, Floats x) { return std::floor(x[0]); });
  // The default rounding mode takes the even one of two equally near integers.
  table.add<RoundStochasticOp>(roundStochastic);
  add<RoundOp>(table, [](RoundOp, Floats x) { return std::nearbyint(x[0]); });
  add<StopGradientOp>(table, [](StopGradientOp, Floats x) { return x[0]; });
  add<GeluOp>(table,
              [](GeluOp op, Floats x) { return gelu(x[0], op.getForm()); });
  add<GeluGradOp>(table, [](GeluGradOp op, Floats x) {
    return x[1] * geluDerivative(x[0], op.getForm());
  });
  add<SiluOp>(table, [](SiluOp, Floats x) { return x[0] * sigmoid(x[0]); });
  add<SiluGradOp>(table, [](SiluGradOp, Floats x) {
    double s = sigmoid(x[0]);
    return x[1] * s * (1 + x[0] * (1 - s));
  });
}

void addElementwise(ReferenceTable &table) {
  addArithmetic(table);
  addFunctions(table);
  // Operands and result differ in type here, so forEachElement does not fit.
  table.add<CastOp>(
      [](CastOp, Inputs in, ReferenceTensors &out) { cast(in[0], out[0]); });
  table.add<SelectOp>(
      [](SelectOp, Inputs in, ReferenceTensors &out) { select(in, out[0]); });
  table.add<CmpOp>(
      [](CmpOp op, Inputs in, ReferenceTensors &out) { compare(op, in, out); });
}

} // namespace fsdpc::nn::reference
