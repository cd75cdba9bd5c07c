// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Classification losses, over logits as a matrix of rows by classes. A mean or
// sum becomes one nn.cross_entropy, which computes the softmax itself, never
// stores the probabilities, and reports how many targets were valid. Exporters
// write the same loss as log-softmax plus NegativeLogLikelihoodLoss.
#include "compiler/dialects/nn/CompositeOps.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/GraphImporter.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// Turns N×C×d… into rows×C. A row per target, classes last, as nn.cross_entropy
// wants it. The transpose is a reshape when there are no further dimensions.
static Value toRows(Emitter &b, Value x) {
  Shape permutation = {0};
  for (int64_t i = 2; i < rankOf(x); ++i)
    permutation.push_back(i);
  permutation.push_back(1);
  int64_t classes = shapeOf(x)[1];
  int64_t rows = tensorType(x).getNumElements() / std::max<int64_t>(1, classes);
  return b.reshape(b.transpose(x, permutation), {rows, classes});
}

namespace {
// The inputs of a loss, brought to one row per target.
struct Classification {
  Value logits, targets, weights; // rows×C, rows, C or null
  std::string reduction;
  IntegerAttr ignoreIndex;
};
} // namespace

// Reads and checks what both losses share. Returns nullopt after it has refused
// the node.
static std::optional<Classification> parse(Node &node) {
  if (failed(node.expectInputs(2, 3)) ||
      failed(node.expectFloat(node.input(0))))
    return std::nullopt;
  Emitter &b = node.b;
  Value scores = node.input(0), targets = node.input(1);
  auto refuse = [&](const Twine &reason) {
    (void)node.refuse(reason);
    return std::nullopt;
  };
  if (rankOf(scores) < 2 || rankOf(targets) != rankOf(scores) - 1)
    return refuse("targets must have one dimension less than the scores");
  Shape expected(shapeOf(scores));
  expected.erase(expected.begin() + 1);
  if (shapeOf(targets) != ArrayRef<int64_t>(expected) ||
      !isa<IntegerType>(elementOf(targets)) || shapeOf(scores)[1] == 0)
    return refuse("targets must be integers with the shape of the scores "
                  "without the class dimension");
  Classification result;
  result.logits = toRows(b, scores);
  result.targets = b.reshape(targets, {tensorType(targets).getNumElements()});
  if ((result.weights = node.input(2)))
    if (shapeOf(result.weights) != ArrayRef<int64_t>({shapeOf(scores)[1]}))
      return refuse("weights must have one element per class");
  result.reduction = node.getString("reduction", "mean");
  if (const auto *ignored = node.attribute("ignore_index"))
    result.ignoreIndex = b.builder.getI64IntegerAttr(ignored->i());
  // Targets of the data are checked when it is read; computed ones outside of
  // the classes give NaN (nn.take_along_axis).
  if (auto constants = integersOf(targets))
    for (int64_t target : *constants) {
      bool isIgnored =
          result.ignoreIndex && result.ignoreIndex.getInt() == target;
      if (!isIgnored && (target < 0 || target >= shapeOf(scores)[1]))
        return refuse("target " + Twine(target) + " is none of " +
                      Twine(shapeOf(scores)[1]) + " classes");
    }
  return result;
}

// Requires an ignore index.
static Value isIgnored(Emitter &b, const Classification &c) {
  return b.compare(nn::Predicate::eq, c.targets,
                   b.like(c.targets, c.ignoreIndex.getInt()));
}

// Returns the targets with class 0 for those that are ignored, which may lie
// outside of the classes.
static Value validTargets(Emitter &b, const Classification &c) {
  if (!c.ignoreIndex)
    return c.targets;
  return b.select(isIgnored(b, c), b.like(c.targets, 0), c.targets);
}

// Sets the rows of ignored targets to 0.
static Value masked(Emitter &b, const Classification &c, Value rows) {
  if (!c.ignoreIndex)
    return rows;
  return b.select(isIgnored(b, c), b.like(rows, 0), rows);
}

// Returns the loss of each row, unreduced, from log-probabilities. Negative
// logarithm of the target's probability; 0 for targets that are ignored.
static Value perRow(Node &node, const Classification &c,
                    Value logProbabilities) {
  Emitter &b = node.b;
  int64_t rows = tensorType(c.targets).getNumElements();
  Value index = b.reshape(validTargets(b, c), {rows, 1});
  Value picked = b.make<nn::TakeAlongAxisOp>(
      tensorType(logProbabilities).clone({rows, 1}), logProbabilities, index);
  return masked(b, c, b.unary<nn::NegOp>(b.reshape(picked, {rows})));
}

