// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// verify-units: checks what closes the phase `units`, whoever assigned the
// units. All later phases group by units: a kernel, a flat layout, a gather and
// a reduction are each of one unit. An op or a weight in the wrong unit would
// only show as memory that is kept too long, or not at all.
#include "compiler/dialects/nn/Rearrangements.h"
#include "passes/units/Passes.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Rules.h"
#include "compiler/dialects/fsdp/SymbolEffects.h"
#include "compiler/options/Options.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_VERIFYUNITS
#include "passes/units/Passes.h.inc"

using namespace mlir;
using fsdp::broken;
using fsdp::FSDPDialect;

namespace {

// One scan in program order: loads come before what reads them, so a weight is
// known when its readers are visited.
class Verifier {
public:
  Verifier(ModuleOp module, Block &body)
      : module(module), symbols(module), body(body),
        handsOver(!fsdp::CompileOptions::of(module).gradients.empty()) {}

  LogicalResult run() {
    // Any layout is one too many.
    for (auto layout : module.getOps<fsdp::LayoutOp>())
      return broken(layout, "forward")
             << "there are no layouts before the phase 'shard'";
    for (Operation &op : body.without_terminator())
      if (failed(verifyUnit(&op)) || failed(verifyForward(&op)) ||
          failed(verifyWeights(&op)))
        return failure();
    return verifyParameters();
  }

private:
  // The op belongs to a unit that exists.
  LogicalResult verifyUnit(Operation *op) {
    auto name = op->getAttrOfType<FlatSymbolRefAttr>(FSDPDialect::kUnitAttr);
    if (!name)
      return broken(op, "unit") << "it has no '" << FSDPDialect::kUnitAttr
                                << "'; give it the unit of the op before it";
    if (!symbols.lookup<fsdp::UnitOp>(name.getAttr()))
      return broken(op, "unit") << "it belongs to '" << name.getValue()
                                << "', which is not an fsdp.unit";
    return success();
  }

  // The op is of the forward: it is not marked as backward, and touches no
  // gradient and no layout. With --gradient the model hands over its own.
  LogicalResult verifyForward(Operation *op) {
    if (op->hasAttr(FSDPDialect::kBackwardAttr))
      return broken(op, "forward")
             << "it has '" << FSDPDialect::kBackwardAttr
             << "', but the backward is written by the phase 'grad'";
    if (handsOver && isa<fsdp::GradientOp>(op))
      return success();
    auto effects = fsdp::effectsOf(op);
    if (failed(effects))
      return failure();
    // The memory of layouts and optimizers comes into being in later phases.
    // The check is on effects, so it holds for ops that are yet to be written.
    for (const MemoryEffects::EffectInstance &effect : *effects)
      for (SideEffects::Resource *resource :
           {static_cast<SideEffects::Resource *>(fsdp::ParameterMemory::get()),
            static_cast<SideEffects::Resource *>(fsdp::GradientMemory::get()),
            static_cast<SideEffects::Resource *>(fsdp::OptimizerMemory::get())})
        if (fsdp::isSame(effect.getResource(), resource))
          return broken(op, "forward")
                 << "it touches the " << resource->getName()
                 << ", which exist from the phase 'grad' on";
    return success();
  }

  // The op belongs to the unit of the weights that it reads. Records weights,
  // and the first load of each parameter.
  LogicalResult verifyWeights(Operation *op) {
    // A weight that is read in several units must be loaded in each. Later the
    // loads become views of gathered buffers, which live within one unit.
    for (Value operand : op->getOperands()) {
      fsdp::LoadOp load = weights.lookup(operand);
      Operation *source = operand.getDefiningOp();
      if (!load || unitOf(source) == unitOf(op))
        continue;
      InFlightDiagnostic diag =
          broken(op, "weight-of-unit")
          << "it belongs to unit '" << unitOf(op).getValue() << "' and reads '"
          << load.getSymbol() << "' in unit '" << unitOf(source).getValue()
          << "'; each unit has loads of its own";
      diag.attachNote(source->getLoc()) << "the weight is loaded here";
      return diag;
    }
    if (auto load = dyn_cast<fsdp::LoadOp>(op)) {
      if (symbols.lookup<fsdp::ParameterOp>(load.getSymbol())) {
        weights[load.getResult()] = load;
        firstLoads.try_emplace(load.getSymbolAttr().getAttr(), load);
      }
    } else if (nn::isRearrangement(op)) {
      // The rearranged weight is still the weight, and its readers are checked
      // as the readers of the load are.
      if (fsdp::LoadOp load = weights.lookup(op->getOperand(0)))
        weights[op->getResult(0)] = load;
    }
    return success();
  }

  // Each parameter has one owner, the unit that reads it first, and something
  // is trained.
  LogicalResult verifyParameters() {
    bool any = false, trainable = false;
    for (auto parameter : module.getOps<fsdp::ParameterOp>()) {
      any = true;
      trainable |= parameter.getTrainable();
      if (!parameter.getUnitAttr())
        return broken(parameter, "owner")
               << "parameter '" << parameter.getSymName()
               << "' belongs to no unit";
      fsdp::LoadOp load = firstLoads.lookup(parameter.getSymNameAttr());
      // A parameter that nothing loads has no reader to own it; form-units puts
      // it into the unit 'unused'.
      if (!load || unitOf(load) == parameter.getUnitAttr())
        continue;
      InFlightDiagnostic diag = broken(parameter, "owner")
                                << "parameter '" << parameter.getSymName()
                                << "' belongs to unit '" << *parameter.getUnit()
                                << "', but unit '" << unitOf(load).getValue()
                                << "' reads it first";
      diag.attachNote(load.getLoc()) << "the first load is here";
      return diag;
    }
    if (any && !trainable)
      return emitError(module.getLoc())
             << "breaks rule 'trainable': no parameter is trainable; loosen "
                "--frozen or --trainable";
    return success();
  }

  static FlatSymbolRefAttr unitOf(Operation *op) {
    return op->getAttrOfType<FlatSymbolRefAttr>(FSDPDialect::kUnitAttr);
  }

  ModuleOp module;
  SymbolTable symbols;
  Block &body;
  bool handsOver; // gradients of its own
  // The parameter that a value is, or is a rearrangement of.
  DenseMap<Value, fsdp::LoadOp> weights;
  DenseMap<StringAttr, fsdp::LoadOp> firstLoads;
};

struct VerifyUnits : impl::VerifyUnitsBase<VerifyUnits> {
  void runOnOperation() override {
    auto function = fsdp::getMicrobatch(getOperation());
    if (failed(function) ||
        failed(Verifier(getOperation(), function->front()).run()))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
} // namespace fsdpc::passes
