// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// RNN, GRU and LSTM, unrolled over time: shapes are static, so their steps are
// known. The product of the inputs with their weights is one for all steps;
// each step adds the product of the state. Sequences shorter than the batch's
// keep their state after their end, and their outputs there are 0.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "frontends/onnx/Node.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

namespace {
// One direction of a node, with time first: T×N×…. W, R and biases are stored
// gate by gate along the first dimension, in ONNX's order (LSTM: i, o, f, c;
// GRU: z, r, h), which is not torch's.
struct Cell {
  Node &node;
  Emitter &b;
  int64_t hidden;
  double clip; // 0: none
  SmallVector<std::string> activations;
  Value inputs;                 // T×N×(gates·H): x · Wᵀ + biases
  Value recurrence;             // (gates·H)×H
  Value recurrenceBias;         // gates·H, or null
  Value peepholes;              // 3·H, or null
  Value hiddenState, cellState; // N×H

  Value product(Value x, Value weights) {
    Shape shape = {shapeOf(x)[0], shapeOf(weights)[0]};
    return b.matmul(x, weights, shape, false, true);
  }
  // The columns of gate `i`.
  Value gate(Value x, int64_t i) {
    return b.slice(x, rankOf(x) - 1, i * hidden, hidden);
  }
  Value row(Value vector, Value like) {
    return b.broadcast(vector, shapeOf(like));
  }
  Value add(Value x, Value y) { return b.binary<nn::AddOp>(x, y); }
  Value mul(Value x, Value y) { return b.binary<nn::MulOp>(x, y); }
  Value activate(int64_t i, Value x);
  void stepRNN(Value x);
  void stepGRU(Value x);
  void stepLSTM(Value x);
};
} // namespace

static bool isKnown(StringRef activation) {
  return llvm::is_contained({"Sigmoid", "Tanh", "Relu", "Softsign", "Softplus"},
                            activation);
}

// Applies activation `i` after the clip of its input.
Value Cell::activate(int64_t i, Value x) {
  if (clip > 0)
    x = b.binary<nn::MinimumOp>(b.binary<nn::MaximumOp>(x, -clip), clip);
  const std::string &name = activations[i];
  if (name == "Sigmoid")
    return b.unary<nn::SigmoidOp>(x);
  if (name == "Tanh")
    return b.unary<nn::TanhOp>(x);
  if (name == "Relu")
    return b.unary<nn::ReluOp>(x);
  if (name == "Softplus")
    return b.unary<nn::SoftplusOp>(x);
  return b.binary<nn::DivOp>(x,
                             b.binary<nn::AddOp>(b.unary<nn::AbsOp>(x), 1.0));
}

// h = f(x + h · R). Each step reads the state of the last one and replaces it.
void Cell::stepRNN(Value x) {
  hiddenState = activate(0, add(x, product(hiddenState, recurrence)));
}

// Gates z, r, h. The reset applies to the state, or, with linear_before_reset,
// to its product. z and r share one product with the state.
void Cell::stepGRU(Value x) {
  Value before = hiddenState;
  bool isLinear = node.getInt("linear_before_reset", 0);
  auto weights = [&](int64_t first, int64_t count) {
    return b.slice(recurrence, 0, first * hidden, count * hidden);
  };
  Value both = product(before, weights(0, 2));
  Value update = activate(0, add(gate(x, 0), gate(both, 0)));
  Value reset = activate(0, add(gate(x, 1), gate(both, 1)));
  Value change;
  if (isLinear) {
    change = product(before, weights(2, 1));
    if (recurrenceBias)
      change = add(change, row(gate(recurrenceBias, 2), change));
    change = mul(reset, change);
  } else {
    change = product(mul(reset, before), weights(2, 1));
  }
  change = activate(1, add(gate(x, 2), change));
  // (1 - z) · change + z · h.
  hiddenState = add(change, mul(update, b.binary<nn::SubOp>(before, change)));
}

// Gates i, o, f, c. Peepholes multiply the cell elementwise: i and f see the
// old cell, o the new one.
void Cell::stepLSTM(Value x) {
  Value sums = add(x, product(hiddenState, recurrence));
  auto peep = [&](Value sum, int64_t i, Value cell) {
    return peepholes ? add(sum, mul(row(gate(peepholes, i), cell), cell)) : sum;
  };
  Value input = activate(0, peep(gate(sums, 0), 0, cellState));
  Value forget = node.getInt("input_forget", 0)
                     ? b.binary<nn::SubOp>(b.like(input, 1), input)
                     : activate(0, peep(gate(sums, 2), 2, cellState));
  Value candidate = activate(1, gate(sums, 3));
  cellState = add(mul(forget, cellState), mul(input, candidate));
  Value output = activate(0, peep(gate(sums, 1), 1, cellState));
  hiddenState = mul(output, activate(2, cellState));
}

