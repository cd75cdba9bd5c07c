// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// grad: appends the backward to @microbatch (Differentiator.cpp), or takes the
// gradients that the model's own training gives, and freezes the parameters
// that have none.
#include "passes/grad/Differentiator.h"
#include "passes/grad/GivenGradients.h"
#include "passes/grad/PassOn.h"
#include "passes/grad/Passes.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/options/Options.h"

using namespace mlir;

namespace fsdpc::passes {
#define GEN_PASS_DEF_GRAD
#include "passes/grad/Passes.h.inc"

namespace {

struct Grad : impl::GradBase<Grad> {
  void runOnOperation() override {
    FunctionOpInterface function = lookupMicrobatch(getOperation());
    if (!function)
      return signalPassFailure();
    // The module may come from a dump: a second backward would differentiate
    // the first one.
    SmallVector<fsdp::ReportLossOp> reports;
    for (Operation &op : function.getFunctionBody().front()) {
      if (isBackward(&op)) {
        op.emitOpError("belongs to a backward, but the module must contain "
                       "only a forward");
        return signalPassFailure();
      }
      if (auto report = dyn_cast<fsdp::ReportLossOp>(op))
        reports.push_back(report);
    }
    if (reports.size() != 1) {
      function.emitError("must report exactly one loss, but reports ")
          << reports.size();
      return signalPassFailure();
    }
    Block &body = function.getFunctionBody().front();
    bool isGiven = !body.getOps<fsdp::GradientOp>().empty();
    FailureOr<DenseSet<StringAttr>> trained;
    if (isGiven)
      trained = takeGivenGradients(getOperation(), body);
    else
      trained = differentiate(function, reports.front());
    if (failed(trained))
      return signalPassFailure();
    // They have done their work, and would only keep kernels and composites
    // apart.
    Origins origins(body);
    // What only they have read is the pattern of the backward's clones.
    if (passOnCustomGradients(body, origins))
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
        if (isOpTriviallyDead(&op))
          op.erase();
    for (auto stop :
         llvm::make_early_inc_range(body.getOps<nn::StopGradientOp>())) {
      passOn(stop.getResult(), stop.getInput(), origins);
      stop.erase();
    }
    // Parameters off the path to the loss get no gradient, so they must not
    // count as trainable in later phases.
    for (auto parameter : getOperation().getOps<fsdp::ParameterOp>())
      if (parameter.getTrainable() &&
          !trained->contains(parameter.getSymNameAttr())) {
        parameter.setTrainable(false);
        parameter.emitRemark("parameter '")
            << parameter.getSymName()
            << (isGiven ? "' has no gradient" : "' does not affect the loss")
            << " and is not trained";
      }
    numGradients += trained->size();
  }

  // Returns the names of the parameters that have a gradient.
  FailureOr<DenseSet<StringAttr>> differentiate(FunctionOpInterface function,
                                                fsdp::ReportLossOp report) {
    Differentiator differentiator(function);
    auto options = fsdp::CompileOptions::of(getOperation());
    bool scalesLoss = options.lossScale().isOn();
    if (options.usesF16() && !scalesLoss)
      emitWarning(getOperation().getLoc())
          << "f16 has no numbers below 6e-8, so small gradients become 0 with "
             "'--loss-scale=none'; omit it for a dynamic scale";
    if (failed(differentiator.run(report, scalesLoss)))
      return failure();
    numAdjoints += differentiator.adjoints;
    DenseSet<StringAttr> trained;
    for (const auto &entry : differentiator.active)
      trained.insert(entry.first);
    return trained;
  }
};

} // namespace
} // namespace fsdpc::passes
