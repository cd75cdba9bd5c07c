// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The collectives of @update: there is one of each kind that the strategies of
// layouts and --reduce want, for exactly the layouts that want it, and it
// stands on the right side of the optimizers.
#include "passes/collectives/CollectiveRules.h"

#include "compiler/dialects/fsdp/Rules.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/dialects/fsdp/UpdateRules.h"

namespace fsdpc::passes {

using namespace mlir;
using fsdp::broken;
using fsdp::refuseWithNote;

namespace {

// Checks that there is one `Op` for all trainable layouts that want it, none if
// there are no such layouts. Returns it, or null. `isWanted` is asked of
// trainable layouts; the op must name exactly those it accepts.
template <typename Op>
FailureOr<Op> verifyOnly(ModuleOp module, Block &update,
                         llvm::function_ref<bool(fsdp::LayoutOp)> isWanted) {
  bool wanted =
      llvm::any_of(module.getOps<fsdp::LayoutOp>(), [&](fsdp::LayoutOp layout) {
        return layout.getTrainable() && isWanted(layout);
      });
  Op found;
  for (auto op : update.getOps<Op>()) {
    if (!wanted)
      return broken(op, "update")
             << "the strategies of layouts and --reduce do not want it";
    if (found)
      return refuseWithNote(broken(op, "update") << "it is the second one",
                            found, "the first is here");
    if (failed(fsdp::verifyNames(module, op, "update", isWanted)))
      return failure();
    found = op;
  }
  if (wanted && !found)
    return broken(update.getParentOp(), "update")
           << "it has no '" << Op::getOperationName() << "'";
  return found;
}

// Either may be null: nothing to order then.
LogicalResult verifyOrder(Operation *first, Operation *second) {
  if (!first || !second || first->isBeforeInBlock(second))
    return success();
  return refuseWithNote(broken(first, "update") << "it must stand before '"
                                                << second->getName() << "'",
                        second, "which stands here");
}

// Ranks meet at the collectives of @update as well, and gradients that the
// microbatches have reduced are not reduced or overwritten there again.
LogicalResult verifyUpdateEffects(Block &update) {
  for (Operation &op : update.without_terminator()) {
    if (failed(verifySymmetry(&op)))
      return failure();
    auto effects = fsdp::effectsOf(&op);
    if (failed(effects))
      return failure();
    auto ofSymbols = fsdp::symbolEffectsOf(&op, *effects);
    if (failed(ofSymbols))
      return failure();
    if (writes(*ofSymbols, fsdp::GradientMemory::get()) &&
        !isa<fsdp::ReduceGradientsOp, fsdp::GatherGradientsOp>(op))
      return broken(&op, "reduce-once")
             << "'@update' changes gradients only by reduce_gradients and "
                "gather_gradients";
  }
  return success();
}

// An optimizer of a whole layout reads a whole gradient: the layout's own, or
// one that is gathered for it.
LogicalResult verifyGradient(ModuleOp module, fsdp::OptimizerOp optimizer) {
  auto layout = module.lookupSymbol<fsdp::LayoutOp>(optimizer.getLayout());
  bool borrows = fsdp::borrowsGradients(layout);
  if (!optimizer.getGradient())
    return borrows ? broken(optimizer, "update")
                         << "it takes no 'fsdp.whole_gradient', but this rank "
                            "keeps only a part of the gradient of layout '"
                         << optimizer.getLayout() << "'"
                   : success();
  if (!borrows)
    return broken(optimizer, "update")
           << "it takes a gradient, but reads that of layout '"
           << optimizer.getLayout() << "' in the layout's memory";
  auto whole = optimizer.getGradient().getDefiningOp<fsdp::WholeGradientOp>();
  if (!whole || whole.getLayoutAttr() != optimizer.getLayoutAttr())
    return broken(optimizer, "update")
           << "its gradient is not the 'fsdp.whole_gradient' of layout '"
           << optimizer.getLayout() << "'";
  return success();
}

// Checks the collectives around the optimizers: accumulated gradients are
// reduced before anything reads them, replicated ones are gathered before the
// optimizers, and replicated parameters after them.
LogicalResult verifyAroundOptimizers(ModuleOp module,
                                     const fsdp::CompileOptions &options,
                                     Block &update) {
  auto reduce =
      verifyOnly<fsdp::ReduceGradientsOp>(module, update, [&](fsdp::LayoutOp) {
        return options.reduce == fsdp::ReductionTime::Step;
      });
  auto gradients = verifyOnly<fsdp::GatherGradientsOp>(
      module, update,
      [&](fsdp::LayoutOp layout) { return fsdp::gathersGradients(layout); });
  auto parameters = verifyOnly<fsdp::GatherParametersOp>(
      module, update,
      [&](fsdp::LayoutOp layout) { return fsdp::gathersParameters(layout); });
  if (failed(reduce) || failed(gradients) || failed(parameters))
    return failure();
  // The norm is computed from gradients that are complete, so an accumulated
  // gradient is reduced before sum_squares.
  for (auto squares : update.getOps<fsdp::SumSquaresOp>())
    if (failed(verifyOrder(*reduce, squares)))
      return failure();
  if (*gradients && failed(verifyOrder(*reduce, *gradients)))
    return failure();
  for (auto optimizer : update.getOps<fsdp::OptimizerOp>())
    if (failed(verifyGradient(module, optimizer)) ||
        failed(verifyOrder(*gradients, optimizer)) ||
        (*parameters && failed(verifyOrder(optimizer, *parameters))))
      return failure();
  return success();
}

} // namespace

LogicalResult verifyUpdateCollectives(ModuleOp module,
                                      const fsdp::CompileOptions &options,
                                      Block &update) {
  if (failed(verifyUpdateEffects(update)))
    return failure();
  return verifyAroundOptimizers(module, options, update);
}

} // namespace fsdpc::passes
