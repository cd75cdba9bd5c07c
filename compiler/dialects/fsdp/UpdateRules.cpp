// Rules of @update and of the layouts that several phases check; see
// UpdateRules.h. They follow from what build-update and shard-parameters write,
// except that rates, decays, the clipping norm and the optimizers' programs may
// be edited.
#include "compiler/dialects/fsdp/UpdateRules.h"

#include "compiler/dialects/fsdp/Compression.h"
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Options.h"
#include "compiler/dialects/fsdp/Strategies.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace fsdpc::fsdp {

// Ranks agree on the option, and members and shards are aligned by it. The
// options are checked for what sends no blocks; a layout may have been edited.
static LogicalResult verifyWire(LayoutOp layout, Strategy strategy,
                                const CompileOptions &options) {
  if ((isOwned(strategy) && options.sendsBlocks()) ||
      (isHybrid(strategy) && options.reducesBlocks()))
    return layout.emitOpError("breaks rule 'wire': layout '")
           << layout.getSymName() << "' is of strategy '" << nameOf(strategy)
           << "', which cannot send blocks of 8 bits (gather-dtype '"
           << nameOf(options.gatherType) << "', reduce-dtype '"
           << nameOf(options.reduceType) << "')";
  BlockType wanted = gatheredBy(strategy, keepsF32(layout), options);
  if (wireOf(layout) == wanted)
    return success();
  return layout.emitOpError("breaks rule 'wire': layout '")
         << layout.getSymName() << "' is gathered as '"
         << nameOf(wireOf(layout)) << "', and strategy '" << nameOf(strategy)
         << "' with gather-dtype '" << nameOf(options.gatherType)
         << "' gathers it as '" << nameOf(wanted) << "'";
}

