// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradient of ai.onnx.preview.training: the derivatives of one tensor of the
// graph with respect to others, as ops of the graph. They are built from the
// adjoints of nn, so a gradient of such a gradient exists where these have
// adjoints themselves.
#include "compiler/dialects/nn/ElementwiseOps.h"
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
// One reverse sweep over the ops between `xs` and the tensor that is
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
  // Differentiates `y`, or refuses the node.
  LogicalResult run(Value y);
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

LogicalResult Sweep::run(Value y) {
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
  if (varied.contains(y))
    add(y, b.like(y, 1));
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
  Sweep sweep(node, xs);
  if (failed(sweep.run(y)))
    return failure();
  for (auto [i, x] : llvm::enumerate(xs))
    node.setOutput(i, sweep.gradientOf(x));
  return success();
}

void frontend::registerGradient(HandlerTable &table) {
  table.add("ai.onnx.preview.training.Gradient", 1, gradient);
}
