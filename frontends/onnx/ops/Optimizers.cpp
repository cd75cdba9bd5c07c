// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adagrad, Adam and Momentum of ai.onnx.preview.training as plain arithmetic:
// nodes that compute new values from values, gradients and states. They replace
// --optimizer only in a model's own training (ModelOptimizer.h), where they
// become its program.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "frontends/onnx/Node.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

namespace {
// One tensor with its gradient and states, and what all tensors share.
struct Update {
  Node &node;
  Emitter &b;
  Value rate; // a float scalar
  // The number of steps so far: a number if it is constant, else a float
  // scalar.
  std::optional<double> step;
  Value steps;
  Value value, gradient;
  SmallVector<Value, 2> states;

  Value wide(Value scalar) const { return b.broadcast(scalar, shapeOf(value)); }
  // `later` in all steps but the first one.
  Value afterFirst(Value later, Value first) const {
    Value zero = b.like(steps, 0);
    return b.select(b.compare(nn::Predicate::gt, steps, zero), later, first);
  }
  // The gradient with that of norm_coefficient / 2 · ‖value‖².
  Value regularised() const {
    double norm = node.getFloat("norm_coefficient", 0);
    return b.binary<nn::AddOp>(b.binary<nn::MulOp>(value, norm), gradient);
  }
};
// The new value, then the new states.
using Results = SmallVector<Value, 3>;
} // namespace

// Duchi et al., 2011. The decay divides the rate by 1 + step · decay_factor.
static Results adagrad(const Update &u) {
  Emitter &b = u.b;
  double factor = u.node.getFloat("decay_factor", 0);
  Value gradient = u.regularised();
  Value squares =
      b.binary<nn::AddOp>(u.states[0], b.binary<nn::MulOp>(gradient, gradient));
  Value root = b.binary<nn::AddOp>(b.unary<nn::SqrtOp>(squares),
                                   u.node.getFloat("epsilon", 1e-6f));
  Value decayed =
      u.step
          ? b.binary<nn::DivOp>(u.rate, 1 + *u.step * factor)
          : b.binary<nn::DivOp>(
                u.rate,
                b.binary<nn::AddOp>(b.binary<nn::MulOp>(u.steps, factor), 1.0));
  Value rate = u.wide(decayed);
  Value change = b.binary<nn::DivOp>(b.binary<nn::MulOp>(rate, gradient), root);
  return {b.binary<nn::SubOp>(u.value, change), squares};
}

// Corrects the bias of both averages, which begin at 0.
static Value adamRate(const Update &u, double alpha, double beta) {
  Emitter &b = u.b;
  if (u.step)
    return b.binary<nn::MulOp>(
        u.rate, *u.step > 0 ? std::sqrt(1 - std::pow(beta, *u.step)) /
                                  (1 - std::pow(alpha, *u.step))
                            : 1);
  auto passed = [&](double kept) {
    Value power = b.binary<nn::PowOp>(b.like(u.steps, kept), u.steps);
    return b.binary<nn::SubOp>(b.like(u.steps, 1), power);
  };
  Value root = b.unary<nn::SqrtOp>(passed(beta));
  Value corrected =
      b.binary<nn::DivOp>(b.binary<nn::MulOp>(u.rate, root), passed(alpha));
  return u.afterFirst(corrected, u.rate);
}

// Kingma and Ba, 2015, with alpha and beta in the roles of beta1 and beta2.
// `norm_coefficient_post` decays the new value.
static Results adam(const Update &u) {
  Emitter &b = u.b;
  double alpha = u.node.getFloat("alpha", 0.9f);
  double beta = u.node.getFloat("beta", 0.999f);
  Value gradient = u.regularised();
  auto blend = [&](Value state, double kept, Value news) {
    return b.binary<nn::AddOp>(b.binary<nn::MulOp>(state, kept),
                               b.binary<nn::MulOp>(news, 1 - kept));
  };
  Value first = blend(u.states[0], alpha, gradient);
  Value second =
      blend(u.states[1], beta, b.binary<nn::MulOp>(gradient, gradient));
  Value root = b.binary<nn::AddOp>(b.unary<nn::SqrtOp>(second),
                                   u.node.getFloat("epsilon", 1e-6f));
  Value rate = u.wide(adamRate(u, alpha, beta));
  // The operators name the order: rate · (first / root).
  Value change = b.binary<nn::MulOp>(rate, b.binary<nn::DivOp>(first, root));
  double after = 1 - u.node.getFloat("norm_coefficient_post", 0);
  Value value = b.binary<nn::SubOp>(u.value, change);
  return {b.binary<nn::MulOp>(value, after), first, second};
}

