// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks the invariants that close the phase `grad`. The one that saves most
// memory: no gathered weight stays alive from the forward to the backward.
#include "passes/grad/Passes.h"
#include "passes/grad/WeightDerived.h"

using namespace mlir;

namespace fsdpc::passes {
#define GEN_PASS_DEF_VERIFYGRAD
#include "passes/grad/Passes.h.inc"

namespace {

/// Refuses a saved value that keeps a weight of the user's unit alive, and a
/// forward op that depends on the backward. A value derived from weights of
/// another unit may be saved, since recomputing it would gather that unit
/// again.
LogicalResult verifyOperands(Operation *op, const Origins &origins) {
  for (Value operand : op->getOperands()) {
    Operation *source = operand.getDefiningOp();
    if (!source || isBackward(source) == isBackward(op))
      continue;
    if (isBackward(source)) {
      InFlightDiagnostic diag = op->emitOpError(
          "belongs to the forward, but uses a value of the backward");
      diag.attachNote(source->getLoc())
          << "computed by '" << source->getName() << "'";
      return diag;
    }
    if (!origins.isWeight(operand))
      continue;
    if (origins.isWeightSource(source) || unitOf(source) == unitOf(op)) {
      InFlightDiagnostic diag =
          op->emitOpError("belongs to the backward, but uses a value of the "
                          "forward that depends only on weights; run "
                          "'rematerialise-weights' or recompute it");
      diag.attachNote(source->getLoc())
          << "computed by '" << source->getName() << "'";
      return diag;
    }
  }
  return success();
}

// Checks that exactly the trainable parameters have a gradient, and only one.
LogicalResult verifyGradients(ModuleOp module, Block &body) {
  // The first gradient of each parameter, for the note of a second one.
  DenseMap<StringAttr, fsdp::GradientOp> gradients;
  for (auto gradient : body.getOps<fsdp::GradientOp>()) {
    auto [first, isNew] =
        gradients.try_emplace(gradient.getParameterAttr().getAttr(), gradient);
    if (isNew)
      continue;
    InFlightDiagnostic diag =
        gradient.emitOpError("is the second gradient of parameter '")
        << gradient.getParameter() << "'";
    diag.attachNote(first->second.getLoc()) << "first gradient is here";
    return diag;
  }
  // Both ways round: a gradient of a frozen parameter would be reduced for
  // nothing.
  for (auto parameter : module.getOps<fsdp::ParameterOp>())
    if (parameter.getTrainable() !=
        gradients.contains(parameter.getSymNameAttr()))
      return parameter.emitOpError("'")
             << parameter.getSymName() << "' is "
             << (parameter.getTrainable() ? "trainable, but has no gradient"
                                          : "frozen, but has a gradient");
  return success();
}

struct VerifyGrad : impl::VerifyGradBase<VerifyGrad> {
  void runOnOperation() override {
    FunctionOpInterface function = lookupMicrobatch(getOperation());
    if (!function)
      return signalPassFailure();
    Block &body = function.getFunctionBody().front();
    Origins origins(body);
    for (Operation &op : body.without_terminator())
      if (failed(verifyOperands(&op, origins)))
        return signalPassFailure();
    if (failed(verifyGradients(getOperation(), body)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
} // namespace fsdpc::passes
