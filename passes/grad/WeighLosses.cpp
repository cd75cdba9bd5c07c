// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// weigh-losses: makes means over the targets of a microbatch parts of the mean
// over all targets of a step. A microbatch's mean is multiplied by V · (its
// divisor) / (the step's divisor) in the forward, so the gradients, their
// scale, what hooks see and the reported loss all follow from it.
#include "passes/grad/PassOn.h"
#include "passes/grad/Passes.h"
#include "passes/grad/WeightedMeans.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/WeightPrograms.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "compiler/options/Options.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_WEIGHLOSSES
#include "passes/grad/Passes.h.inc"

using namespace mlir;

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

// Builds the weights that the means of a function need, one for all means with
// the same divisor.
class Weigher {
public:
  explicit Weigher(func::FuncOp function)
      : function(function), body(function.front()),
        symbols(function->getParentOfType<ModuleOp>()) {}

  // Returns null, with a note, if the mean keeps its value.
  fsdp::LossWeightOp weightOf(const WeightedMean &mean);

private:
  using Key = std::tuple<Value, Value, Attribute, Attribute>;
  fsdp::LossWeightOp build(const WeightedMean &mean, Value counted,
                           ArrayRef<Operation *> ops);

  func::FuncOp function;
  Block &body;
  SymbolTable symbols;
  DenseMap<Key, fsdp::LossWeightOp> weights;
};

// What a cross-entropy counts: its targets and class weights.
struct Targets {
  Value targets, weights;
  IntegerAttr ignored;
};

Targets targetsOf(Operation *op) {
  if (auto entropy = dyn_cast<nn::CrossEntropyOp>(op))
    return {entropy.getTargets(), entropy.getWeights(),
            entropy.getIgnoreIndexAttr()};
  auto entropy = cast<nn::LinearCrossEntropyOp>(op);
  return {entropy.getTargets(), entropy.getWeights(),
          entropy.getIgnoreIndexAttr()};
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

fsdp::LossWeightOp Weigher::weightOf(const WeightedMean &mean) {
  Operation *op = mean.mean.getDefiningOp();
  Targets targets;
  Value counted = mean.count.weight;
  if (!counted) {
    targets = targetsOf(op);
    counted = targets.targets;
  }
  Builder builder(op->getContext());
  Attribute form =
      builder.getF64ArrayAttr({mean.count.atLeast, mean.count.plus});
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

fsdp::LossWeightOp Weigher::build(const WeightedMean &mean, Value counted,
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
      number(mean.count.plus), 1);
  weight.getCounts()[0].push_back(block.release());
  // Renames it where the name is taken.
  symbols.insert(weight);
  return weight;
}

// A microbatch without targets has a factor of 0, which must not meet 0 / 0:
// what divides by its count becomes 1.
void guardFactor(OpBuilder &builder, OpOperand &factor, Value count) {
  Location loc = factor.getOwner()->getLoc();
  builder.setInsertionPoint(factor.getOwner());
  auto type = nn::tensorType(factor.get());
  auto single = nn::tensorType(count);
  Value none = nn::CmpOp::create(
      builder, loc, single.clone(builder.getI1Type()), nn::Predicate::eq, count,
      nn::splat(builder, loc, single, 0));
  SmallVector<int64_t> ones(type.getRank(), 1);
  none = nn::broadcastTo(builder, loc, nn::reshapeTo(builder, loc, none, ones),
                         type.getShape());
  Value one = nn::splat(builder, loc, type, 1);
  factor.set(nn::SelectOp::create(builder, loc, type, none, one, factor.get()));
}

// Multiplies a mean by its factor.
void multiply(const WeightedMean &mean, fsdp::LossWeightOp weight) {
  Operation *op = mean.mean.getDefiningOp();
  Location loc = op->getLoc();
  MarkPlace mark(op);
  OpBuilder builder(op->getContext(), &mark);
  builder.setInsertionPoint(op);
  auto f32 = RankedTensorType::get({}, builder.getF32Type());
  Value factor =
      fsdp::LossFactorOp::create(builder, loc, f32, weight.getSymName());
  if (mean.count.atLeast == 0 && mean.count.plus == 0)
    for (const CountFactor &factor : mean.factors)
      guardFactor(builder, *factor.use, factor.weight);
  // It computes its gradients in the forward, and they are rounded there.
  if (auto linear = dyn_cast<nn::LinearCrossEntropyOp>(op);
      linear && linear.getLoss().getType() == f32)
    linear.getScaleMutable().assign(factor);
  builder.setInsertionPointAfter(op);
  auto type = nn::tensorType(mean.mean);
  Value wide = nn::castTo(builder, loc, factor, type.getElementType());
  SmallVector<int64_t> ones(type.getRank(), 1);
  wide = nn::broadcastTo(builder, loc, nn::reshapeTo(builder, loc, wide, ones),
                         type.getShape());
  auto part = nn::MulOp::create(builder, loc, type, mean.mean, wide);
  Value before = mean.mean;
  before.replaceAllUsesExcept(part.getResult(), part.getOperation());
}

struct WeighLosses : impl::WeighLossesBase<WeighLosses> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto microbatch = fsdp::getMicrobatch(module);
    if (failed(microbatch))
      return signalPassFailure();
    Block &body = microbatch->front();
    // The module may come from a dump that has them. The gradients that a model
    // gives are of its own mean.
    auto reports = llvm::to_vector(body.getOps<fsdp::ReportLossOp>());
    if (!module.getOps<fsdp::LossWeightOp>().empty() || reports.size() != 1 ||
        !body.getOps<fsdp::GradientOp>().empty())
      return markAllAnalysesPreserved();
    FoundMeans found = findMeans(body, reports.front());
    bool ofStep =
        fsdp::CompileOptions::of(module).lossMean == fsdp::LossMean::Step;
    for (Operation *op : found.others)
      if (ofStep)
        keepsOwn(op, "depends on more than the model's inputs");
    Weigher weigher(*microbatch);
    SmallVector<std::pair<WeightedMean, fsdp::LossWeightOp>> weighed;
    for (const WeightedMean &mean : found.means) {
      fsdp::LossWeightOp weight = weigher.weightOf(mean);
      if (weight)
        weighed.emplace_back(mean, weight);
      else if (ofStep)
        keepsOwn(mean.mean.getDefiningOp(),
                 "is not computed quickly from inputs, before the step");
    }
    if (!ofStep)
      return;
    for (const LoneCount &lone : found.lone)
      reportLone(lone);
    for (auto &[mean, weight] : weighed)
      multiply(mean, weight);
    numMeans += weighed.size();
  }

  static void keepsOwn(Operation *op, StringRef why) {
    op->emitRemark("this mean stays a mean over the targets of its microbatch "
                   "('--loss-mean=microbatch'), since its weight ")
        << why;
  }

  static void reportLone(const LoneCount &lone) {
    if (!lone.source)
      return keepsOwn(lone.user, "is not that of a term to which the loss is "
                                 "linear");
    auto remark = lone.user->emitRemark(
        "the loss depends on a value that combines the samples of a "
        "microbatch, such as a count of targets, and is not a mean over "
        "targets: it stays that of the microbatch ('--loss-mean=microbatch'); "
        "for the mean of the step write sum / count");
    remark.attachNote(lone.source->getLoc()) << "samples are combined here";
  }
};

} // namespace
} // namespace fsdpc::passes