// The first step takes the gradient whole, without beta.
static Results momentum(const Update &u) {
  Emitter &b = u.b;
  double alpha = u.node.getFloat("alpha", 0);
  double beta = u.node.getFloat("beta", 0);
  Value gradient = u.regularised();
  Value share =
      u.step ? b.like(u.value, *u.step > 0 ? beta : 1)
             : u.wide(u.afterFirst(b.like(u.steps, beta), b.like(u.steps, 1)));
  Value velocity = b.binary<nn::AddOp>(b.binary<nn::MulOp>(u.states[0], alpha),
                                       b.binary<nn::MulOp>(gradient, share));
  Value direction = velocity;
  if (u.node.getString("mode", "standard") == "nesterov")
    direction =
        b.binary<nn::AddOp>(gradient, b.binary<nn::MulOp>(velocity, alpha));
  Value change = b.binary<nn::MulOp>(u.wide(u.rate), direction);
  return {b.binary<nn::SubOp>(u.value, change), velocity};
}

// Inputs: the learning rate, the number of steps so far, then all values, all
// gradients, and all of each state. Outputs: all values, then all of each
// state. With a constant number of steps the corrections are computed here, in
// f64.
template <Results (*update)(const Update &), int64_t states>
static LogicalResult optimizer(Node &node) {
  constexpr int64_t each = 2 + states;
  int64_t count = (node.numInputs() - 2) / each;
  if (node.numInputs() < 2 + each || (node.numInputs() - 2) % each != 0)
    return node.refuse("the node must have a rate, a step, and " + Twine(each) +
                       " inputs per tensor");
  for (int64_t i = 0; i < node.numInputs(); ++i)
    if (i != 1 && (!node.has(i) || failed(node.expectFloat(node.input(i)))))
      return node.has(i) ? failure()
                         : node.refuse("input " + Twine(i) + " is missing");
  if (!node.has(1) || tensorType(node.input(0)).getNumElements() != 1 ||
      tensorType(node.input(1)).getNumElements() != 1)
    return node.refuse("the rate and the step must be scalars");
  Value rate = node.b.reshape(node.input(0), {}), steps;
  std::optional<double> step;
  if (constantOf(node.input(1))) {
    std::optional<int64_t> number = node.wholeNumber(1, "'T'");
    if (!number)
      return failure();
    step = double(*number);
  } else {
    steps = node.b.cast(node.b.reshape(node.input(1), {}), elementOf(rate));
  }
  for (int64_t i = 0; i < count; ++i) {
    auto at = [&](int64_t group) { return node.input(2 + group * count + i); };
    Update u{node, node.b, rate, step, steps, at(0), at(1), {}};
    for (int64_t k = 0; k < states; ++k)
      u.states.push_back(at(2 + k));
    for (int64_t k = 1; k < each; ++k)
      if (shapeOf(at(k)) != shapeOf(u.value))
        return node.refuse("a gradient or state does not have the shape of its "
                           "value");
    for (auto [k, result] : llvm::enumerate(update(u)))
      node.setOutput(int64_t(k) * count + i, result);
  }
  return success();
}

void frontend::registerOptimizers(HandlerTable &table) {
  table.add("ai.onnx.preview.training.Adagrad", 1, optimizer<adagrad, 1>);
  table.add("ai.onnx.preview.training.Adam", 1, optimizer<adam, 2>);
  table.add("ai.onnx.preview.training.Momentum", 1, optimizer<momentum, 1>);
}
