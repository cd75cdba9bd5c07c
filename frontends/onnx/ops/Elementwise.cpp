// Arithmetic, comparisons, logic and activations. ONNX broadcasts implicitly;
// here broadcasts become explicit ops. Activations that nn lacks are composed
// of its ops in a form that neither overflows nor has a NaN in its gradient,
// since their adjoints follow from these ops.
#include "frontends/onnx/Node.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;
using nn::Predicate;

// ---- several operands ----

// Reads between `least` and `most` inputs of one element type, broadcast to
// their common shape.
static LogicalResult operands(Node &node, SmallVector<Value> &values,
                              int64_t least, int64_t most) {
  if (failed(node.expectInputs(std::max(least, node.numInputs()), most)))
    return failure();
  for (int64_t i = 0; i < node.numInputs(); ++i)
    values.push_back(node.input(i));
  for (Value value : values)
    if (elementOf(value) != elementOf(values[0]))
      return node.refuse("inputs must have the same element type");
  return node.broadcast(values);
}

// An op of two operands of any type.
template <typename OpT> static LogicalResult binary(Node &node) {
  SmallVector<Value> x;
  if (failed(operands(node, x, 2, 2)))
    return failure();
  return node.result(node.b.binary<OpT>(x[0], x[1]));
}

// An op of two booleans.
template <typename OpT> static LogicalResult logical(Node &node) {
  SmallVector<Value> x;
  if (failed(operands(node, x, 2, 2)))
    return failure();
  if (!elementOf(x[0]).isInteger(1))
    return node.refuse("inputs must be bool");
  return node.result(node.b.binary<OpT>(x[0], x[1]));
}

// An associative op of any number of operands, applied from left to right.
template <typename OpT> static LogicalResult variadic(Node &node) {
  SmallVector<Value> x;
  if (failed(operands(node, x, 1, 1024)))
    return failure();
  Value result = x[0];
  for (Value next : ArrayRef(x).drop_front())
    result = node.b.binary<OpT>(result, next);
  return node.result(result);
}

// The mean of several tensors, not of the elements of one.
static LogicalResult mean(Node &node) {
  SmallVector<Value> x;
  if (failed(operands(node, x, 1, 1024)) || failed(node.expectFloat(x[0])))
    return failure();
  Value result = x[0];
  for (Value next : ArrayRef(x).drop_front())
    result = node.b.binary<nn::AddOp>(result, next);
  return node.result(node.b.binary<nn::DivOp>(result, double(x.size())));
}

template <Predicate predicate> static LogicalResult compare(Node &node) {
  SmallVector<Value> x;
  if (failed(operands(node, x, 2, 2)))
    return failure();
  return node.result(node.b.compare(predicate, x[0], x[1]));
}

// Constant integer divisors are checked here, since a kernel cannot report a
// division by zero.
static LogicalResult expectDivisor(Node &node) {
  std::optional<SmallVector<int64_t>> divisors = integersOf(node.input(1));
  if (divisors && llvm::is_contained(*divisors, 0))
    return node.refuse("integer division by zero");
  return success();
}

static LogicalResult div(Node &node) {
  SmallVector<Value> x;
  if (failed(operands(node, x, 2, 2)) || failed(expectDivisor(node)))
    return failure();
  return node.result(node.b.binary<nn::DivOp>(x[0], x[1]));
}

// nn.mod has the sign of the divisor (Python). With `fmod`, the sign is that of
// the dividend (C), which for integers follows from truncating division.
static LogicalResult mod(Node &node) {
  SmallVector<Value> x;
  if (failed(operands(node, x, 2, 2)) || failed(expectDivisor(node)))
    return failure();
  if (!node.getInt("fmod", 0))
    return node.result(node.b.binary<nn::ModOp>(x[0], x[1]));
  if (isa<FloatType>(elementOf(x[0])))
    return node.refuse("attribute 'fmod' = 1 is not supported for floats");
  Value quotient = node.b.binary<nn::DivOp>(x[0], x[1]);
  Value whole = node.b.binary<nn::MulOp>(quotient, x[1]);
  return node.result(node.b.binary<nn::SubOp>(x[0], whole));
}

