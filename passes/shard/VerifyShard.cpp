// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// verify-shard: checks what closes the phase `shard`, whoever laid out the
// parameters. A layout is the only thing that later phases know of parameters:
// a parameter in none of them is not trained, one in two of them is trained
// twice, and a gradient that misses its layout is lost without a trace. The
// rules of the layouts themselves are in LayoutRules.cpp.
#include "passes/shard/Passes.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/ModuleManifest.h"
#include "compiler/dialects/fsdp/Rules.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/dialects/fsdp/SymbolEffects.h"
#include "compiler/dialects/fsdp/UpdateRules.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/options/Options.h"
#include "passes/shard/LayoutRules.h"
#include "passes/shard/ReduceHooks.h"
#include "runtime/abi/memory_plan.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_VERIFYSHARD
#include "passes/shard/Passes.h.inc"

using namespace mlir;
using fsdp::broken;
using fsdp::FSDPDialect;
using fsdp::nameOrNone;
using fsdp::refuseWithNote;

namespace {

// Returns null if the op belongs to no unit.
FlatSymbolRefAttr unitOf(Operation *op) {
  return op->getAttrOfType<FlatSymbolRefAttr>(FSDPDialect::kUnitAttr);
}

// The memory of parameters, gradients or optimizer states, whatever the layout.
bool touchesLayouts(ArrayRef<MemoryEffects::EffectInstance> effects) {
  return llvm::any_of(effects, [](const MemoryEffects::EffectInstance &effect) {
    SideEffects::Resource *resource = effect.getResource();
    return fsdp::isSame(resource, fsdp::ParameterMemory::get()) ||
           fsdp::isSame(resource, fsdp::GradientMemory::get()) ||
           fsdp::isSame(resource, fsdp::OptimizerMemory::get());
  });
}

// ---- @microbatch and @evaluate ----

// One scan over @microbatch, or over @evaluate, which has no gradients. With
// `outlined` the ops are in kernels, so operand types are no longer checked.
class Verifier {
public:
  Verifier(ModuleOp module, SymbolTable &symbols, func::FuncOp function,
           bool outlined)
      : module(module), options(fsdp::CompileOptions::of(module)),
        symbols(symbols), body(function.front()),
        evaluates(function.getSymName() == fsdp::kEvaluate),
        outlined(outlined) {}

  LogicalResult run() {
    for (Operation &op : body.without_terminator())
      if (failed(verifyUnit(&op)) || failed(verifyWeight(&op)) ||
          failed(verifyStage(&op)) ||
          (!outlined && failed(verifyPrecision(&op))))
        return failure();
    if (evaluates)
      return success();
    for (auto layout : module.getOps<fsdp::LayoutOp>())
      if (layout.getTrainable() && !reduces.contains(layout.getSymNameAttr()))
        return broken(layout, "gradient")
               << "no gradient reaches layout '" << layout.getSymName()
               << "'; its 'fsdp.reduce' is missing";
    return success();
  }

private:
  LogicalResult verifyUnit(Operation *op) {
    FlatSymbolRefAttr name = unitOf(op);
    if (name && symbols.lookup<fsdp::UnitOp>(name.getAttr()))
      return success();
    return broken(op, "unit") << "it belongs to unit '" << nameOrNone(name)
                              << "', which does not exist";
  }

  // Weights are views of flat buffers, each in the unit that reads it.
  LogicalResult verifyWeight(Operation *op) {
    if (auto load = dyn_cast<fsdp::LoadOp>(op))
      if (symbols.lookup<fsdp::ParameterOp>(load.getSymbol()))
        return broken(op, "weight")
               << "it loads parameter '" << load.getSymbol()
               << "' past its layout; take an "
                  "'fsdp.view' of the flat buffer";
    auto view = dyn_cast<fsdp::ViewOp>(op);
    if (view && !fsdp::getLayoutOf(view.getFlat()))
      return broken(op, "weight")
             << "it views '" << view.getMember()
             << "' in a value that is not the flat buffer of a layout";
    if (!view && !isa<fsdp::FlatOp>(op))
      return success();
    // A view in another unit would keep the gathered buffer alive over the end
    // of its unit.
    for (Operation *user : op->getUsers())
      if (unitOf(user) != unitOf(op))
        return refuseWithNote(
            broken(op, "weight")
                << "it belongs to unit '" << nameOrNone(unitOf(op))
                << "' and is read in unit '" << nameOrNone(unitOf(user)) << "'",
            user, "read here");
    return success();
  }

  // The only ops that touch the memory of layouts hand over gradients. The
  // phase `collectives` inserts the others.
  LogicalResult verifyStage(Operation *op) {
    auto effects = fsdp::effectsOf(op);
    if (failed(effects))
      return failure();
    if (!touchesLayouts(*effects))
      return success();
    auto reduce = dyn_cast<fsdp::ReduceOp>(op);
    if (!reduce)
      return broken(op, "stage") << "it touches the memory of layouts, which "
                                    "is up to the phase 'collectives'";
    return verifyReduce(reduce);
  }

