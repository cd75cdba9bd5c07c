// Recomputes activations in the backward instead of keeping them. By default
// only cheap ones are (selective activation recomputation, Korthikanti et al.,
// 2022). Optionally it is everything inside a unit (activation checkpointing,
// Chen et al., 2016), for all units or for some, which the user names or a
// memory limit asks for. RecomputeChooser says what is chosen; this pass clones
// it.
#include "passes/grad/Passes.h"
#include "passes/grad/RecomputeChooser.h"

#include "compiler/dialects/fsdp/Options.h"
#include "compiler/dialects/nn/Build.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace fsdpc::passes {
#define GEN_PASS_DEF_RECOMPUTE
#include "passes/grad/Passes.h.inc"

namespace {

// Returns the units of which everything is computed again.
FailureOr<DenseSet<Attribute>> wholeUnits(ModuleOp module,
                                          fsdp::RecomputeLevel level) {
  if (level == fsdp::RecomputeLevel::Units)
    return unitsInScope(module);
  DenseSet<Attribute> units;
  for (auto unit : module.getOps<fsdp::UnitOp>())
    if (level == fsdp::RecomputeLevel::Auto && unit.getRecompute())
      units.insert(FlatSymbolRefAttr::get(unit));
  return units;
}

struct Recompute : impl::RecomputeBase<Recompute> {
  void runOnOperation() override {
    FunctionOpInterface function = lookupMicrobatch(getOperation());
    if (!function)
      return signalPassFailure();
    fsdp::CompileOptions options = fsdp::CompileOptions::of(getOperation());
    if (options.recompute == fsdp::RecomputeLevel::None)
      return;
    Block &body = function.getFunctionBody().front();
    // Whole units first: what they keep and free changes which cheap ops pay.
    RecomputeChooser chooser(body);
    FailureOr<DenseSet<Attribute>> units =
        wholeUnits(getOperation(), options.recompute);
    if (failed(units))
      return signalPassFailure();
    chooser.chooseUnits(*units);
    // Units that --recompute-scope leaves out are treated as by default.
    if (options.recompute != fsdp::RecomputeLevel::Units ||
        !options.recomputeScope.texts.empty())
      chooser.chooseCheap();
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
  }
};

} // namespace
} // namespace fsdpc::passes