static LogicalResult pow(Node &node) {
  if (failed(node.expectInputs(2, 2)))
    return failure();
  Emitter &b = node.b;
  Value base = node.input(0), exponent = node.input(1);
  if (std::optional<double> splat = matchSplat(exponent);
      splat && node.broadcastsTo(exponent, shapeOf(base))) {
    // Small powers become products, as in PyTorch.
    if (*splat == 1)
      return node.result(base);
    if (*splat == 0.5 && isa<FloatType>(elementOf(base)))
      return node.result(b.unary<nn::SqrtOp>(base));
    if (*splat == -0.5 && isa<FloatType>(elementOf(base)))
      return node.result(b.unary<nn::RsqrtOp>(base));
    if (*splat == 2 || *splat == 3) {
      Value square = b.binary<nn::MulOp>(base, base);
      return node.result(*splat == 2 ? square
                                     : b.binary<nn::MulOp>(square, base));
    }
  }
  if (failed(node.expectFloat(base)))
    return failure();
  // ONNX allows an exponent of another type; the result has the base's.
  SmallVector<Value> x = {base, b.cast(exponent, elementOf(base))};
  if (failed(node.broadcast(x)))
    return failure();
  return node.result(b.binary<nn::PowOp>(x[0], x[1]));
}

static LogicalResult where(Node &node) {
  if (failed(node.expectInputs(3, 3)))
    return failure();
  SmallVector<Value> x = {node.input(0), node.input(1), node.input(2)};
  if (!elementOf(x[0]).isInteger(1) || elementOf(x[1]) != elementOf(x[2]))
    return node.refuse("the condition must be bool, and both branches must "
                       "have the same element type");
  if (failed(node.broadcast(x)))
    return failure();
  return node.result(node.b.select(x[0], x[1], x[2]));
}

// Both bounds are optional inputs.
static LogicalResult clip(Node &node) {
  if (failed(node.expectInputs(1, 3)))
    return failure();
  Value x = node.input(0);
  for (int64_t i : {1, 2}) {
    Value bound = node.input(i);
    if (!bound)
      continue;
    if (!node.broadcastsTo(bound, shapeOf(x)) ||
        elementOf(bound) != elementOf(x))
      return node.refuse("'min' and 'max' must be scalars of the input's type");
    bound = node.b.broadcast(bound, shapeOf(x));
    x = i == 1 ? node.b.binary<nn::MaximumOp>(x, bound)
               : node.b.binary<nn::MinimumOp>(x, bound);
  }
  return node.result(x);
}

// ---- one operand ----

// Makes a handler from a function of one float value.
template <Value (*build)(Node &, Value)>
static LogicalResult activation(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Value result = build(node, node.input(0));
  return result ? node.result(result) : failure();
}

template <typename OpT> static Value unary(Node &node, Value x) {
  return node.b.unary<OpT>(x);
}

// A unary op that also accepts integers.
template <typename OpT> static LogicalResult anyType(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  Value x = node.input(0);
  if (elementOf(x).isInteger(1))
    return node.refuse("bool inputs are not supported");
  return node.result(node.b.unary<OpT>(x));
}

static LogicalResult logicalNot(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  if (!elementOf(node.input(0)).isInteger(1))
    return node.refuse("the input must be bool");
  return node.result(node.b.unary<nn::NotOp>(node.input(0)));
}

static LogicalResult identity(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  return node.result(node.input(0));
}

// 1 / sqrt(x) is how exporters write rsqrt.
static Value reciprocal(Node &node, Value x) {
  if (auto root = x.getDefiningOp<nn::SqrtOp>())
    return node.b.unary<nn::RsqrtOp>(root.getInput());
  return node.b.binary<nn::DivOp>(node.b.like(x, 1), x);
}

// Only NaN differs from itself.
static Value isNaN(Node &node, Value x) {
  return node.b.compare(Predicate::ne, x, x);
}