  // Each trainable layout's gradients are packed in its unit's backward, and
  // handed over once.
  LogicalResult verifyReduce(fsdp::ReduceOp reduce) {
    if (evaluates)
      return broken(reduce, "gradient")
             << "it hands over a gradient, but '@evaluate' has no backward";
    auto [first, isNew] =
        reduces.try_emplace(reduce.getLayoutAttr().getAttr(), reduce);
    if (!isNew)
      return refuseWithNote(broken(reduce, "gradient")
                                << "the gradient of layout '"
                                << reduce.getLayout()
                                << "' is handed over twice",
                            first->second, "the first time is here");
    auto pack = reduce.getGradient().getDefiningOp<fsdp::PackOp>();
    if (!pack || pack.getLayoutAttr() != reduce.getLayoutAttr())
      return broken(reduce, "gradient")
             << "its gradient is not an 'fsdp.pack' of layout '"
             << reduce.getLayout() << "'";
    auto layout = symbols.lookup<fsdp::LayoutOp>(reduce.getLayout());
    for (Operation *op : {pack.getOperation(), reduce.getOperation()})
      if (unitOf(op) != layout.getUnitAttr() ||
          !op->hasAttr(FSDPDialect::kBackwardAttr))
        return refuseWithNote(broken(op, "gradient")
                                  << "it is not of the backward of unit '"
                                  << layout.getUnit() << "'",
                              layout, "the layout");
    // Kernels have taken up the ops of hooks, whose attributes are gone.
    return outlined ? success() : verifyHooks(options, pack, hooks);
  }

  // An op computes in the type of its operands: all of them have one floating
  // type, and so have its results, apart from statistics.
  static LogicalResult verifyPrecision(Operation *op) {
    if (isa<nn::CastOp>(op))
      return success();
    // Types that an op keeps on purpose (f32 statistics as operands) take no
    // part in the comparison.
    auto precision = dyn_cast<nn::PrecisionOpInterface>(op);
    Type computed;
    for (Value operand : op->getOperands()) {
      Type element = floatOf(operand);
      if (!element || (precision && precision.keepsType(operand)))
        continue;
      if (computed && computed != element)
        return broken(op, "precision")
               << "it has operands of " << computed << " and " << element
               << "; put an 'nn.cast' between";
      computed = element;
    }
    for (OpResult result : op->getResults()) {
      Type element = floatOf(result);
      if (element && computed && element != computed &&
          !(precision && precision.isStatistic(result)))
        return broken(op, "precision")
               << "it computes in " << computed << ", and its result "
               << result.getResultNumber() << " is " << element;
    }
    return success();
  }

  // Returns the value's float type, or null if it is f64 or an integer.
  static Type floatOf(Value value) {
    Type element = getElementTypeOrSelf(value.getType());
    return element.isF32() || nn::isHalf(element) ? element : Type();
  }

  ModuleOp module;
  fsdp::CompileOptions options;
  SymbolTable &symbols;
  Block &body;
  bool evaluates;
  bool outlined;
  DenseMap<StringAttr, fsdp::ReduceOp> reduces;
  HookFinder hooks;
};

// ---- @update ----

// Refuses ops of @update, other than those of optimizers, that write the memory
// of layouts. Those are collectives, which the phase `collectives` inserts.
LogicalResult verifyUpdateStage(Block &update) {
  for (Operation &op : update) {
    // Both ops may write: an optimizer its parameters and states, and
    // update_factors its buffers of factors.
    auto layouts = dyn_cast<fsdp::LayoutUserOpInterface>(op);
    if (!layouts || isa<fsdp::OptimizerOp, fsdp::UpdateFactorsOp>(op))
      continue;
    auto effects = fsdp::effectsOf(&op);
    if (failed(effects))
      return failure();
    auto ofLayouts = fsdp::symbolEffectsOf(&op, *effects);
    if (failed(ofLayouts))
      return failure();
    if (llvm::any_of(*ofLayouts, [](const fsdp::SymbolEffect &effect) {
          return effect.write;
        }))
      return broken(&op, "stage")
             << "it writes the memory of layouts, which is up to the phase "
                "'collectives'";
  }
  return success();
}

struct VerifyShard : impl::VerifyShardBase<VerifyShard> {
  using VerifyShardBase::VerifyShardBase;

  void runOnOperation() override {
    if (failed(verify(getOperation(), outlined)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }

  static LogicalResult verify(ModuleOp module, bool outlined) {
    // Layouts before functions: the checks of a function look up layouts and
    // rely on them.
    SymbolTable symbols(module);
    auto forwards = fsdp::getForwards(module);
    auto update = fsdp::getEntry(module, FSDPDialect::kUpdate);
    if (failed(forwards) || failed(update) ||
        failed(verifyLayouts(module, symbols)) ||
        failed(fsdp::verifyReplication(module, symbols)))
      return failure();
    for (func::FuncOp function : *forwards)
      if (failed(Verifier(module, symbols, function, outlined).run()))
        return failure();
    if (failed(verifyUpdateStage(update->front())))
      return failure();
    return fsdp::verifyUpdate(module, update->front());
  }
};

} // namespace
} // namespace fsdpc::passes