// Equal sets are enough: the order in `whole` carries no meaning.
LogicalResult verifyReplication(ModuleOp module) {
  CompileOptions options = CompileOptions::of(module);
  for (auto layout : module.getOps<LayoutOp>()) {
    Strategy strategy = strategyOf(layout, options);
    // The options are checked for that; a layout may have been edited.
    if (options.isCuda() && (isHybrid(strategy) || isOwned(strategy)))
      return layout.emitOpError("breaks rule 'replication': strategy '")
             << nameOf(strategy) << "' is not supported with target '"
             << nameOf(options.target) << "'";
    // The attribute is checked against the strategy in every phase, because
    // runtime and memory plan read the attribute alone.
    SmallVector<StringRef> wanted =
        replicatedBy(strategy, options, layout.getTrainable());
    SmallVector<StringRef> found =
        llvm::to_vector(layout.getWhole().getAsValueRange<StringAttr>());
    llvm::sort(wanted);
    llvm::sort(found);
    if (wanted == found) {
      if (failed(verifyWire(layout, strategy, options)) ||
          failed(verifyCompression(layout, strategy, options)))
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

// The sums that an optimizer takes are those of its layout's members, whole:
// every rank has summed its shard, and all ranks' sums have been added up once.
// A rank that updated with other sums than the rest would have other
// parameters, without any error at run time.
static LogicalResult verifySums(OptimizerOp optimizer, ClipScaleOp clip) {
  if (!optimizer.getSums())
    return success();
  auto broken = [&](Operation *op, const Twine &what) {
    InFlightDiagnostic diag = op->emitOpError("breaks rule 'sums': ") << what;
    diag.attachNote(optimizer.getLoc()) << "the optimizer that takes the sums";
    return diag;
  };
  auto reduction = optimizer.getSums().getDefiningOp<AllReduceOp>();
  auto sums = reduction ? reduction.getInput().getDefiningOp<MemberSumsOp>()
                        : MemberSumsOp();
  if (!sums)
    return broken(optimizer, "its sums are not an 'fsdp.all_reduce' of "
                             "'fsdp.member_sums'");
  if (sums.getScale() != clip.getScale())
    return broken(sums, "its scale is not that of the norm");
  std::optional<int64_t> first = sums.getFirstSum(optimizer.getLayoutAttr());
  if (!first)
    return broken(sums, "it leaves out layout '" + optimizer.getLayout() + "'");
  if (*first != static_cast<int64_t>(*optimizer.getFirst()))
    return broken(optimizer, "the sums of its layout begin at " +
                                 Twine(*first) + ", not at " +
                                 Twine(*optimizer.getFirst()));
  if (optimizer.getSumsPerMember() != sums.getSumsPerMember())
    return broken(sums, "it yields " + Twine(sums.getSumsPerMember()) +
                            " sums, and the optimizer takes " +
                            Twine(optimizer.getSumsPerMember()));
  return success();
}

// Follows factors back to the sums of this rank: they are updated once, from
// the sums of all ranks, in the order of the sums. Returns their update.
static FailureOr<UpdateFactorsOp> verifyFactors(Operation *user, Value factors,
                                                ClipScaleOp clip) {
  auto broken = [&](Operation *op, const Twine &what) {
    InFlightDiagnostic diag = op->emitOpError("breaks rule 'factors': ")
                              << what;
    diag.attachNote(user->getLoc()) << "the op that takes the factors";
    return diag;
  };
  auto update = factors.getDefiningOp<UpdateFactorsOp>();
  if (!update)
    return broken(user, "its factors are not an 'fsdp.update_factors'");
  auto reduction = update.getSums().getDefiningOp<AllReduceOp>();
  auto sums = reduction ? reduction.getInput().getDefiningOp<FactorSumsOp>()
                        : FactorSumsOp();
  if (!sums)
    return broken(update, "its sums are not an 'fsdp.all_reduce' of "
                          "'fsdp.factor_sums'");
  if (sums.getLayouts() != update.getLayouts())
    return broken(update, "it does not have the layouts of its sums in their "
                          "order");
  if (sums.getScale() != clip.getScale())
    return broken(sums, "its scale is not that of the norm");
  return update;
}

// The same for an optimizer and the sums that it takes.
static LogicalResult verifyFactors(OptimizerOp optimizer, ClipScaleOp clip) {
  if (!optimizer.getFactors())
    return success();
  auto broken = [&](const Twine &what) {
    return optimizer.emitOpError("breaks rule 'factors': ") << what;
  };
  auto update = verifyFactors(optimizer, optimizer.getFactors(), clip);
  if (failed(update))
    return failure();
  std::optional<int64_t> first =
      update->getFirstFactor(optimizer.getLayoutAttr());
  if (!first)
    return broken("layout '" + optimizer.getLayout() + "' has no factors");
  if (*first != static_cast<int64_t>(*optimizer.getFirstFactor()))
    return broken("the factors of its layout begin at " + Twine(*first) +
                  ", not at " + Twine(*optimizer.getFirstFactor()));
  return success();
}

static LogicalResult verifyFactors(MemberSumsOp sums, ClipScaleOp clip) {
  if (!sums.getFactors())
    return success();
  auto factors = verifyFactors(sums, sums.getFactors(), clip);
  if (failed(factors))
    return failure();
  if (factors->getLayouts() != sums.getLayouts())
    return sums.emitOpError("breaks rule 'factors': it does not have the "
                            "layouts of its factors in their order");
  return success();
}

// Follows the updates of an optimizer back to the momentum. All four ops are of
// its layout, whose owners they agree on.
static LogicalResult verifyUpdates(OptimizerOp optimizer, ClipScaleOp clip) {
  if (!optimizer.getUpdates())
    return success();
  auto broken = [&](Operation *op, const Twine &what) {
    InFlightDiagnostic diag = op->emitOpError("breaks rule 'updates': ")
                              << what;
    diag.attachNote(optimizer.getLoc())
        << "the optimizer that takes the updates";
    return diag;
  };
  auto spread = optimizer.getUpdates().getDefiningOp<SpreadMatricesOp>();
  if (!spread)
    return broken(optimizer, "its updates are not those of an "
                             "'fsdp.spread_matrices'");
  auto orthogonal = spread.getInput().getDefiningOp<OrthogonalizeOp>();
  if (!orthogonal)
    return broken(spread, "it does not take the result of an "
                          "'fsdp.orthogonalize'");
  auto whole = orthogonal.getUpdates().getDefiningOp<CollectMatricesOp>();
  auto part = whole ? whole.getInput().getDefiningOp<MomentumUpdatesOp>()
                    : MomentumUpdatesOp();
  if (!part)
    return broken(orthogonal, "its updates are not 'fsdp.momentum_updates' "
                              "collected by 'fsdp.collect_matrices'");
  StringRef wanted = optimizer.getLayout();
  for (auto [op, layout] :
       {std::pair<Operation *, StringRef>(spread, spread.getLayout()),
        {orthogonal, orthogonal.getLayout()},
        {whole, whole.getLayout()},
        {part, part.getLayout()}})
    if (layout != wanted)
      return broken(op, "it is of layout '" + layout + "', not of '" + wanted +
                            "'");
  if (part.getScale() != clip.getScale())
    return broken(part, "its scale is not that of the norm");
  return success();
}

// The state of a layout is updated once in a step.
static LogicalResult verifyFactorUpdates(Block &update) {
  DenseSet<Attribute> updated;
  for (auto factors : update.getOps<UpdateFactorsOp>())
    for (FlatSymbolRefAttr layout : factors.getLayoutRefs())
      if (!updated.insert(layout).second)
        return factors.emitOpError("breaks rule 'factors': it updates those of "
                                   "layout '")
               << layout.getValue() << "' a second time";
  return success();
}

// Sums that nobody takes, or that are taken twice over the ranks, are refused:
// an edit has left them behind. A layout has one optimizer, so it has its sums
// once.
static LogicalResult verifyMemberSums(Block &update, ClipScaleOp clip) {
  for (auto sums : update.getOps<MemberSumsOp>()) {
    if (failed(verifyFactors(sums, clip)))
      return failure();
    DenseSet<Attribute> wanted;
    auto users = sums.getResult().getUsers();
    if (!llvm::hasSingleElement(users) || !isa<AllReduceOp>(*users.begin()))
      return sums.emitOpError("breaks rule 'sums': its only use is not an "
                              "'fsdp.all_reduce'");
    for (Operation *user : users.begin()->getResult(0).getUsers())
      if (auto optimizer = dyn_cast<OptimizerOp>(user))
        wanted.insert(optimizer.getLayoutAttr());
    for (FlatSymbolRefAttr layout : sums.getLayoutRefs())
      if (!wanted.erase(layout))
        return sums.emitOpError("breaks rule 'sums': no optimizer takes its "
                                "sums of layout '")
               << layout.getValue() << "', or it names the layout twice";
  }
  return success();
}

// OptimizerOp's own verifier refuses frozen layouts, so only missing and
// repeated optimizers are left to find.
LogicalResult verifyUpdate(ModuleOp module, Block &update) {
  FailureOr<ClipScaleOp> clip = verifyNorm(module, update);
  if (failed(clip) || failed(verifyScale(module)))
    return failure();
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
    if (failed(verifySums(optimizer, *clip)) ||
        failed(verifyFactors(optimizer, *clip)) ||
        failed(verifyUpdates(optimizer, *clip)))
      return failure();
  }
  if (failed(verifyMemberSums(update, *clip)) ||
      failed(verifyFactorUpdates(update)))
    return failure();
  for (auto layout : module.getOps<LayoutOp>())
    if (layout.getTrainable() && !optimizers.contains(layout.getSymNameAttr()))
      return layout.emitOpError("breaks rule 'optimizer': layout '")
             << layout.getSymName() << "' has no 'fsdp.optimizer' in '@update'";
  return success();
}

} // namespace fsdpc::fsdp