namespace {
// The properties in which the three ops differ.
struct Kind {
  int64_t gates, activations;
  void (Cell::*step)(Value);
  bool hasCell;
};
} // namespace

static Kind kindOf(Node &node) {
  StringRef op = node.proto.op_type();
  if (op == "LSTM")
    return {4, 3, &Cell::stepLSTM, true};
  if (op == "GRU")
    return {3, 2, &Cell::stepGRU, false};
  return {1, 1, &Cell::stepRNN, false};
}

// Reads the activations of all directions. Returns nullopt after it has refused
// the node. The defaults are Sigmoid for gates and Tanh for the rest.
static std::optional<SmallVector<std::string>>
readActivations(Node &node, int64_t perDirection, int64_t directions) {
  SmallVector<std::string> names;
  if (const auto *given = node.attribute("activations"))
    names.assign(given->strings().begin(), given->strings().end());
  for (int64_t i = names.size(); i < perDirection * directions; ++i) {
    bool isGate = i % perDirection == 0 && perDirection > 1;
    names.push_back(isGate ? "Sigmoid" : "Tanh");
  }
  for (const std::string &name : names)
    if (!isKnown(name))
      return (void)node.refuse("attribute 'activations' names '" + name +
                               "'; use Sigmoid, Tanh, Relu, Softsign or "
                               "Softplus"),
             std::nullopt;
  if (int64_t(names.size()) != perDirection * directions)
    return (void)node.refuse("attribute 'activations' must have " +
                             Twine(perDirection) + " entries per direction"),
           std::nullopt;
  return names;
}

// Checks that input `i`, if it is there, has this shape.
static LogicalResult expectShape(Node &node, int64_t i,
                                 ArrayRef<int64_t> shape) {
  if (node.has(i) && shapeOf(node.input(i)) != shape)
    return node.refuse("input " + Twine(i) + " has shape " +
                       printShape(shapeOf(node.input(i))) + ", not " +
                       printShape(shape));
  return success();
}

namespace {
// The shapes and attributes of a node, and its input with time first.
struct Recurrence {
  Node &node;
  Kind kind;
  bool batchFirst;
  std::string direction;
  Value x; // T×N×I
  int64_t directions, hidden, steps, batch, width;
  SmallVector<std::string> activations;

  // The part of input `i` that belongs to direction `d`.
  Value of(int64_t i, int64_t d) {
    Value part = node.b.slice(node.input(i), 0, d, 1);
    return node.b.reshape(part, shapeOf(part).drop_front());
  }
  // A state before the first step, N×H; zeros where input `i` is absent.
  Value initial(int64_t i, int64_t d) {
    Shape shape = {batch, hidden};
    if (!node.has(i))
      return node.b.splat(tensorType(x).clone(shape), 0);
    return node.b.reshape(node.b.slice(node.input(i), batchFirst ? 1 : 0, d, 1),
                          shape);
  }
  LogicalResult checkShapes();
  Cell cell(int64_t d);
  Value run(Cell &cell, int64_t d);
  void setState(int64_t output, ArrayRef<Value> states);
};
} // namespace

// Inputs are, in order: X, W, R, B, sequence lengths, initial h, initial c,
// peepholes.
LogicalResult Recurrence::checkShapes() {
  int64_t rows = kind.gates * hidden;
  Shape state = batchFirst ? Shape{batch, directions, hidden}
                           : Shape{directions, batch, hidden};
  if (hidden == 0 || node.getInt("hidden_size", hidden) != hidden)
    return node.refuse("attribute 'hidden_size' must be that of the weights");
  const std::pair<int64_t, Shape> expected[] = {{1, {directions, rows, width}},
                                                {2, {directions, rows, hidden}},
                                                {3, {directions, 2 * rows}},
                                                {4, {batch}},
                                                {5, state},
                                                {6, state},
                                                {7, {directions, 3 * hidden}}};
  for (const auto &[i, shape] : expected)
    if (failed(expectShape(node, i, shape)))
      return failure();
  return success();
}

// Prepares a direction: the product of all inputs with their weights, and the
// biases that no reset comes between.
Cell Recurrence::cell(int64_t d) {
  Emitter &b = node.b;
  Cell cell{node,
            b,
            hidden,
            node.getFloat("clip", 0),
            {},
            {},
            of(2, d),
            {},
            {},
            initial(5, d),
            kind.hasCell ? initial(6, d) : Value()};
  cell.activations.assign(activations.begin() + d * kind.activations,
                          activations.begin() + (d + 1) * kind.activations);
  cell.inputs = cell.product(b.reshape(x, {steps * batch, width}), of(1, d));
  if (node.has(3)) {
    int64_t rows = kind.gates * hidden;
    Value biases = of(3, d), own = b.slice(biases, 0, 0, rows);
    cell.recurrenceBias = b.slice(biases, 0, rows, rows);
    Value added = cell.recurrenceBias;
    // GRU's last gate adds the recurrence's bias before the reset.
    if (kind.gates == 3 && node.getInt("linear_before_reset", 0))
      added = b.concat({b.slice(added, 0, 0, 2 * hidden),
                        b.splat(tensorType(added).clone({hidden}), 0)},
                       0);
    cell.inputs =
        cell.add(cell.inputs, cell.row(cell.add(own, added), cell.inputs));
  }
  if (node.has(7))
    cell.peepholes = of(7, d);
  return cell;
}

