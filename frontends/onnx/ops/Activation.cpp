// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Functions of one float value: activations, trigonometry and hyperbolic
// functions. Functions that nn lacks are composed of its ops in a form that
// neither overflows nor has a NaN in its gradient, since the adjoints follow
// from these ops.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "frontends/onnx/ops/Unary.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;
using nn::Predicate;

// Returns x > 0 elementwise: false at 0 and for NaN. Its result picks a branch,
// so the derivative at 0 is that of the branch below.
static Value positive(Node &node, Value x) {
  return node.b.compare(Predicate::gt, x, node.b.like(x, 0));
}

// ---- trigonometry ----

static Value tan(Node &node, Value x) {
  return node.b.binary<nn::DivOp>(node.b.unary<nn::SinOp>(x),
                                  node.b.unary<nn::CosOp>(x));
}

// atan(x / √((1 - x)(1 + x))), which is ±π/2 at ±1.
static Value asin(Node &node, Value x) {
  Emitter &b = node.b;
  Value one = b.like(x, 1);
  Value rest = b.unary<nn::SqrtOp>(b.binary<nn::MulOp>(
      b.binary<nn::SubOp>(one, x), b.binary<nn::AddOp>(one, x)));
  // (1 - x)(1 + x) and not 1 - x²: the square would lose the digits of an x
  // near ±1.
  return b.unary<nn::AtanOp>(b.binary<nn::DivOp>(x, rest));
}

// 2 · atan(√((1 - x) / (1 + x))), which loses nothing near 1.
static Value acos(Node &node, Value x) {
  Emitter &b = node.b;
  Value one = b.like(x, 1);
  Value ratio = b.binary<nn::DivOp>(b.binary<nn::SubOp>(one, x),
                                    b.binary<nn::AddOp>(one, x));
  Value half = b.unary<nn::AtanOp>(b.unary<nn::SqrtOp>(ratio));
  return b.binary<nn::MulOp>(half, 2.0);
}

// (e^x - e^-x) / 2 = (t + t / (t + 1)) / 2 with t = e^x - 1, of |x|, so that t
// is never near -1. Half of e^x is e^(x - ln 2), which overflows later.
static Value sinh(Node &node, Value x) {
  Emitter &b = node.b;
  Value size = b.unary<nn::AbsOp>(x);
  Value t = b.unary<nn::Expm1Op>(size);
  Value small = b.binary<nn::MulOp>(
      b.binary<nn::AddOp>(t,
                          b.binary<nn::DivOp>(t, b.binary<nn::AddOp>(t, 1.0))),
      0.5);
  // Beyond 20, e^-x is below the last digit of e^x in f32.
  Value isLarge = b.compare(Predicate::gt, size, b.like(x, 20));
  Value large = b.unary<nn::ExpOp>(b.binary<nn::SubOp>(
      b.select(isLarge, size, b.like(x, 0)), std::log(2.0)));
  Value result =
      b.select(isLarge, large, b.select(isLarge, b.like(x, 0), small));
  return b.select(positive(node, x), result, b.unary<nn::NegOp>(result));
}

// e^(|x| - ln 2) + e^(-|x| - ln 2). Both terms are positive, so nothing
// cancels. The shift by ln 2 halves them before the exponential can overflow.
static Value cosh(Node &node, Value x) {
  Emitter &b = node.b;
  Value size = b.unary<nn::AbsOp>(x);
  Value half = b.like(x, std::log(2.0));
  return b.binary<nn::AddOp>(
      b.unary<nn::ExpOp>(b.binary<nn::SubOp>(size, half)),
      b.unary<nn::ExpOp>(b.binary<nn::SubOp>(b.unary<nn::NegOp>(size), half)));
}

