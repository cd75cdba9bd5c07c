// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// build-evaluate: copies the forward to @evaluate, in the form in which PyTorch
// runs it after `model.eval()`. The copy is made of the imported forward,
// before the backward exists, so that training and evaluation cannot differ in
// anything but dropout and batch norm.
#include "passes/grad/PassOn.h"
#include "passes/grad/Passes.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/RunningStatistics.h"
#include "compiler/dialects/nn/DecomposeBuilder.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/NormOps.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_BUILDEVALUATE
#include "passes/grad/Passes.h.inc"

using namespace mlir;
using fsdp::FSDPDialect;

namespace {

/// Replaces the result of a batch norm with (x - mean) · (weight · rstd) + bias
/// over the running statistics, the form that the importer gives a batch norm
/// of fixed statistics. Does nothing if the model keeps none.
void useRunningStatistics(nn::BatchNormOp norm) {
  fsdp::UpdateStatisticsOp mean = fsdp::updateOf(norm.getMean());
  fsdp::UpdateStatisticsOp variance = fsdp::updateOf(norm.getVariance());
  if (!mean || !variance)
    return;
  MarkPlace mark(norm);
  OpBuilder builder(norm->getContext(), &mark);
  builder.setInsertionPoint(norm);
  nn::DecomposeBuilder b(builder, norm.getLoc());
  auto load = [&](fsdp::UpdateStatisticsOp update) -> Value {
    // Buffers have the statistic's type.
    Value value = fsdp::LoadOp::create(builder, norm.getLoc(),
                                       update.getStatistic().getType(),
                                       update.getBufferAttr());
    Type element = nn::tensorType(norm.getInput()).getElementType();
    return b.cast(value, element);
  };
  Value x = norm.getInput();
  ArrayRef<int64_t> shape = nn::shapeOf(x);
  // C×1×…, which broadcasts from the right to N×C×….
  SmallVector<int64_t> perChannel(shape.size() - 1, 1);
  perChannel[0] = shape[1];
  auto perElement = [&](Value value) {
    return b.broadcast(b.reshape(value, perChannel), shape);
  };
  double epsilon = norm.getEpsilon().convertToDouble();
  // On the channels, before it is broadcast: C elements instead of all.
  Value rstd = b.rsqrt(b.add(load(variance), epsilon));
  Value centred = b.sub(x, perElement(load(mean)));
  Value scaled = b.mul(centred, perElement(b.mul(norm.getWeight(), rstd)));
  norm.getResult().replaceAllUsesWith(
      b.add(scaled, perElement(norm.getBias())));
}

/// Returns true if the op is a cross-entropy of the mean.
template <typename OpTy> bool isMean(Operation *op) {
  auto entropy = dyn_cast<OpTy>(op);
  return entropy && entropy.getReduction() == nn::Reduction::mean;
}

/// The count of valid targets weights a mean; a sum of losses has no weight.
void keepCountOfMeans(fsdp::ReportLossOp report) {
  if (!report.getValid())
    return;
  Operation *source = report.getValid().getDefiningOp();
  if (!isMean<nn::CrossEntropyOp>(source) &&
      !isMean<nn::LinearCrossEntropyOp>(source))
    report.getValidMutable().clear();
}

/// Erases ops from the end, so that one pass removes whole chains: those that
/// `isDropped` accepts, and those whose results nobody reads.
template <typename Predicate>
void eraseUnused(func::FuncOp function, Predicate isDropped) {
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(function.front())))
    if (isDropped(op) || isOpTriviallyDead(&op))
      op.erase();
}

/// Predictions are written in evaluations only, so that training computes and
/// keeps nothing for them.
bool isPrediction(Operation &op) {
  auto report = dyn_cast<fsdp::ReportOutputOp>(op);
  return report && !report.isScalar();
}

struct BuildEvaluate : impl::BuildEvaluateBase<BuildEvaluate> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto microbatch = fsdp::getMicrobatch(module);
    if (failed(microbatch))
      return signalPassFailure();
    // The module may come from a dump that has one.
    if (module.lookupSymbol(fsdp::kEvaluate))
      return;
    // Unit and module attributes are copied with the ops.
    func::FuncOp evaluate = microbatch->clone();
    evaluate.setSymName(fsdp::kEvaluate);
    module.getBody()->getOperations().insertAfter(
        microbatch->getOperation()->getIterator(), evaluate);

    Origins origins(evaluate.front());
    for (auto norm : evaluate.getOps<nn::BatchNormOp>())
      useRunningStatistics(norm);
    // Dropout scales in training, so it is the identity here.
    for (auto dropout : evaluate.getOps<nn::DropoutOp>())
      passOn(dropout.getResult(), dropout.getInput(), origins);
    passOnCustomGradients(evaluate.front(), origins);
    for (auto stop : evaluate.getOps<nn::StopGradientOp>())
      passOn(stop.getResult(), stop.getInput(), origins);
    for (auto report : evaluate.getOps<fsdp::ReportLossOp>())
      keepCountOfMeans(report);
    // Running statistics change in training only, which gradients are for.
    eraseUnused(evaluate,
                llvm::IsaPred<fsdp::UpdateStatisticsOp, fsdp::GradientOp>);
    if (llvm::any_of(microbatch->front(), isPrediction))
      eraseUnused(*microbatch, isPrediction);
  }
};

} // namespace
} // namespace fsdpc::passes