// Runs all steps of a direction. Returns the outputs, T×1×N×H, or null after it
// has refused the node. A reverse direction walks back through time but writes
// its outputs at their own time. A sequence's padding comes first then, and
// leaves the state alone.
Value Recurrence::run(Cell &cell, int64_t d) {
  Emitter &b = node.b;
  bool isReverse = direction == "reverse" || d == 1;
  SmallVector<Value> results(steps);
  for (int64_t i = 0; i < steps; ++i) {
    if (b.hasTooManyOps)
      return (void)node.refuse("the node needs " +
                               Budgets::exceeded(Cost::ops)),
             Value();
    int64_t t = isReverse ? steps - 1 - i : i;
    Value before = cell.hiddenState, cellBefore = cell.cellState;
    (cell.*kind.step)(b.slice(cell.inputs, 0, t * batch, batch));
    Value output = cell.hiddenState;
    if (node.has(4)) {
      Value lengths = b.cast(node.input(4), b.builder.getI64Type());
      Value runs =
          b.compare(nn::Predicate::gt, lengths, b.like(lengths, double(t)));
      runs = b.broadcast(b.reshape(runs, {batch, 1}), {batch, hidden});
      output = b.select(runs, output, b.like(output, 0));
      cell.hiddenState = b.select(runs, cell.hiddenState, before);
      if (kind.hasCell)
        cell.cellState = b.select(runs, cell.cellState, cellBefore);
    }
    results[t] = b.reshape(output, {1, 1, batch, hidden});
  }
  return b.concat(results, 0);
}

// Stacks the states of all directions: D×N×H, or N×D×H.
void Recurrence::setState(int64_t output, ArrayRef<Value> states) {
  Value stacked = node.b.concat(states, 0);
  node.setOutput(output,
                 batchFirst ? node.b.transpose(stacked, {1, 0, 2}) : stacked);
}

// Outputs: the states of all steps, the last state, and for LSTM the last cell.
static LogicalResult recurrent(Node &node) {
  Kind kind = kindOf(node);
  if (failed(node.expectInputs(3, kind.hasCell ? 8 : 6)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  std::string direction = node.getString("direction", "forward");
  if (direction != "forward" && direction != "reverse" &&
      direction != "bidirectional")
    return node.refuse("attribute 'direction' is '" + direction +
                       "'; use forward, reverse or bidirectional");
  Value x = node.input(0);
  if (rankOf(x) != 3 || rankOf(node.input(2)) != 3 ||
      tensorType(x).getNumElements() == 0)
    return node.refuse("the input and the weights must have rank 3 and must "
                       "not be empty");
  bool batchFirst = node.getInt("layout", 0);
  if (batchFirst)
    x = b.transpose(x, {1, 0, 2});
  Recurrence r{node,
               kind,
               batchFirst,
               direction,
               x,
               direction == "bidirectional" ? 2 : 1,
               shapeOf(node.input(2))[2],
               shapeOf(x)[0],
               shapeOf(x)[1],
               shapeOf(x)[2],
               {}};
  if (failed(r.checkShapes()))
    return failure();
  auto activations = readActivations(node, kind.activations, r.directions);
  if (!activations)
    return failure();
  r.activations = *activations;
  SmallVector<Value> outputs, lastHidden, lastCell;
  for (int64_t d = 0; d < r.directions; ++d) {
    Cell cell = r.cell(d);
    outputs.push_back(r.run(cell, d));
    if (!outputs.back())
      return failure();
    Shape state = {1, r.batch, r.hidden};
    lastHidden.push_back(b.reshape(cell.hiddenState, state));
    if (kind.hasCell)
      lastCell.push_back(b.reshape(cell.cellState, state));
  }
  // T×D×N×H, or N×T×D×H.
  Value all = b.concat(outputs, 1);
  node.setOutput(0, batchFirst ? b.transpose(all, {2, 0, 1, 3}) : all);
  r.setState(1, lastHidden);
  if (kind.hasCell)
    r.setState(2, lastCell);
  return success();
}

void frontend::registerRecurrent(HandlerTable &table) {
  table.add("RNN", 7, recurrent);
  table.add("GRU", 7, recurrent);
  table.add("LSTM", 7, recurrent);
}