// One sign, both, or neither.
static Value isInf(Node &node, Value x) {
  Emitter &b = node.b;
  bool above = node.getInt("detect_positive", 1);
  bool below = node.getInt("detect_negative", 1);
  if (above && below)
    x = b.unary<nn::AbsOp>(x);
  if (!above && !below)
    return b.splat(tensorType(x).clone(b.builder.getI1Type()), 0);
  return b.compare(Predicate::eq, x, b.like(x, above ? INFINITY : -INFINITY));
}

// ⌈x⌉ = -⌊-x⌋.
static Value ceil(Node &node, Value x) {
  return node.b.unary<nn::NegOp>(
      node.b.unary<nn::FloorOp>(node.b.unary<nn::NegOp>(x)));
}

static Value positive(Node &node, Value x) {
  return node.b.compare(Predicate::gt, x, node.b.like(x, 0));
}

// 0 for NaN, for which both comparisons are false.
static Value sign(Node &node, Value x) {
  Emitter &b = node.b;
  Value negative = b.compare(Predicate::lt, x, b.like(x, 0));
  Value below = b.select(negative, b.like(x, -1), b.like(x, 0));
  return b.select(positive(node, x), b.like(x, 1), below);
}

static Value tan(Node &node, Value x) {
  return node.b.binary<nn::DivOp>(node.b.unary<nn::SinOp>(x),
                                  node.b.unary<nn::CosOp>(x));
}

static Value gelu(Node &node, Value x) {
  std::string form = node.getString("approximate", "none");
  if (form != "none" && form != "tanh")
    return (void)node.refuse("attribute 'approximate' is '" + form +
                             "'; use none or tanh"),
           Value();
  auto kind = form == "tanh" ? nn::GeluForm::tanh : nn::GeluForm::erf;
  return node.b.make<nn::GeluOp>(x.getType(), x, kind);
}

// A select rather than max(x, alpha · x), which is wrong for alpha above 1.
static Value leakyRelu(Node &node, Value x) {
  Value scaled = node.b.binary<nn::MulOp>(x, node.getFloat("alpha", 0.01f));
  return node.b.select(positive(node, x), x, scaled);
}

// above · x if x > 0, else below · (e^(x / width) - 1).
static Value exponential(Node &node, Value x, double above, double below,
                         double width) {
  Emitter &b = node.b;
  // The branch that is not taken must not overflow, or its adjoint would be 0 ·
  // ∞. A select keeps the curve's slope at 0, of which a minimum passes half.
  Value isAbove = positive(node, x);
  Value clipped = b.select(isAbove, b.like(x, 0), x);
  Value curve = b.binary<nn::MulOp>(
      b.unary<nn::Expm1Op>(b.binary<nn::DivOp>(clipped, width)), below);
  return b.select(isAbove, b.binary<nn::MulOp>(x, above), curve);
}

static Value elu(Node &node, Value x) {
  return exponential(node, x, 1, node.getFloat("alpha", 1), 1);
}

static Value selu(Node &node, Value x) {
  double alpha = node.getFloat("alpha", 1.67326319217681884765625f);
  double gamma = node.getFloat("gamma", 1.05070102214813232421875f);
  return exponential(node, x, gamma, gamma * alpha, 1);
}

static Value celu(Node &node, Value x) {
  double alpha = node.getFloat("alpha", 1);
  return exponential(node, x, 1, alpha, alpha);
}

static Value softsign(Node &node, Value x) {
  Value scale = node.b.binary<nn::AddOp>(node.b.unary<nn::AbsOp>(x), 1.0);
  return node.b.binary<nn::DivOp>(x, scale);
}

// x · tanh(ln(1 + eˣ)).
static Value mish(Node &node, Value x) {
  Value gate = node.b.unary<nn::TanhOp>(node.b.unary<nn::SoftplusOp>(x));
  return node.b.binary<nn::MulOp>(x, gate);
}

// alpha · x + beta, clamped to [0, 1].
static Value ramp(Node &node, Value x, double alpha, double beta) {
  Emitter &b = node.b;
  Value line = b.binary<nn::AddOp>(b.binary<nn::MulOp>(x, alpha), beta);
  return b.binary<nn::MinimumOp>(b.binary<nn::MaximumOp>(line, 0.0), 1.0);
}

