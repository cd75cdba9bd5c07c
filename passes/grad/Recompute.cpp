// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recomputes activations in the backward instead of keeping them. By default
// only cheap ones are (selective activation recomputation, Korthikanti et al.,
// 2022). Optionally it is everything inside a unit (activation checkpointing,
// Chen et al., 2016), for all units or for some; or the ops that a memory limit
// asks for. RecomputeChooser says what is chosen; this pass clones it.
#include "passes/grad/Passes.h"
#include "passes/grad/RecomputeChooser.h"
#include "passes/grad/RecomputeOptions.h"

#include "compiler/dialects/fsdp/Machine.h"
#include "compiler/dialects/fsdp/Recomputed.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/options/Options.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

#include <cmath>

using namespace mlir;

namespace fsdpc::passes {
#define GEN_PASS_DEF_RECOMPUTE
#include "passes/grad/Passes.h.inc"

namespace {

// Returns the inner ops of the units.
SmallVector<Operation *> innerOps(Block &body, const RecomputeChooser &chooser,
                                  const DenseSet<Attribute> &units) {
  SmallVector<Operation *> inner;
  for (Operation &op : body)
    if (units.contains(unitOf(&op)) && chooser.isInner(&op))
      inner.push_back(&op);
  return inner;
}

// Returns the ops that the search for a memory limit has marked, or a user who
// edited a dump.
FailureOr<SmallVector<Operation *>> markedOps(Block &body,
                                              const RecomputeChooser &chooser) {
  SmallVector<Operation *> marked;
  for (Operation &op : body) {
    if (!op.hasAttr(fsdp::kRecomputeAttr))
      continue;
    if (!isRepeatable(chooser, &op))
      return op.emitOpError("has '")
             << fsdp::kRecomputeAttr
             << "', but the backward cannot compute it again: only ops of the "
                "forward before its last product can be, if their own unit "
                "alone reads them; remove the attribute";
    marked.push_back(&op);
  }
  return marked;
}

// A mark that nothing reads would look as if it had an effect.
LogicalResult refuseMarks(Block &body, fsdp::RecomputeLevel level) {
  for (Operation &op : body)
    if (op.hasAttr(fsdp::kRecomputeAttr))
      return op.emitOpError("has '")
             << fsdp::kRecomputeAttr << "', which has no effect with "
             << "'--recompute=" << fsdp::nameOf(level)
             << "'; remove the attribute, or use '--recompute=auto'";
  return success();
}

// Writes `fsdp.recomputed` on the units with marked ops.
void record(ModuleOp module, Block &body, const RecomputeChooser &chooser,
            ArrayRef<Operation *> marked) {
  struct Sum {
    fsdp::Recomputed counts;
    double us = 0;
  };
  DenseMap<Attribute, Sum> sums;
  schedule::Machine machine = fsdp::machineOf(module);
  ElementType type = fsdp::CompileOptions::of(module).paramType;
  for (Operation *op : marked) {
    Sum &sum = sums[unitOf(op)];
    ++sum.counts.ops;
    sum.us += repeatUs(op, machine, type);
  }
  // Cheap ones that were chosen besides are no choice of the limit's.
  for (Operation &op : body)
    if (op.hasAttr(fsdp::kRecomputeAttr) ||
        (isRepeatable(chooser, &op) && !chooser.choice().contains(&op)))
      ++sums[unitOf(&op)].counts.of;
  for (auto unit : module.getOps<fsdp::UnitOp>())
    if (Sum sum = sums.lookup(FlatSymbolRefAttr::get(unit));
        sum.counts.ops > 0) {
      sum.counts.us = std::llround(sum.us);
      fsdp::setRecomputed(unit, sum.counts);
    }
}

struct Recompute : impl::RecomputeBase<Recompute> {
  // Adds to the chooser what the options name.
  LogicalResult choose(RecomputeChooser &chooser, Block &body,
                       const fsdp::CompileOptions &options) {
    // Named ops come first: the values that they keep and free change which
    // cheap ops pay.
    SmallVector<Operation *> named;
    if (options.recompute == fsdp::RecomputeLevel::Units) {
      FailureOr<DenseSet<Attribute>> units = unitsInScope(getOperation());
      if (failed(units))
        return failure();
      named = innerOps(body, chooser, *units);
    } else if (options.recompute == fsdp::RecomputeLevel::Auto) {
      FailureOr<SmallVector<Operation *>> marked = markedOps(body, chooser);
      if (failed(marked))
        return failure();
      named = std::move(*marked);
    }
    chooser.choose(named);
    // Units that --recompute-scope leaves out are treated as by default.
    if (options.recompute != fsdp::RecomputeLevel::Units ||
        !options.recomputeScope.texts.empty())
      chooser.chooseCheap();
    if (options.recompute == fsdp::RecomputeLevel::Auto)
      record(getOperation(), body, chooser, named);
    return success();
  }

  void runOnOperation() override {
    FunctionOpInterface function = lookupMicrobatch(getOperation());
    if (!function)
      return signalPassFailure();
    fsdp::CompileOptions options = fsdp::CompileOptions::of(getOperation());
    Block &body = function.getFunctionBody().front();
    if (options.recompute != fsdp::RecomputeLevel::Auto &&
        failed(refuseMarks(body, options.recompute)))
      return signalPassFailure();
    if (options.recompute == fsdp::RecomputeLevel::None)
      return markAllAnalysesPreserved();
    RecomputeChooser chooser(body);
    if (failed(choose(chooser, body, options)))
      return signalPassFailure();
    const llvm::SetVector<Operation *> &chosen = chooser.choice();
    SmallVector<Operation *> backward;
    for (Operation &op : body)
      if (isBackward(&op))
        backward.push_back(&op);
    // One map for all: an op is cloned once, before its first reader.
    IRMapping clones;
    auto isCloned = [&](Value value) {
      Operation *storage = storageOf(value).getDefiningOp();
      return storage && chosen.contains(storage);
    };
    // Forward ops stay where they are; only readers in the backward turn to the
    // clones.
    for (Operation *op : backward)
      for (OpOperand &operand : op->getOpOperands())
        operand.set(cloneChain(operand.get(), op, isCloned, clones, numClones));
    if (chosen.empty())
      markAllAnalysesPreserved();
  }
};

} // namespace
} // namespace fsdpc::passes
