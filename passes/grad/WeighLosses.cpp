// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// weigh-losses: makes means over the targets of a microbatch parts of the mean
// over all targets of a step. A microbatch's mean is multiplied by V · (its
// divisor) / (the step's divisor) in the forward, so the gradients, their
// scale, what hooks see and the reported loss all follow from it.
#include "passes/grad/LossWeights.h"
#include "passes/grad/PassOn.h"
#include "passes/grad/Passes.h"
#include "passes/grad/StepCount.h"
#include "passes/grad/WeightedMeans.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "compiler/options/Options.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_WEIGHLOSSES
#include "passes/grad/Passes.h.inc"

using namespace mlir;

namespace {

// Multiplies a mean by its factor.
void multiply(const WeightedMean &mean, fsdp::LossWeightOp weight,
              const SampleFlow &flow) {
  Operation *op = mean.mean.getDefiningOp(), *first = op;
  for (const CountFactor &factor : mean.factors)
    if (factor.use->getOwner()->isBeforeInBlock(first))
      first = factor.use->getOwner();
  Location loc = op->getLoc();
  MarkPlace mark(op);
  OpBuilder builder(op->getContext(), &mark);
  builder.setInsertionPoint(first);
  auto f32 = RankedTensorType::get({}, builder.getF32Type());
  Value factor =
      fsdp::LossFactorOp::create(builder, loc, f32, weight.getSymName());
  StepCount count(mean, factor, flow, builder);
  for (const CountFactor &each : mean.factors)
    count.replace(*each.use);
  for (OpOperand *test : mean.tests)
    count.replace(*test);
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

// Removes reductions that change nothing. The importer keeps them for the
// search, as they may be over the samples of a microbatch of one. Returns true
// if there were any.
bool removeIdleReductions(func::FuncOp function) {
  bool any = false;
  function.walk([&](nn::ReduceOp reduce) {
    if (reduce.getType() != reduce.getInput().getType())
      return;
    reduce.replaceAllUsesWith(reduce.getInput());
    reduce.erase();
    any = true;
  });
  return any;
}

struct WeighLosses : impl::WeighLossesBase<WeighLosses> {
  void runOnOperation() override {
    auto microbatch = fsdp::getMicrobatch(getOperation());
    if (failed(microbatch))
      return signalPassFailure();
    bool weighs = weigh(*microbatch);
    if (!removeIdleReductions(*microbatch) && !weighs)
      markAllAnalysesPreserved();
  }

  // Returns false if the module has no means to weigh.
  bool weigh(func::FuncOp microbatch) {
    ModuleOp module = getOperation();
    Block &body = microbatch.front();
    // The module may come from a dump that has them. The gradients that a model
    // gives are of its own mean.
    auto reports = llvm::to_vector(body.getOps<fsdp::ReportLossOp>());
    if (!module.getOps<fsdp::LossWeightOp>().empty() || reports.size() != 1 ||
        !body.getOps<fsdp::GradientOp>().empty())
      return false;
    SampleFlow flow(body);
    FoundMeans found = findMeans(body, reports.front(), flow);
    bool ofStep =
        fsdp::CompileOptions::of(module).lossMean == fsdp::LossMean::Step;
    for (Operation *op : found.others)
      if (ofStep)
        keepsOwn(op, "depends on more than the model's inputs");
    LossWeights weights(microbatch, flow);
    SmallVector<std::pair<WeightedMean, fsdp::LossWeightOp>> weighed;
    for (const WeightedMean &mean : found.means) {
      fsdp::LossWeightOp weight = weights.weightOf(mean);
      if (weight)
        weighed.emplace_back(mean, weight);
      else if (ofStep)
        keepsOwn(mean.mean.getDefiningOp(),
                 "is not computed quickly from inputs, before the step");
    }
    if (!ofStep)
      return true;
    for (const LoneCount &lone : found.lone)
      reportLone(lone);
    for (auto &[mean, weight] : weighed)
      multiply(mean, weight, flow);
    numMeans += weighed.size();
    return true;
  }

  static void keepsOwn(Operation *op, StringRef why) {
    op->emitRemark("this mean stays a mean over the targets of its microbatch "
                   "('--loss-mean=microbatch'), since its weight ")
        << why;
  }

  static void reportLone(const LoneCount &lone) {
    if (!lone.source)
      return keepsOwn(lone.user, "is not that of a term in which the loss is "
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