// sign(x) · log1p(|x| + x² / (1 + √(1 + x²))). The quotient replaces √(1 + x²)
// - 1, which loses all digits for small x.
static Value asinh(Node &node, Value x) {
  Emitter &b = node.b;
  Value size = b.unary<nn::AbsOp>(x), square = b.binary<nn::MulOp>(x, x);
  Value root = b.unary<nn::SqrtOp>(b.binary<nn::AddOp>(square, 1.0));
  Value rest = b.binary<nn::DivOp>(square, b.binary<nn::AddOp>(root, 1.0));
  Value y = b.unary<nn::Log1pOp>(b.binary<nn::AddOp>(size, rest));
  return b.select(positive(node, x), y, b.unary<nn::NegOp>(y));
}

// log1p(t + √(t · (x + 1))) with t = x - 1.
static Value acosh(Node &node, Value x) {
  Emitter &b = node.b;
  Value t = b.binary<nn::SubOp>(x, b.like(x, 1));
  Value root =
      b.unary<nn::SqrtOp>(b.binary<nn::MulOp>(t, b.binary<nn::AddOp>(x, 1.0)));
  return b.unary<nn::Log1pOp>(b.binary<nn::AddOp>(t, root));
}

// log1p(2x / (1 - x)) / 2. log1p keeps the digits of a small x, which ln((1 +
// x) / (1 - x)) would lose.
static Value atanh(Node &node, Value x) {
  Emitter &b = node.b;
  Value ratio = b.binary<nn::DivOp>(b.binary<nn::MulOp>(x, 2.0),
                                    b.binary<nn::SubOp>(b.like(x, 1), x));
  return b.binary<nn::MulOp>(b.unary<nn::Log1pOp>(ratio), 0.5);
}

// ---- activations ----

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

// torch.nn.ELU, SELU and CELU are the same curve with other parameters.
static Value elu(Node &node, Value x) {
  return exponential(node, x, 1, node.getFloat("alpha", 1), 1);
}

static Value selu(Node &node, Value x) {
  // The defaults of the ONNX specification, written in full: f32 numbers near
  // the constants of Klambauer et al., Self-Normalizing Neural Networks, 2017.
  double alpha = node.getFloat("alpha", 1.67326319217681884765625f);
  double gamma = node.getFloat("gamma", 1.05070102214813232421875f);
  return exponential(node, x, gamma, gamma * alpha, 1);
}

static Value celu(Node &node, Value x) {
  double alpha = node.getFloat("alpha", 1);
  return exponential(node, x, 1, alpha, alpha);
}

// x / (1 + |x|).
static Value softsign(Node &node, Value x) {
  Value scale = node.b.binary<nn::AddOp>(node.b.unary<nn::AbsOp>(x), 1.0);
  return node.b.binary<nn::DivOp>(x, scale);
}

// x · tanh(ln(1 + eˣ)).
static Value mish(Node &node, Value x) {
  Value gate = node.b.unary<nn::TanhOp>(node.b.unary<nn::SoftplusOp>(x));
  return node.b.binary<nn::MulOp>(x, gate);
}

// alpha · x + beta, clamped to [0, 1]. The gradient is 0 outside of the ramp
// and at its ends, as in torch.
static Value ramp(Node &node, Value x, double alpha, double beta) {
  Emitter &b = node.b;
  Value line = b.binary<nn::AddOp>(b.binary<nn::MulOp>(x, alpha), beta);
  Value zero = b.like(x, 0), one = b.like(x, 1);
  line = b.select(b.compare(Predicate::le, line, zero), zero, line);
  return b.select(b.compare(Predicate::ge, line, one), one, line);
}

static Value hardSigmoid(Node &node, Value x) {
  return ramp(node, x, node.getFloat("alpha", 0.2f),
              node.getFloat("beta", 0.5));
}

// x · clamp(x / 6 + 1/2, 0, 1).
static Value hardSwish(Node &node, Value x) {
  return node.b.binary<nn::MulOp>(x, ramp(node, x, 1.0 / 6.0, 0.5));
}

