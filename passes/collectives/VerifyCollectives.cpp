// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// verify-collectives: checks what closes the phase `collectives`, whoever
// placed the collectives. A program of this phase is synchronous and correct in
// program order, so each rule is about order, counts and lifetimes in one
// block; one scan per rule keeps it linear. Scheduling relies on all of them,
// since it only moves starts and waits apart. With `scheduled` the pass checks
// what still holds then: what is gathered, reduced and updated, and how often.
// How long gathered buffers live, in whose segments, is the business of
// verify-schedule there. This file has the scan over @microbatch and @evaluate.
#include "passes/collectives/CollectiveRules.h"
#include "passes/collectives/GatherLives.h"
#include "passes/collectives/Passes.h"
#include "passes/collectives/Segments.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Rules.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/dialects/fsdp/SymbolEffects.h"
#include "compiler/dialects/fsdp/UpdateRules.h"
#include "compiler/options/Options.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_VERIFYCOLLECTIVES
#include "passes/collectives/Passes.h.inc"

using namespace mlir;
using fsdp::broken;
using fsdp::FSDPDialect;
using fsdp::nameOrNone;
using fsdp::refuseWithNote;

bool writes(ArrayRef<fsdp::SymbolEffect> effects,
            SideEffects::Resource *resource) {
  return llvm::any_of(effects, [&](const fsdp::SymbolEffect &effect) {
    return effect.write && fsdp::isSame(effect.resource, resource);
  });
}

// Ranks must meet at the same collectives, so none stands in a region, which
// ranks may run differently. An entry function has one block.
LogicalResult verifySymmetry(Operation *op) {
  for (Region &region : op->getRegions()) {
    WalkResult result = region.walk([](Operation *nested) {
      bool communicates = isa<fsdp::FSDPDialect>(nested->getDialect()) &&
                          !isMemoryEffectFree(nested);
      return communicates ? WalkResult(broken(nested, "symmetric")
                                       << "it stands in a region, which ranks "
                                          "may run differently")
                          : WalkResult::advance();
    });
    if (result.wasInterrupted())
      return failure();
  }
  return success();
}

namespace {

bool isBackward(Operation *op) {
  return op->hasAttr(FSDPDialect::kBackwardAttr);
}

StringRef direction(bool backward) { return backward ? "backward" : "forward"; }

// One scan over @microbatch, or over @evaluate, which changes nothing. Its
// state is the open segment and what has been reduced or updated so far, so
// each rule sees an op once.
class Verifier {
public:
  Verifier(ModuleOp module, const SymbolTable &symbols,
           const fsdp::CompileOptions &options, func::FuncOp function,
           bool scheduled)
      : module(module), symbols(symbols), options(options),
        body(function.front()), lives(body),
        evaluates(function.getSymName() == fsdp::kEvaluate),
        scheduled(scheduled), reductions(symbols, options) {}

  LogicalResult run() {
    // The stage comes first: the other rules assume that the ops of this phase
    // are the only ones.
    for (Operation &op : body.without_terminator()) {
      if (failed(verifyStage(&op)) || failed(verifyUnits(&op)) ||
          failed(verifySymmetry(&op)) || failed(verifyEffects(&op)) ||
          failed(verifySecondary(&op)))
        return failure();
      if (!scheduled &&
          (failed(verifySegment(&op)) || failed(lives.verify(&op))))
        return failure();
    }
    if (segment)
      return broken(segment, "segment") << "no 'fsdp.exit' ends it";
    if (evaluates)
      return success();
    for (auto layout : module.getOps<fsdp::LayoutOp>())
      if (layout.getSecondary() && !kept.contains(layout.getSymNameAttr()))
        return broken(layout, "secondary")
               << "no gather of '@microbatch' keeps the secondary shard of "
                  "layout '"
               << layout.getSymName() << "'";
    return reductions.verifyComplete(module);
  }

private:
  // Every layout op is a collective of this phase: neither still open, nor
  // split already. From the phase `schedule` on all are split.
  LogicalResult verifyStage(Operation *op) {
    if (isa<fsdp::FlatOp, fsdp::ReduceOp>(op))
      return broken(op, "stage") << "it says nothing about when the ranks "
                                    "communicate; run materialize-collectives";
    if (!scheduled &&
        llvm::any_of(op->getResultTypes(), llvm::IsaPred<fsdp::TokenType>))
      return broken(op, "stage")
             << "collectives are split by the phase 'schedule'";
    // A sharded layout is read through a gather, a replicated one through
    // fsdp.replicated. Anything else would read memory that this rank does not
    // have, or communicate what it has already.
    bool gathers = fsdp::isTransfer(op, fsdp::TransferKind::Gather);
    auto layouts = dyn_cast<fsdp::LayoutUserOpInterface>(op);
    if (!layouts || (!gathers && !isa<fsdp::ReplicatedOp>(op)))
      return success();
    for (FlatSymbolRefAttr name : layouts.getLayoutRefs()) {
      auto layout = symbols.lookup<fsdp::LayoutOp>(name.getAttr());
      if (fsdp::keepsWhole(layout, "compute") != gathers)
        continue;
      return refuseWithNote(
          broken(op, "replicated")
              << (gathers ? "every rank keeps layout '" : "layout '")
              << name.getValue()
              << (gathers ? "', so nothing is gathered"
                          : "' is sharded, so it is gathered"),
          layout, "the layout");
    }
    return success();
  }

