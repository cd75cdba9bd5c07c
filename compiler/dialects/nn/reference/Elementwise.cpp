// Reference of elementwise ops.
#include "compiler/dialects/nn/reference/Families.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;

namespace fsdpc::nn::reference {

static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

static constexpr double kGeluCubic = 0.044715;

static double gelu(double x, GeluForm form) {
  if (form == GeluForm::erf)
    return x * (1 + std::erf(x * M_SQRT1_2)) / 2;
  double u = std::sqrt(M_2_PI) * (x + kGeluCubic * x * x * x);
  return x * (1 + std::tanh(u)) / 2;
}

static double geluDerivative(double x, GeluForm form) {
  if (form == GeluForm::erf)
    return (1 + std::erf(x * M_SQRT1_2)) / 2 +
           x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
  double c = std::sqrt(M_2_PI);
  double t = std::tanh(c * (x + kGeluCubic * x * x * x));
  return (1 + t) / 2 + x * (1 - t * t) * c * (1 + 3 * kGeluCubic * x * x) / 2;
}

/// NaN where either is.
static double maximum(double x, double y) {
  return std::isnan(x) || x > y ? x : y;
}

static double floorMod(double x, double y) { return x - y * std::floor(x / y); }

static int64_t floorMod(int64_t x, int64_t y) {
  if (y == 0)
    return 0;
  int64_t remainder = x % y;
  return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y
                                                      : remainder;
}

static int64_t power(int64_t x, int64_t y) {
  int64_t result = y < 0 ? 0 : 1;
  for (int64_t i = 0; i < y; ++i)
    result *= x;
  return result;
}

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

/// One element of an op on floats; `x` has the operands' elements.
static std::optional<double> evaluateFloat(Operation *op, ArrayRef<double> x) {
  return TypeSwitch<Operation *, std::optional<double>>(op)
      .Case([&](NegOp) { return -x[0]; })
      .Case([&](AbsOp) { return std::abs(x[0]); })
      .Case([&](ExpOp) { return std::exp(x[0]); })
      .Case([&](LogOp) { return std::log(x[0]); })
      .Case([&](SqrtOp) { return std::sqrt(x[0]); })
      .Case([&](RsqrtOp) { return 1 / std::sqrt(x[0]); })
      .Case([&](TanhOp) { return std::tanh(x[0]); })
      .Case([&](ErfOp) { return std::erf(x[0]); })
      .Case([&](SigmoidOp) { return sigmoid(x[0]); })
      .Case([&](ReluOp) { return maximum(x[0], 0); })
      .Case([&](SinOp) { return std::sin(x[0]); })
      .Case([&](CosOp) { return std::cos(x[0]); })
      .Case([&](FloorOp) { return std::floor(x[0]); })
      .Case([&](AddOp) { return x[0] + x[1]; })
      .Case([&](SubOp) { return x[0] - x[1]; })
      .Case([&](MulOp) { return x[0] * x[1]; })
      .Case([&](DivOp) { return x[0] / x[1]; })
      .Case([&](ModOp) { return floorMod(x[0], x[1]); })
      .Case([&](PowOp) { return std::pow(x[0], x[1]); })
      .Case([&](MaximumOp) { return maximum(x[0], x[1]); })
      .Case([&](MinimumOp) { return -maximum(-x[0], -x[1]); })
      .Case([&](GeluOp op) { return gelu(x[0], op.getForm()); })
      .Case([&](GeluGradOp op) {
        return x[1] * geluDerivative(x[0], op.getForm());
      })
      .Case([&](SiluOp) { return x[0] * sigmoid(x[0]); })
      .Case([&](SiluGradOp) {
        double s = sigmoid(x[0]);
        return x[1] * s * (1 + x[0] * (1 - s));
      })
      .Default(std::nullopt);
}

/// One element of an op on integers.
static std::optional<int64_t> evaluateInt(Operation *op, ArrayRef<int64_t> x) {
  return TypeSwitch<Operation *, std::optional<int64_t>>(op)
      .Case([&](NegOp) { return -x[0]; })
      .Case([&](AbsOp) { return std::abs(x[0]); })
      .Case([&](NotOp) { return x[0] ^ 1; })
      .Case([&](AddOp) { return x[0] + x[1]; })
      .Case([&](SubOp) { return x[0] - x[1]; })
      .Case([&](MulOp) { return x[0] * x[1]; })
      .Case([&](DivOp) { return x[1] == 0 ? 0 : x[0] / x[1]; })
      .Case([&](ModOp) { return floorMod(x[0], x[1]); })
      .Case([&](PowOp) { return power(x[0], x[1]); })
      .Case([&](MaximumOp) { return std::max(x[0], x[1]); })
      .Case([&](MinimumOp) { return std::min(x[0], x[1]); })
      .Case([&](AndOp) { return x[0] & x[1]; })
      .Case([&](OrOp) { return x[0] | x[1]; })
      .Case([&](XorOp) { return x[0] ^ x[1]; })
      .Default(std::nullopt);
}

static void cast(const ReferenceTensor &in, ReferenceTensor &out) {
  bool toBool = out.element.isInteger(1);
  for (int64_t i = 0; i < out.size(); ++i) {
    if (out.isFloat())
      out.floats[i] = in.isFloat() ? in.floats[i] : in.ints[i];
    else if (in.isFloat())
      out.ints[i] =
          toBool ? in.floats[i] != 0 : static_cast<int64_t>(in.floats[i]);
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

bool evaluateElementwise(Operation *op, Inputs in, ReferenceTensors &out) {
  if (!isa<ElementwiseOpInterface>(op))
    return false;
  ReferenceTensor &result = out.front();
  if (isa<CastOp>(op)) {
    cast(in[0], result);
  } else if (isa<SelectOp>(op)) {
    select(in, result);
  } else if (auto cmp = dyn_cast<CmpOp>(op)) {
    for (int64_t i = 0; i < result.size(); ++i)
      result.ints[i] =
          in[0].isFloat()
              ? compare(cmp.getPredicate(), in[0].floats[i], in[1].floats[i])
              : compare(cmp.getPredicate(), in[0].ints[i], in[1].ints[i]);
  } else if (result.isFloat()) {
    SmallVector<double> x(in.size());
    for (int64_t i = 0; i < result.size(); ++i) {
      for (size_t operand = 0; operand < in.size(); ++operand)
        x[operand] = in[operand].floats[i];
      auto value = evaluateFloat(op, x);
      if (!value)
        return false;
      result.floats[i] = *value;
    }
  } else {
    SmallVector<int64_t> x(in.size());
    for (int64_t i = 0; i < result.size(); ++i) {
      for (size_t operand = 0; operand < in.size(); ++operand)
        x[operand] = in[operand].ints[i];
      auto value = evaluateInt(op, x);
      if (!value)
        return false;
      result.ints[i] = *value;
    }
  }
  return true;
}

} // namespace fsdpc::nn::reference