static Value hardSigmoid(Node &node, Value x) {
  return ramp(node, x, node.getFloat("alpha", 0.2f),
              node.getFloat("beta", 0.5));
}

// x · clamp(x / 6 + 1/2, 0, 1).
static Value hardSwish(Node &node, Value x) {
  return node.b.binary<nn::MulOp>(x, ramp(node, x, 1.0 / 6.0, 0.5));
}

// The slope is an input, usually a parameter, and gets a gradient.
static LogicalResult prelu(Node &node) {
  SmallVector<Value> x;
  if (failed(operands(node, x, 2, 2)) || failed(node.expectFloat(x[0])))
    return failure();
  Value scaled = node.b.binary<nn::MulOp>(x[0], x[1]);
  return node.result(node.b.select(positive(node, x[0]), x[0], scaled));
}

// The numbers are the versions of the op since which the handler is right.
// Models have opset 18 or later, so older versions are not registered.
void frontend::registerElementwise(HandlerTable &table) {
  table.add("Add", 14, binary<nn::AddOp>);
  table.add("Sub", 14, binary<nn::SubOp>);
  table.add("Mul", 14, binary<nn::MulOp>);
  table.add("Div", 14, div);
  table.add("Mod", 13, mod);
  table.add("Pow", 15, pow);
  table.add("Max", 13, variadic<nn::MaximumOp>);
  table.add("Min", 13, variadic<nn::MinimumOp>);
  table.add("Sum", 13, variadic<nn::AddOp>);
  table.add("Mean", 13, mean);
  table.add("And", 7, logical<nn::AndOp>);
  table.add("Or", 7, logical<nn::OrOp>);
  table.add("Xor", 7, logical<nn::XorOp>);
  table.add("Not", 1, logicalNot);
  table.add("Equal", 13, compare<Predicate::eq>);
  table.add("Less", 13, compare<Predicate::lt>);
  table.add("LessOrEqual", 16, compare<Predicate::le>);
  table.add("Greater", 13, compare<Predicate::gt>);
  table.add("GreaterOrEqual", 16, compare<Predicate::ge>);
  table.add("Where", 16, where);
  table.add("Clip", 13, clip);
  table.add("Identity", 16, identity);
  table.add("Neg", 13, anyType<nn::NegOp>);
  table.add("Abs", 13, anyType<nn::AbsOp>);
  table.add("Exp", 13, activation<unary<nn::ExpOp>>);
  table.add("Log", 13, activation<unary<nn::LogOp>>);
  table.add("Sqrt", 13, activation<unary<nn::SqrtOp>>);
  table.add("Tanh", 13, activation<unary<nn::TanhOp>>);
  table.add("Erf", 13, activation<unary<nn::ErfOp>>);
  table.add("Sigmoid", 13, activation<unary<nn::SigmoidOp>>);
  table.add("Relu", 14, activation<unary<nn::ReluOp>>);
  table.add("Sin", 7, activation<unary<nn::SinOp>>);
  table.add("Cos", 7, activation<unary<nn::CosOp>>);
  table.add("Tan", 7, activation<tan>);
  table.add("Floor", 13, activation<unary<nn::FloorOp>>);
  table.add("Round", 11, activation<unary<nn::RoundOp>>);
  table.add("Ceil", 13, activation<ceil>);
  table.add("Sign", 13, activation<sign>);
  table.add("Reciprocal", 13, activation<reciprocal>);
  table.add("IsNaN", 13, activation<isNaN>);
  table.add("IsInf", 10, activation<isInf>);
  table.add("Gelu", 20, activation<gelu>);
  table.add("LeakyRelu", 16, activation<leakyRelu>);
  table.add("PRelu", 16, prelu);
  table.add("Elu", 6, activation<elu>);
  table.add("Selu", 6, activation<selu>);
  table.add("Celu", 12, activation<celu>);
  table.add("Softplus", 1, activation<unary<nn::SoftplusOp>>);
  table.add("Softsign", 1, activation<softsign>);
  table.add("Mish", 18, activation<mish>);
  table.add("HardSigmoid", 6, activation<hardSigmoid>);
  table.add("HardSwish", 14, activation<hardSwish>);
}