  // Marks alternate, and an op that reads weights is in a segment of its unit
  // and direction. Segments do not nest.
  LogicalResult verifySegment(Operation *op) {
    if (auto enter = dyn_cast<fsdp::EnterOp>(op)) {
      if (segment)
        return refuseWithNote(broken(enter, "segment")
                                  << "the segment of unit '"
                                  << segment.getUnit() << "' has not ended",
                              segment, "it begins here");
      segment = enter;
    } else if (auto exit = dyn_cast<fsdp::ExitOp>(op)) {
      if (!segment)
        return broken(exit, "segment")
               << "no segment of unit '" << exit.getUnit() << "' has begun";
      if (segment.getUnitAttr() != exit.getUnitAttr() ||
          segment.getBackward() != exit.getBackward())
        return refuseWithNote(
            broken(exit, "segment")
                << "it ends a " << direction(exit.getBackward())
                << " segment of unit '" << exit.getUnit() << "', but a "
                << direction(segment.getBackward()) << " one of unit '"
                << segment.getUnit() << "' has begun",
            segment, "it begins here");
      segment = nullptr;
    } else if (readsWeights(op) &&
               (!segment || segment.getUnitAttr() != getUnit(op) ||
                segment.getBackward() != isBackward(op))) {
      InFlightDiagnostic diag =
          broken(op, "segment")
          << "it reads weights and is in no " << direction(isBackward(op))
          << " segment of its unit '" << nameOrNone(getUnit(op)) << "'";
      if (segment)
        diag.attachNote(segment.getLoc()) << "the segment around it";
      return diag;
    }
    return success();
  }

  // A view of a weight belongs to the unit of the ops that read it.
  LogicalResult verifyUnits(Operation *op) {
    if (!isWeightAlias(op) || isa<fsdp::LayoutUserOpInterface>(op))
      return success();
    // A view of weights that another unit reads would keep the buffer alive
    // beyond the segment of its unit.
    for (Operation *user : op->getUsers())
      if (getUnit(user) != getUnit(op))
        return refuseWithNote(broken(op, "unit")
                                  << "it belongs to unit '"
                                  << nameOrNone(getUnit(op))
                                  << "' and is read in unit '"
                                  << nameOrNone(getUnit(user)) << "'",
                              user, "read here");
    return success();
  }

  // ---- what ops do to memory behind symbols ----

  LogicalResult verifyEffects(Operation *op) {
    auto effects = fsdp::effectsOf(op);
    if (failed(effects))
      return failure();
    auto ofSymbols = fsdp::symbolEffectsOf(op, *effects);
    if (failed(ofSymbols))
      return failure();
    // The check asks for an op's effects and not for its class, so that a new
    // op that writes gradients or buffers is checked as well.
    if (evaluates && (writes(*ofSymbols, fsdp::ParameterMemory::get()) ||
                      writes(*ofSymbols, fsdp::GradientMemory::get()) ||
                      writes(*ofSymbols, fsdp::OptimizerMemory::get()) ||
                      writes(*ofSymbols, fsdp::BufferMemory::get())))
      return broken(op, "evaluate")
             << "it changes the state of the training, but '@evaluate' must "
                "leave it as it is";
    if (writes(*ofSymbols, fsdp::GradientMemory::get()))
      return reductions.verify(op);
    if (writes(*ofSymbols, fsdp::BufferMemory::get()))
      return verifyStatistics(op, *ofSymbols);
    return success();
  }

