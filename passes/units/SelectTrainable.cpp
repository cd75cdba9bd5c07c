// select-trainable: decides which parameters have a gradient, by --frozen and
// --trainable.
#include "passes/units/Passes.h"

#include "compiler/dialects/fsdp/Names.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_SELECTTRAINABLE
#include "passes/units/Passes.h.inc"

using namespace mlir;

namespace {
struct SelectTrainable : impl::SelectTrainableBase<SelectTrainable> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto keep = fsdp::NamePatterns::read(module, "trainable");
    auto freeze = fsdp::NamePatterns::read(module, "frozen");
    if (mlir::failed(keep) || mlir::failed(freeze))
      return signalPassFailure();

    SmallVector<StringRef> names;
    bool any = false;
    for (auto parameter : module.getOps<fsdp::ParameterOp>()) {
      names.push_back(parameter.getSymName());
      bool kept = keep->match(parameter) || keep->empty();
      bool dropped = freeze->match(parameter);
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
