// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradient of ai.onnx.preview.training: the derivatives of one tensor of the
// graph with respect to others, as ops of the graph. They are built from the
// adjoints of nn, so a gradient of such a gradient exists where these have
// adjoints themselves. Vjp of the domain fsdpc does the same for the Python
// package's torch.autograd.grad. Cotangent and CustomGradient of that domain
// are how the package writes the backward of a torch.autograd.Function.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/GradientOps.h"
#include "frontends/onnx/GraphImporter.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// A tensor with respect to which the node differentiates. A parameter is loaded
// anew at each use, so it is known by its symbol. Returns null for a value that
// is not a load.
static Attribute symbolOf(Value value) {
  auto load = value.getDefiningOp<fsdp::LoadOp>();
  return load ? Attribute(load.getSymbolAttr()) : Attribute();
}

namespace {
// One reverse sweep over the ops between `xs` and the tensors that are
// differentiated.
class Sweep {
public:
  Sweep(Node &node, ArrayRef<Value> xs) : node(node), b(node.b) {
    for (Value x : xs) {
      if (Attribute symbol = symbolOf(x))
        symbols.insert(symbol);
      else
        varied.insert(x);
    }
  }
  // Differentiates `ys`, whose cotangents are `seeds`, or refuses the node.
  LogicalResult run(ArrayRef<Value> ys, ArrayRef<Value> seeds);
  // Returns the sum of all gradients of x, or zeros.
  Value gradientOf(Value x);

private:
  void add(Value value, Value gradient) {
    Value &sum = gradients[value];
    sum = sum ? b.binary<nn::AddOp>(sum, gradient) : gradient;
  }
  LogicalResult differentiate(Operation *op);

  Node &node;
  Emitter &b;
  llvm::DenseSet<Attribute> symbols;
  llvm::DenseSet<Value> varied; // what depends on one of the xs, and they
  llvm::DenseMap<Value, Value> gradients;
  SmallVector<Value> loads;
};
} // namespace

// Adds to the gradients of the op's operands. An op that no gradient reaches is
// passed over.
LogicalResult Sweep::differentiate(Operation *op) {
  SmallVector<Value> resultGrads, operandGrads(op->getNumOperands());
  for (Value result : op->getResults())
    resultGrads.push_back(gradients.lookup(result));
  if (llvm::none_of(resultGrads, [](Value v) { return bool(v); }))
    return success();
  auto adjoint = dyn_cast<nn::AdjointOpInterface>(op);
  if (!adjoint)
    return node.refuse("the tensor to differentiate depends on '" +
                       op->getName().getStringRef() +
                       "', which has no adjoint");
  SmallVector<bool> needed;
  for (Value operand : op->getOperands())
    needed.push_back(varied.contains(operand));
  if (failed(
          adjoint.buildAdjoint(b.builder, resultGrads, needed, operandGrads)))
    return node.refuse("'" + op->getName().getStringRef() +
                       "' cannot be differentiated");
  for (auto [operand, wanted, gradient] :
       llvm::zip(op->getOperands(), needed, operandGrads))
    if (wanted && gradient)
      add(operand, gradient);
  return success();
}

LogicalResult Sweep::run(ArrayRef<Value> ys, ArrayRef<Value> seeds) {
  // The importer builds ops in order, so one walk finds all that depends on xs.
  SmallVector<Operation *> path;
  for (Operation &op : *b.builder.getInsertionBlock()) {
    if (op.getNumResults() > 0 && symbols.contains(symbolOf(op.getResult(0)))) {
      varied.insert(op.getResult(0));
      loads.push_back(op.getResult(0));
      continue;
    }
    bool depends = llvm::any_of(op.getOperands(), [&](Value operand) {
      return varied.contains(operand);
    });
    bool isGiven = llvm::any_of(
        op.getResults(), [&](Value result) { return varied.contains(result); });
    if (!depends || isGiven)
      continue;
    varied.insert(op.result_begin(), op.result_end());
    path.push_back(&op);
  }
  // Charged as four ops per adjoint, before any is built.
  if (!b.spend(Cost::ops, 4 * int64_t(path.size())))
    return node.refuse("the gradient needs " + Budgets::exceeded(Cost::ops));
  for (auto [y, seed] : llvm::zip(ys, seeds))
    if (varied.contains(y))
      add(y, seed);
  for (Operation *op : llvm::reverse(path))
    if (failed(differentiate(op)))
      return failure();
  return success();
}

// A parameter that is loaded several times sums over its loads.
Value Sweep::gradientOf(Value x) {
  Value sum = gradients.lookup(x);
  if (Attribute symbol = symbolOf(x))
    for (Value load : loads)
      if (Value part = load != x && symbolOf(load) == symbol
                           ? gradients.lookup(load)
                           : Value())
        sum = sum ? b.binary<nn::AddOp>(sum, part) : part;
  return sum ? sum : b.like(x, 0);
}

// Makes the gradients with respect to `xs` the node's outputs.
static LogicalResult differentiate(Node &node, ArrayRef<Value> ys,
                                   ArrayRef<Value> seeds, ArrayRef<Value> xs) {
  Sweep sweep(node, xs);
  if (failed(sweep.run(ys, seeds)))
    return failure();
  for (auto [i, x] : llvm::enumerate(xs))
    node.setOutput(i, sweep.gradientOf(x));
  return success();
}