  // A secondary shard is of the microbatch in which it was kept: an update has
  // changed the parameters since an earlier one.
  LogicalResult verifySecondary(Operation *op) {
    if (auto gather = dyn_cast<fsdp::AllGatherOp>(op))
      return verifyMarks(gather);
    auto start = dyn_cast<fsdp::AllGatherStartOp>(op);
    return start ? verifyMarks(start) : success();
  }

  template <typename OpTy> LogicalResult verifyMarks(OpTy gather) {
    for (FlatSymbolRefAttr name : gather.getLayoutRefs()) {
      auto layout = symbols.lookup<fsdp::LayoutOp>(name.getAttr());
      if (layout.getSecondary() && !fsdp::mayReshard(layout, options))
        return refuseWithNote(
            broken(gather, "secondary")
                << "layout '" << name.getValue()
                << "' has a secondary shard, but is not gathered from all "
                   "ranks",
            layout, "the layout");
      // One pass in program order, so `kept` holds what earlier gathers have
      // kept.
      if (gather.getKeepSecondary())
        kept.insert(name.getAttr());
      else if (gather.getFromSecondary() && !kept.contains(name.getAttr()))
        return broken(gather, "secondary")
               << "no earlier gather keeps the secondary shard of layout '"
               << name.getValue() << "' that it reads";
    }
    return success();
  }

  // Statistics are of the forward: recomputing must not apply them again.
  LogicalResult verifyStatistics(Operation *op,
                                 ArrayRef<fsdp::SymbolEffect> effects) {
    if (isBackward(op))
      return broken(op, "statistics") << "it updates a buffer in the backward";
    // Recomputing copies ops of the forward into the backward; a second update
    // with the same value would count a batch twice.
    for (const fsdp::SymbolEffect &effect : effects) {
      if (!effect.write || !effect.symbol)
        continue;
      for (Value statistic : op->getOperands()) {
        auto [other, isNew] =
            updates.try_emplace({effect.symbol, statistic}, op);
        if (!isNew)
          return refuseWithNote(
              broken(op, "statistics")
                  << "it updates buffer '"
                  << effect.symbol.getLeafReference().getValue()
                  << "' with the same value again",
              other->second, "the first update is here");
      }
    }
    return success();
  }

  ModuleOp module;
  const SymbolTable &symbols;
  const fsdp::CompileOptions &options;
  Block &body;
  GatherLives lives;
  bool evaluates;
  bool scheduled;
  // The state of the scan.
  fsdp::EnterOp segment;
  DenseSet<StringAttr> kept; // layouts whose secondary shards are kept
  GradientReductions reductions;
  // The first update of each buffer with each value, for the notes of errors.
  DenseMap<std::pair<SymbolRefAttr, Value>, Operation *> updates;
};

struct VerifyCollectives : impl::VerifyCollectivesBase<VerifyCollectives> {
  using VerifyCollectivesBase::VerifyCollectivesBase;

  void runOnOperation() override {
    if (failed(verify(getOperation(), scheduled)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }

  static LogicalResult verify(ModuleOp module, bool scheduled) {
    auto forwards = fsdp::getForwards(module);
    auto update = fsdp::getEntry(module, FSDPDialect::kUpdate);
    fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
    SymbolTable symbols(module);
    if (failed(forwards) || failed(update) ||
        failed(fsdp::verifyReplication(module, symbols)))
      return failure();
    for (func::FuncOp function : *forwards)
      if (failed(Verifier(module, symbols, options, function, scheduled).run()))
        return failure();
    if (failed(fsdp::verifyUpdate(module, update->front())))
      return failure();
    return verifyUpdateCollectives(module, options, update->front());
  }
};

} // namespace
} // namespace fsdpc::passes
