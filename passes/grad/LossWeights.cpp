// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A weight is a copy of the ops that compute it from inputs. Those of a
// cross-entropy follow from its decomposition. Means that divide by one value
// have one weight, also where the model computes that several times.
#include "passes/grad/LossWeights.h"

#include "compiler/dialects/fsdp/WeightPrograms.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace fsdpc::passes {

Targets targetsOf(Operation *op) {
  if (auto entropy = dyn_cast<nn::CrossEntropyOp>(op))
    return {entropy.getTargets(), entropy.getWeights(),
            entropy.getIgnoreIndexAttr()};
  auto entropy = cast<nn::LinearCrossEntropyOp>(op);
  return {entropy.getTargets(), entropy.getWeights(),
          entropy.getIgnoreIndexAttr()};
}

bool ignoresAs(const Targets &of, Value counted, const SampleFlow &flow) {
  auto unshaped = [&](Value value) {
    while (auto reshape = value.getDefiningOp<nn::ReshapeOp>())
      value = reshape.getInput();
    return flow.firstOf(value);
  };
  auto negated = counted.getDefiningOp<nn::NotOp>();
  auto compare =
      (negated ? negated.getInput() : counted).getDefiningOp<nn::CmpOp>();
  return of.ignored && compare &&
         compare.getPredicate() ==
             (negated ? nn::Predicate::eq : nn::Predicate::ne) &&
         unshaped(compare.getLhs()) == unshaped(of.targets) &&
         nn::matchSplat(compare.getRhs()) == double(of.ignored.getInt());
}

namespace {

// The runtime computes weights on one thread, before the step.
constexpr int64_t kMostElements = int64_t(1) << 24;

// Returns the ops that compute `value` from inputs, in order, or nothing if the
// runtime cannot compute one of them, or not quickly.
std::optional<SmallVector<Operation *>> sliceOf(Value value, Block &body) {
  DenseSet<Value> needed = {value};
  SmallVector<Operation *> ops;
  int64_t elements = 0;
  for (Operation &op : llvm::reverse(body)) {
    if (llvm::none_of(op.getResults(),
                      [&](Value result) { return needed.contains(result); }))
      continue;
    if (!fsdp::weightStepOf(&op))
      return std::nullopt;
    elements += nn::tensorType(op.getResult(0)).getNumElements();
    needed.insert(op.operand_begin(), op.operand_end());
    ops.push_back(&op);
  }
  // An input without samples has one value per step.
  bool readsScalars = llvm::any_of(body.getArguments(), [&](Value input) {
    return nn::shapeOf(input).empty() && needed.contains(input);
  });
  if (elements > kMostElements || readsScalars)
    return std::nullopt;
  std::reverse(ops.begin(), ops.end());
  return ops;
}

// Builds the sum of the weights of targets that count, as cross-entropy's
// decomposition has it.
Value countTargets(OpBuilder &builder, Location loc, const Targets &of,
                   IRMapping &mapping) {
  Value targets = mapping.lookup(of.targets);
  auto type = nn::tensorType(targets);
  auto floats = type.clone(builder.getF32Type());
  Value weights = nn::splat(builder, loc, floats, 1);
  Value ignored;
  if (of.ignored) {
    ignored = nn::CmpOp::create(
        builder, loc, type.clone(builder.getI1Type()), nn::Predicate::eq,
        targets, nn::splat(builder, loc, type, double(of.ignored.getInt())));
    targets = nn::SelectOp::create(builder, loc, type, ignored,
                                   nn::splat(builder, loc, type, 0), targets);
  }
  if (of.weights) {
    Value table = mapping.lookup(of.weights);
    int64_t classes = nn::shapeOf(table)[0], count = type.getNumElements();
    Value index = nn::reshapeTo(builder, loc, targets, {count, 1});
    table = nn::castTo(builder, loc, table, builder.getF32Type());
    table = nn::broadcastTo(builder, loc,
                            nn::reshapeTo(builder, loc, table, {1, classes}),
                            {count, classes});
    weights = nn::TakeAlongAxisOp::create(
        builder, loc, floats.clone({count, 1}), table, index);
    weights = nn::reshapeTo(builder, loc, weights, type.getShape());
  }
  if (ignored)
    weights = nn::SelectOp::create(builder, loc, floats, ignored,
                                   nn::splat(builder, loc, floats, 0), weights);
  SmallVector<int64_t> axes =
      llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
  return nn::reduceAlong(builder, loc, nn::ReduceKind::sum, weights, axes);
}

} // namespace