// Attributes: the names of the tensors 'xs', which are inputs as well, and of
// 'y'. Inputs after the xs ('zs') are held constant, which they are here
// anyway. Only tensors before the node count: 'y' must be computed already.
static LogicalResult gradient(Node &node) {
  const auto *names = node.attribute("xs");
  Value y = node.importer.lookup(node.getString("y", ""));
  if (!names || names->strings_size() == 0 ||
      names->strings_size() > node.numInputs() || !y)
    return node.refuse("'xs' must name inputs, and 'y' a tensor of the graph");
  if (failed(node.expectFloat(y)))
    return failure();
  SmallVector<Value> xs;
  for (int i = 0; i < names->strings_size(); ++i) {
    xs.push_back(node.input(i));
    if (!xs.back() || node.proto.input(i) != names->strings(i))
      return node.refuse("input " + Twine(i) + " must be '" +
                         names->strings(i) + "', as 'xs' says");
    if (failed(node.expectFloat(xs.back())))
      return failure();
    if (constantOf(xs.back()))
      return node.refuse("'" + names->strings(i) +
                         "' is constant, and what depends on it is folded");
  }
  return differentiate(node, y, node.b.like(y, 1), xs);
}

// Takes the inputs from `next` on, which must be float tensors.
static FailureOr<SmallVector<Value>> floatInputs(Node &node, int64_t &next,
                                                 int64_t count) {
  SmallVector<Value> values;
  for (int64_t end = next + count; next < end; ++next) {
    Value value = node.input(next);
    if (!value)
      return node.refuse("input " + Twine(next) + " must be a tensor");
    if (failed(node.expectFloat(value)))
      return failure();
    values.push_back(value);
  }
  return values;
}

// Inputs: 'values' tensors, as many cotangents of them, then the tensors with
// respect to which they are differentiated, whose cotangents are the outputs.
static LogicalResult vjp(Node &node) {
  int64_t values = node.getInt("values", 0), next = 0;
  int64_t count = node.numOutputs();
  if (values < 1 || values > node.numInputs() ||
      node.numInputs() != 2 * values + count)
    return node.refuse("'values' must be the number of tensors to "
                       "differentiate, each with a cotangent, before an input "
                       "for each output");
  auto ys = floatInputs(node, next, values);
  if (failed(ys))
    return failure();
  auto seeds = floatInputs(node, next, values);
  if (failed(seeds))
    return failure();
  auto xs = floatInputs(node, next, count);
  if (failed(xs))
    return failure();
  for (auto [i, seed] : llvm::enumerate(*seeds))
    if (seed.getType() != (*ys)[i].getType())
      return node.refuse("the cotangent of input " + Twine(i) +
                         " must have its type");
  for (auto [i, x] : llvm::enumerate(*xs))
    if (constantOf(x))
      return node.refuse("input " + Twine(2 * values + i) +
                         " is constant, and what depends on it is folded");
  return differentiate(node, *ys, *seeds, *xs);
}

// Stands for the cotangent of result 'index' of the CustomGradient that reads
// it, whose value is the input.
static LogicalResult cotangent(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Value value = node.input(0);
  auto index = node.b.builder.getI64IntegerAttr(node.getInt("index", 0));
  return node.result(node.b.op<nn::CotangentOp>(value.getType(), value, index));
}

// Inputs: a value and then a cotangent for each output, then the inputs of the
// function that have a gradient, then those gradients.
static LogicalResult customGradient(Node &node) {
  int64_t values = node.numOutputs(), next = 0;
  int64_t pairs = (node.numInputs() - 2 * values) / 2;
  if (node.getInt("values", 0) != values || values < 1 || pairs < 0 ||
      node.numInputs() != 2 * (values + pairs))
    return node.refuse("'values' must be the number of outputs, each with a "
                       "value and a cotangent before pairs of inputs and "
                       "gradients");
  SmallVector<Value> groups[4];
  for (auto [i, group] : llvm::enumerate(groups)) {
    auto taken = floatInputs(node, next, i < 2 ? values : pairs);
    if (failed(taken))
      return failure();
    group = *taken;
  }
  // Gradients reach the inputs only: through neither what computes the values
  // nor what computes the gradients.
  for (int i : {0, 3})
    for (Value &value : groups[i])
      value = node.b.unary<nn::StopGradientOp>(value);
  for (int64_t i = 0; i < values; ++i) {
    // The exporter detaches what a block under torch.no_grad() returns.
    while (auto stop = groups[1][i].getDefiningOp<nn::StopGradientOp>())
      groups[1][i] = stop.getInput();
    auto op = groups[1][i].getDefiningOp<nn::CotangentOp>();
    if (!op || op.getIndex() != uint64_t(i) ||
        op.getType() != groups[0][i].getType())
      return node.refuse("input " + Twine(values + i) +
                         " must be the Cotangent of output " + Twine(i));
  }
  for (int64_t i = 0; i < pairs; ++i)
    if (groups[2][i].getType() != groups[3][i].getType())
      return node.refuse("the gradient of input " + Twine(i) +
                         " must have its type");
  auto op = node.b.op<nn::CustomGradientOp>(ValueRange(groups[0]).getTypes(),
                                            groups[0], groups[1], groups[2],
                                            groups[3]);
  for (auto [i, result] : llvm::enumerate(op.getResults()))
    node.setOutput(i, result);
  return success();
}

void frontend::registerGradient(HandlerTable &table) {
  table.add("fsdpc.Cotangent", 1, cotangent);
  table.add("fsdpc.CustomGradient", 1, customGradient);
  table.add("fsdpc.Vjp", 1, vjp);
  table.add("ai.onnx.preview.training.Gradient", 1, gradient);
}