// Returns the weight of each row's class.
static Value weightPerRow(Emitter &b, const Classification &c) {
  int64_t classes = shapeOf(c.weights)[0];
  Value table = b.reshape(c.weights, {classes, 1});
  Shape shape = {tensorType(c.targets).getNumElements(), 1};
  Value rows = b.make<nn::EmbeddingOp>(tensorType(table).clone(shape), table,
                                       validTargets(b, c), IntegerAttr());
  return masked(b, c, b.reshape(rows, {shape[0]}));
}

// Emits the loss. `logits` may be log-probabilities, since their log-softmax is
// themselves.
static LogicalResult reduced(Node &node, const Classification &c,
                             Value logits) {
  Emitter &b = node.b;
  if (c.reduction == "none") {
    Value logProbabilities = logits.getDefiningOp<nn::LogSoftmaxOp>()
                                 ? logits
                                 : b.unary<nn::LogSoftmaxOp>(logits);
    Value losses = perRow(node, c, logProbabilities);
    if (c.weights)
      losses = b.binary<nn::MulOp>(losses, weightPerRow(b, c));
    return node.result(b.reshape(losses, shapeOf(node.input(1))));
  }
  std::optional<nn::Reduction> reduction = nn::symbolizeReduction(c.reduction);
  if (!reduction)
    return node.refuse("attribute 'reduction' is '" + c.reduction +
                       "'; use none, mean or sum");
  // nn.cross_entropy applies the softmax itself.
  if (auto soft = logits.getDefiningOp<nn::LogSoftmaxOp>())
    logits = soft.getInput();
  auto scalar = RankedTensorType::get({}, b.builder.getF32Type());
  auto rows = scalar.clone(ArrayRef<int64_t>{shapeOf(logits)[0]});
  auto loss =
      b.op<nn::CrossEntropyOp>(TypeRange{scalar, rows, scalar}, logits,
                               c.targets, c.weights, *reduction, c.ignoreIndex);
  return node.result(loss.getLoss());
}

// Reduces losses of rows, which already have their weights. `weights` are those
// of the rows, or null for 1. A mean over no valid target is 0 / 0, NaN, as in
// PyTorch.
static LogicalResult reduceRows(Node &node, const Classification &c,
                                Value losses, Value weights) {
  Emitter &b = node.b;
  if (c.reduction == "none")
    return node.result(b.reshape(losses, shapeOf(node.input(1))));
  if (c.reduction != "mean" && c.reduction != "sum")
    return node.refuse("attribute 'reduction' is '" + c.reduction +
                       "'; use none, mean or sum");
  auto total = [&](Value rows) {
    return b.reshape(b.reduce(nn::ReduceKind::sum, rows, {0}), {});
  };
  Value sum = total(losses);
  if (c.reduction == "sum")
    return node.result(sum);
  // The mean is over the weights of the targets that count.
  if (!weights)
    weights = masked(b, c, b.like(losses, 1));
  return node.result(b.binary<nn::DivOp>(sum, total(weights)));
}

// The loss against (1 - smoothing) of the target and smoothing / C of every
// class. As in PyTorch, each class has its weight in the second term, and the
// mean divides by the weights of the targets alone.
static LogicalResult smoothed(Node &node, const Classification &c,
                              double smoothing) {
  Emitter &b = node.b;
  int64_t classes = shapeOf(c.logits)[1];
  Value logs = b.unary<nn::LogSoftmaxOp>(c.logits);
  Value targets = perRow(node, c, logs);
  Value weights = c.weights ? weightPerRow(b, c) : Value();
  if (weights) {
    targets = b.binary<nn::MulOp>(targets, weights);
    logs = b.binary<nn::MulOp>(logs, b.broadcast(c.weights, shapeOf(logs)));
  }
  Value all =
      b.reshape(b.reduce(nn::ReduceKind::sum, logs, {1}), {shapeOf(logs)[0]});
  Value losses = b.binary<nn::AddOp>(
      b.binary<nn::MulOp>(targets, 1 - smoothing),
      masked(b, c, b.binary<nn::MulOp>(all, -smoothing / double(classes))));
  return reduceRows(node, c, losses, weights);
}

// Turns rows×C back into N×C×d…. The inverse of toRows; `shape` is that of the
// scores.
static Value fromRows(Emitter &b, Value rows, ArrayRef<int64_t> shape) {
  Shape split = {shape[0]}, permutation = {0, int64_t(shape.size()) - 1};
  split.append(shape.begin() + 2, shape.end());
  split.push_back(shape[1]);
  for (int64_t i = 1; i + 1 < int64_t(shape.size()); ++i)
    permutation.push_back(i);
  return b.transpose(b.reshape(rows, split), permutation);
}