// Without numbers the divisor of a mean is that of a sum.
static bool isPerMicrobatch(const WeightedMean &mean) {
  return mean.count.isMean && mean.count.isBounded();
}

fsdp::LossWeightOp LossWeights::weightOf(const WeightedMean &mean) {
  Operation *op = mean.mean.getDefiningOp();
  Targets targets;
  Value counted = mean.count.weight;
  if (!counted) {
    targets = targetsOf(op);
    counted = flow.firstOf(targets.targets);
  }
  Builder builder(op->getContext());
  Attribute form = builder.getF64ArrayAttr(
      {mean.count.atLeast, mean.count.plus, double(isPerMicrobatch(mean))});
  fsdp::LossWeightOp &known = weights[Key(
      counted, targets.weights,
      targets.ignored ? Attribute(targets.ignored) : builder.getUnitAttr(),
      form)];
  if (known)
    return known;
  auto ops = sliceOf(counted, body);
  if (ops && targets.weights) {
    auto table = sliceOf(targets.weights, body);
    // No op twice.
    if (table)
      llvm::copy_if(*ops, std::back_inserter(*table), [&](Operation *each) {
        return !llvm::is_contained(*table, each);
      });
    std::swap(ops, table);
    if (!ops || nn::tensorType(counted).getNumElements() *
                        nn::tensorType(targets.weights).getNumElements() >
                    kMostElements)
      ops.reset();
  }
  if (!ops || int64_t(weights.size()) > mostLossWeights)
    return nullptr;
  return known = build(mean, counted, *ops);
}

fsdp::LossWeightOp LossWeights::build(const WeightedMean &mean, Value counted,
                                      ArrayRef<Operation *> ops) {
  OpBuilder builder(function);
  Location loc = mean.mean.getLoc();
  auto block = std::make_unique<Block>();
  IRMapping mapping;
  SmallVector<Attribute> inputs;
  auto take = [&](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || mapping.contains(value))
      return;
    inputs.push_back(function.getArgAttr(argument.getArgNumber(),
                                         fsdp::FSDPDialect::kInputAttr));
    mapping.map(value, block->addArgument(value.getType(), value.getLoc()));
  };
  take(counted);
  for (Operation *op : ops)
    for (Value operand : op->getOperands())
      take(operand);
  // The block has no parent yet.
  OpBuilder inner(builder.getContext());
  inner.setInsertionPointToEnd(block.get());
  for (Operation *op : ops) {
    Operation *copy = inner.clone(*op, mapping);
    // They belong to no unit.
    for (NamedAttribute attr : llvm::to_vector(copy->getDiscardableAttrs()))
      copy->removeAttr(attr.getName());
  }
  Value sum = mean.count.weight
                  ? mapping.lookup(counted)
                  : countTargets(inner, loc,
                                 targetsOf(mean.mean.getDefiningOp()), mapping);
  fsdp::YieldOp::create(inner, loc, nn::reshapeTo(inner, loc, sum, {}));
  auto number = [&](double value) {
    return value == 0 ? FloatAttr() : builder.getF64FloatAttr(value);
  };
  auto weight = fsdp::LossWeightOp::create(
      builder, loc, builder.getStringAttr("loss_weight"),
      builder.getArrayAttr(inputs), number(mean.count.atLeast),
      number(mean.count.plus), isPerMicrobatch(mean), 1);
  weight.getCounts()[0].push_back(block.release());
  // Renames it where the name is taken.
  symbols.insert(weight);
  return weight;
}

} // namespace fsdpc::passes
