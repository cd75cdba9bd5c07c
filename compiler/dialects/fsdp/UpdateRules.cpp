// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rules of @update and of the layouts that several phases check; see
// UpdateRules.h. They follow from what build-update and shard-parameters write,
// except that rates, decays, the clipping norm and the optimizers' programs may
// be edited.
#include "compiler/dialects/fsdp/UpdateRules.h"
#include "compiler/dialects/fsdp/OptimizerInputs.h"

#include "compiler/dialects/fsdp/Compression.h"
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/options/Options.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace fsdpc::fsdp {

// Ranks agree on the option, and members and shards are aligned by it. The
// options are checked for what sends no blocks; a layout may have been edited.
static LogicalResult verifyWire(LayoutOp layout, Strategy strategy,
                                const CompileOptions &options,
                                const SymbolTable &symbols) {
  if (options.sendsBlocks() && !strategy->sendsBlocks(options.reducesBlocks()))
    return layout.emitOpError("breaks rule 'wire': layout '")
           << layout.getSymName() << "' is of strategy '" << nameOf(strategy)
           << "', which cannot send blocks (gather-dtype '"
           << nameOf(options.gatherType) << "', reduce-dtype '"
           << nameOf(options.reduceType) << "')";
  BlockType wanted = gatheredBy(strategy, keepsF32(layout, symbols), options);
  if (wireOf(layout) == wanted)
    return success();
  return layout.emitOpError("breaks rule 'wire': layout '")
         << layout.getSymName() << "' is gathered as '"
         << nameOf(wireOf(layout)) << "', and strategy '" << nameOf(strategy)
         << "' with gather-dtype '" << nameOf(options.gatherType)
         << "' gathers it as '" << nameOf(wanted) << "'";
}

// Memory, kernels and the runtime read the attribute alone. A layout that needs
// a sum but has memory for one addend would train with that addend.
static LogicalResult verifyUnsummed(LayoutOp layout,
                                    const CompileOptions &options,
                                    const SymbolTable &symbols) {
  bool wanted = leavesUnsummed(layout, options, symbols);
  if (isUnsummed(layout) == wanted)
    return success();
  return layout.emitOpError("breaks rule 'unsummed': the gradient of layout '")
         << layout.getSymName() << "' is " << (wanted ? "" : "not ")
         << "read as one microbatch of one rank has computed it "
            "(max-accumulate "
         << options.maxAccumulate << ", max-ranks " << options.maxRanks
         << ", reduce-dtype '" << nameOf(options.reduceType) << "')";
}

// Equal sets are enough: the order in `whole` carries no meaning.
LogicalResult verifyReplication(ModuleOp module, const SymbolTable &symbols) {
  CompileOptions options = CompileOptions::of(module);
  for (auto layout : module.getOps<LayoutOp>()) {
    Strategy strategy = strategyOf(layout, options);
    // The attribute is checked against the strategy in every phase, because
    // runtime and memory plan read the attribute alone.
    SmallVector<StringRef> wanted =
        replicatedBy(strategy, options, layout.getTrainable());
    SmallVector<StringRef> found =
        llvm::to_vector(layout.getWhole().getAsValueRange<StringAttr>());
    llvm::sort(wanted);
    llvm::sort(found);
    if (wanted == found) {
      if (failed(verifyWire(layout, strategy, options, symbols)) ||
          failed(verifyCompression(layout, strategy, options, symbols)) ||
          failed(verifyUnsummed(layout, options, symbols)))
        return failure();
      continue;
    }
    InFlightDiagnostic diag =
        layout.emitOpError("breaks rule 'replication': layout '")
        << layout.getSymName() << "' keeps [";
    llvm::interleaveComma(found, diag);
    diag << "] on every rank, and strategy '" << nameOf(strategy)
         << "' with reduce '" << nameOf(options.reduce) << "' ";
    if (!options.accumulates())
      diag << "and max-accumulate 1 ";
    diag << "[";
    llvm::interleaveComma(wanted, diag);
    return diag << "]";
  }
  return success();
}

// A layout that is left out would keep its old values or drop out of the norm
// without any error at run time.
LogicalResult verifyNames(ModuleOp module, LayoutUserOpInterface op,
                          StringRef rule,
                          llvm::function_ref<bool(LayoutOp)> isWanted) {
  CompileOptions options = CompileOptions::of(module);
  DenseSet<StringAttr> named;
  for (FlatSymbolRefAttr layout : op.getLayoutRefs())
    if (!named.insert(layout.getAttr()).second)
      return op.emitOpError("breaks rule '") << rule << "': it names layout '"
                                             << layout.getValue() << "' twice";
  for (auto layout : module.getOps<LayoutOp>()) {
    bool trainable = layout.getTrainable();
    bool wanted = trainable && isWanted(layout);
    if (wanted == named.contains(layout.getSymNameAttr()))
      continue;
    InFlightDiagnostic diag = op.emitOpError("breaks rule '")
                              << rule << "': it "
                              << (wanted      ? "leaves out"
                                  : trainable ? "names"
                                              : "names frozen")
                              << " layout '" << layout.getSymName() << "'";
    if (trainable && !wanted)
      diag << ", whose strategy '" << nameOf(strategyOf(layout, options))
           << "' does not want it";
    diag.attachNote(layout.getLoc()) << "the layout";
    return diag;
  }
  return success();
}

// Returns the only op of its kind in @update. Emits an error if there is none,
// or a second one.
template <typename Op>
static FailureOr<Op> findOnly(Block &update, StringRef rule) {
  Op first;
  for (auto op : update.getOps<Op>()) {
    if (first) {
      InFlightDiagnostic diag = op.emitOpError("breaks rule '")
                                << rule
                                << "': it is the second one in '@update'";
      diag.attachNote(first.getLoc()) << "the first is here";
      return diag;
    }
    first = op;
  }
  if (!first)
    return update.getParentOp()->emitOpError("breaks rule '")
           << rule << "': it has no '" << Op::getOperationName() << "'";
  return first;
}

// Returns the all-reduce of the squares. Others sum what fsdp.member_sums
// and fsdp.factor_sums yield. Emits an error if there is none, or a second one.
static FailureOr<AllReduceOp> findReduction(Block &update,
                                            SumSquaresOp squares) {
  AllReduceOp first;
  for (auto reduction : update.getOps<AllReduceOp>()) {
    if (isa_and_nonnull<MemberSumsOp, FactorSumsOp>(
            reduction.getInput().getDefiningOp()))
      continue;
    if (reduction.getInput() != squares.getResult()) {
      InFlightDiagnostic diag = reduction.emitOpError(
          "breaks rule 'norm': it does not sum the squares");
      diag.attachNote(squares.getLoc()) << "the squares are summed here";
      return diag;
    }
    if (first) {
      InFlightDiagnostic diag = reduction.emitOpError(
          "breaks rule 'norm': it is the second one in '@update'");
      diag.attachNote(first.getLoc()) << "the first is here";
      return diag;
    }
    first = reduction;
  }
  if (!first)
    return update.getParentOp()->emitOpError("breaks rule 'norm': it has no '")
           << AllReduceOp::getOperationName() << "'";
  return first;
}

// The norm: the sums of squares of all layouts, added up over the ranks.
static FailureOr<ClipScaleOp> verifyNorm(ModuleOp module, Block &update) {
  auto squares = findOnly<SumSquaresOp>(update, "norm");
  auto all = [](LayoutOp) { return true; };
  if (failed(squares) || failed(verifyNames(module, *squares, "norm", all)))
    return failure();
  auto sums = findReduction(update, *squares);
  if (failed(sums))
    return failure();
  auto clip = findOnly<ClipScaleOp>(update, "norm");
  if (failed(clip))
    return failure();
  // The sums are addressed by position, so the order counts as well.
  if (clip->getSums() != sums->getResult() ||
      clip->getLayouts() != squares->getLayouts()) {
    InFlightDiagnostic diag =
        clip->emitOpError("breaks rule 'norm': it does not take the sums of "
                          "the same layouts in the same order");
    diag.attachNote(squares->getLoc()) << "the squares are summed here";
    return diag;
  }
  return *clip;
}

// The runtime divides the gradients by the loss scale of the options. A module
// whose backward multiplies by a scale that the options do not have would train
// with gradients that are too large.
static LogicalResult verifyScale(ModuleOp module) {
  if (CompileOptions::of(module).lossScale().isOn())
    return success();
  WalkResult found = module.walk([](LossScaleOp op) {
    op.emitOpError("breaks rule 'scale': it scales the gradients, but "
                   "'--loss-scale' is none");
    return WalkResult::interrupt();
  });
  return failure(found.wasInterrupted());
}

// OptimizerOp's own verifier refuses frozen layouts, so only missing and
// repeated optimizers are left to find.
LogicalResult verifyUpdate(ModuleOp module, Block &update) {
  FailureOr<ClipScaleOp> clip = verifyNorm(module, update);
  if (failed(clip) || failed(verifyScale(module)))
    return failure();
  SymbolTable symbols(module);
  OptimizerInputs inputs(update, *clip, symbols);
  DenseMap<StringAttr, OptimizerOp> optimizers;
  for (auto optimizer : update.getOps<OptimizerOp>()) {
    auto [first, isNew] =
        optimizers.try_emplace(optimizer.getLayoutAttr().getAttr(), optimizer);
    if (!isNew) {
      InFlightDiagnostic diag =
          optimizer.emitOpError("breaks rule 'optimizer': it is the second one "
                                "of layout '")
          << optimizer.getLayout() << "'";
      diag.attachNote(first->second.getLoc()) << "the first is here";
      return diag;
    }
    if (optimizer.getScale() != clip->getScale()) {
      InFlightDiagnostic diag = optimizer.emitOpError(
          "breaks rule 'optimizer': its scale is not that of the norm");
      diag.attachNote(clip->getLoc()) << "the scale is computed here";
      return diag;
    }
    if (failed(inputs.verify(optimizer)))
      return failure();
  }
  if (failed(inputs.verifyUsed()))
    return failure();
  for (auto layout : module.getOps<LayoutOp>())
    if (layout.getTrainable() && !optimizers.contains(layout.getSymNameAttr()))
      return layout.emitOpError("breaks rule 'optimizer': layout '")
             << layout.getSymName() << "' has no 'fsdp.optimizer' in '@update'";
  return success();
}

} // namespace fsdpc::fsdp