// The loss against a distribution over classes, as mixup and distillation have
// it: -Σ t · log p. ONNX defines targets as class numbers only, but torch's
// exporter writes such losses with the same op, with targets of the scores'
// shape. As in PyTorch, a mean is over the targets, whatever the weights are.
static LogicalResult softCrossEntropy(Node &node, double smoothing) {
  Emitter &b = node.b;
  Value logits = toRows(b, node.input(0)), targets = toRows(b, node.input(1));
  int64_t rows = shapeOf(logits)[0], classes = shapeOf(logits)[1];
  if (Value weights = node.input(2);
      weights && shapeOf(weights) != ArrayRef<int64_t>({classes}))
    return node.refuse("weights must have one element per class");
  if (smoothing != 0)
    targets = b.binary<nn::AddOp>(b.binary<nn::MulOp>(targets, 1 - smoothing),
                                  b.like(targets, smoothing / double(classes)));
  Value logs = b.unary<nn::LogSoftmaxOp>(logits);
  if (Value weights = node.input(2))
    logs = b.binary<nn::MulOp>(logs, b.broadcast(weights, shapeOf(logs)));
  Value losses = b.unary<nn::NegOp>(b.reshape(
      b.reduce(nn::ReduceKind::sum, b.binary<nn::MulOp>(logs, targets), {1}),
      {rows}));
  std::string reduction = node.getString("reduction", "mean");
  if (reduction == "none") {
    Shape shape(shapeOf(node.input(0)));
    shape.erase(shape.begin() + 1);
    return node.result(b.reshape(losses, shape));
  }
  if (reduction != "mean" && reduction != "sum")
    return node.refuse("attribute 'reduction' is '" + reduction +
                       "'; use none, mean or sum");
  Value sum = b.reshape(b.reduce(nn::ReduceKind::sum, losses, {0}), {});
  return node.result(
      reduction == "sum" ? sum : b.binary<nn::MulOp>(sum, 1 / double(rows)));
}

// The optional second output is the log-softmax.
static LogicalResult softmaxCrossEntropy(Node &node) {
  if (failed(node.expectInputs(2, 3)))
    return failure();
  // ONNX has no attribute for it; torch's exporter leaves it in the metadata.
  double smoothing = node.importer.labelSmoothing(node);
  if (!(smoothing >= 0 && smoothing <= 1))
    return node.refuse("the label smoothing must be between 0 and 1");
  if (Value scores = node.input(0);
      scores.getType() == node.input(1).getType() &&
      isa<FloatType>(elementOf(scores)) && rankOf(scores) >= 2 &&
      shapeOf(scores)[1] != 0 && !node.isUsed(1))
    return softCrossEntropy(node, smoothing);
  std::optional<Classification> c = parse(node);
  if (!c)
    return failure();
  if (node.isUsed(1))
    node.setOutput(1,
                   fromRows(node.b, node.b.unary<nn::LogSoftmaxOp>(c->logits),
                            shapeOf(node.input(0))));
  if (smoothing != 0)
    return smoothed(node, *c, smoothing);
  return reduced(node, *c, c->logits);
}

// The loss of scores that are not known to be a log-softmax. Scores of any kind
// are taken as log-probabilities, as ONNX defines the op.
static LogicalResult reducedScores(Node &node, const Classification &c) {
  Emitter &b = node.b;
  Value losses = perRow(node, c, c.logits);
  Value weights = c.weights ? weightPerRow(b, c) : Value();
  if (weights)
    losses = b.binary<nn::MulOp>(losses, weights);
  return reduceRows(node, c, losses, weights);
}

// Only a log-softmax makes the loss a cross-entropy, so the handler looks
// through the one that has made the scores. ONNX accepts any others as well.
static LogicalResult negativeLogLikelihood(Node &node) {
  std::optional<Classification> c = parse(node);
  if (!c)
    return failure();
  Value scores = node.input(0);
  if (rankOf(scores) == 2 && scores.getDefiningOp<nn::LogSoftmaxOp>())
    return reduced(node, *c, scores);
  if (auto swapped = scores.getDefiningOp<nn::TransposeOp>())
    if (auto soft = swapped.getInput().getDefiningOp<nn::LogSoftmaxOp>();
        soft && swapped.getPermutation()[1] == rankOf(scores) - 1) {
      // A log-softmax along axis 1 of N×C×d: its input has the same rows.
      Value logits =
          node.b.transpose(soft.getInput(), swapped.getPermutation());
      return reduced(node, *c, toRows(node.b, logits));
    }
  return reducedScores(node, *c);
}

void frontend::registerLoss(HandlerTable &table) {
  table.add("SoftmaxCrossEntropyLoss", 12, softmaxCrossEntropy);
  table.add("NegativeLogLikelihoodLoss", 12, negativeLogLikelihood);
}
