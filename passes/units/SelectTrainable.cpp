// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// select-trainable: decides which parameters have a gradient, by --frozen and
// --trainable.
#include "passes/units/Passes.h"

#include "compiler/dialects/fsdp/Names.h"
#include "compiler/dialects/fsdp/SymbolNames.h"
#include "compiler/options/Options.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_SELECTTRAINABLE
#include "passes/units/Passes.h.inc"

using namespace mlir;

namespace {
// The two options combine: a parameter is trained if --trainable names it (or
// is absent) and --frozen does not. Neither makes a parameter trainable that
// the model has frozen.
struct SelectTrainable : impl::SelectTrainableBase<SelectTrainable> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
    auto keep = fsdp::NamePatterns::compile(module.getLoc(), "trainable",
                                            options.trainable.texts);
    auto freeze = fsdp::NamePatterns::compile(module.getLoc(), "frozen",
                                              options.frozen.texts);
    if (mlir::failed(keep) || mlir::failed(freeze))
      return signalPassFailure();

    SmallVector<StringRef> names;
    bool any = false;
    for (auto parameter : module.getOps<fsdp::ParameterOp>()) {
      names.push_back(nameOf(parameter));
      // Both patterns are asked for every parameter, because `match` also
      // records which patterns are of use.
      bool kept = matches(*keep, parameter) || keep->empty();
      bool dropped = matches(*freeze, parameter);
      if (parameter.getTrainable() && (dropped || !kept)) {
        parameter.setTrainable(false);
        ++frozen;
      }
      any |= parameter.getTrainable();
    }
    if (mlir::failed(keep->checkUsed(module.getLoc(), names, "parameter")) ||
        mlir::failed(freeze->checkUsed(module.getLoc(), names, "parameter")))
      return signalPassFailure();
    if (!any && !names.empty()) {
      emitError(module.getLoc(),
                "no parameter is trainable; relax --frozen or --trainable");
      signalPassFailure();
    }
  }
};
} // namespace
} // namespace fsdpc::passes