// The slope is an input, usually a parameter, and gets a gradient. ONNX
// broadcasts the slope from the right, so a slope per channel comes as C×1×1.
static LogicalResult prelu(Node &node) {
  if (failed(node.expectInputs(2, 2)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  SmallVector<Value> x = {node.input(0), node.input(1)};
  if (failed(node.broadcast(x)))
    return failure();
  Value scaled = node.b.binary<nn::MulOp>(x[0], x[1]);
  return node.result(node.b.select(positive(node, x[0]), x[0], scaled));
}

// x · sigmoid(alpha · x).
static Value swish(Node &node, Value x) {
  double alpha = node.getFloat("alpha", 1);
  if (alpha == 1)
    return node.b.unary<nn::SiluOp>(x);
  Value gate = node.b.unary<nn::SigmoidOp>(node.b.binary<nn::MulOp>(x, alpha));
  return node.b.binary<nn::MulOp>(x, gate);
}

// 0 within [-lambd, lambd], and x moved towards 0 by `bias` outside of it.
static Value shrink(Node &node, Value x) {
  Emitter &b = node.b;
  double lambda = node.getFloat("lambd", 0.5), bias = node.getFloat("bias", 0);
  Value above = b.compare(Predicate::gt, x, b.like(x, lambda));
  Value below = b.compare(Predicate::lt, x, b.like(x, -lambda));
  Value rest = b.select(below, b.binary<nn::AddOp>(x, bias), b.like(x, 0));
  return b.select(above, b.binary<nn::SubOp>(x, b.like(x, bias)), rest);
}

// x above `alpha`, else 0: unlike relu, it jumps at the threshold.
static Value thresholdedRelu(Node &node, Value x) {
  Emitter &b = node.b;
  Value limit = b.like(x, node.getFloat("alpha", 1));
  return b.select(b.compare(Predicate::gt, x, limit), x, b.like(x, 0));
}

// The numbers are the versions of the op since which the handler is right. An
// older version has the op in another form, mostly with explicit broadcasts.
void frontend::registerActivation(HandlerTable &table) {
  table.add("Tanh", 6, activation<unary<nn::TanhOp>>);
  table.add("Erf", 9, activation<unary<nn::ErfOp>>);
  table.add("Sigmoid", 6, activation<unary<nn::SigmoidOp>>);
  table.add("Relu", 6, activation<unary<nn::ReluOp>>);
  table.add("Sin", 7, activation<unary<nn::SinOp>>);
  table.add("Cos", 7, activation<unary<nn::CosOp>>);
  table.add("Tan", 7, activation<tan>);
  table.add("Gelu", 20, activation<gelu>);
  table.add("LeakyRelu", 6, activation<leakyRelu>);
  table.add("PRelu", 7, prelu);
  table.add("Elu", 6, activation<elu>);
  table.add("Selu", 6, activation<selu>);
  table.add("Celu", 12, activation<celu>);
  table.add("Softplus", 1, activation<unary<nn::SoftplusOp>>);
  table.add("Softsign", 1, activation<softsign>);
  table.add("Mish", 18, activation<mish>);
  table.add("HardSigmoid", 6, activation<hardSigmoid>);
  table.add("HardSwish", 14, activation<hardSwish>);
  table.add("Atan", 7, activation<unary<nn::AtanOp>>);
  table.add("Asin", 7, activation<asin>);
  table.add("Acos", 7, activation<acos>);
  table.add("Sinh", 9, activation<sinh>);
  table.add("Cosh", 9, activation<cosh>);
  table.add("Asinh", 9, activation<asinh>);
  table.add("Acosh", 9, activation<acosh>);
  table.add("Atanh", 9, activation<atanh>);
  table.add("Swish", 24, activation<swish>);
  table.add("Shrink", 9, activation<shrink>);
  table.add("ThresholdedRelu", 10, activation<thresholdedRelu>);
}
