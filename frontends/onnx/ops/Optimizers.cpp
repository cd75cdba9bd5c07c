// Adagrad, Adam and Momentum of ai.onnx.preview.training as plain arithmetic:
// nodes that compute new values from values, gradients and states. They do not
// replace --optimizer, which updates the model's own parameters.
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
  double step;
  Value value, gradient;
  SmallVector<Value, 2> states;

  Value wide(Value scalar) const { return b.broadcast(scalar, shapeOf(value)); }
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
  double decay = 1 + u.step * u.node.getFloat("decay_factor", 0);
  Value gradient = u.regularised();
  Value squares =
      b.binary<nn::AddOp>(u.states[0], b.binary<nn::MulOp>(gradient, gradient));
  Value root = b.binary<nn::AddOp>(b.unary<nn::SqrtOp>(squares),
                                   u.node.getFloat("epsilon", 1e-6f));
  Value rate = u.wide(b.binary<nn::DivOp>(u.rate, decay));
  Value change = b.binary<nn::DivOp>(b.binary<nn::MulOp>(rate, gradient), root);
  return {b.binary<nn::SubOp>(u.value, change), squares};
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
                                   u.node.getFloat("epsilon", 0));
  // Corrects the bias of both averages, which begin at 0.
  double correction = u.step > 0 ? std::sqrt(1 - std::pow(beta, u.step)) /
                                       (1 - std::pow(alpha, u.step))
                                 : 1;
  Value rate = u.wide(b.binary<nn::MulOp>(u.rate, correction));
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
  double beta = u.step > 0 ? u.node.getFloat("beta", 0) : 1;
  Value gradient = u.regularised();
  Value velocity = b.binary<nn::AddOp>(b.binary<nn::MulOp>(u.states[0], alpha),
                                       b.binary<nn::MulOp>(gradient, beta));
  Value direction = velocity;
  if (u.node.getString("mode", "standard") == "nesterov")
    direction =
        b.binary<nn::AddOp>(gradient, b.binary<nn::MulOp>(velocity, alpha));
  Value change = b.binary<nn::MulOp>(u.wide(u.rate), direction);
  return {b.binary<nn::SubOp>(u.value, change), velocity};
}

// Inputs: the learning rate, the number of steps so far, then all values, all
// gradients, and all of each state. Outputs: all values, then all of each
// state. The number of steps must be constant, because the corrections are
// computed here in f64.
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
  auto step = node.wholeNumber(1, "'T'");
  if (!step)
    return failure();
  if (tensorType(node.input(0)).getNumElements() != 1)
    return node.refuse("the rate must be a scalar");
  Value rate = node.b.reshape(node.input(0), {});
  for (int64_t i = 0; i < count; ++i) {
    auto at = [&](int64_t group) { return node.input(2 + group * count + i); };
    Update u{node, node.b, rate, double(*step), at(0), at(1), {}};
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
