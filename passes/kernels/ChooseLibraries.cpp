// choose-libraries: chooses the library that computes each product,
// convolution, pooling and attention on a GPU.
#include "compiler/dialects/fsdp/Options.h"
#include "passes/kernels/Passes.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_CHOOSELIBRARIES
#include "passes/kernels/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

struct ChooseLibraries
    : fsdpc::passes::impl::ChooseLibrariesBase<ChooseLibraries> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
    if (!options.isCuda())
      return;
    StringRef asked = fsdp::nameOf(options.attention);
    WalkResult walk = module.walk([&](nn::LibraryCallOpInterface call) {
      FailureOr<StringRef> library = call.chooseLibrary(asked);
      if (failed(library))
        return WalkResult::interrupt();
      call->setAttr(nn::NNDialect::kLibraryAttr,
                    StringAttr::get(call.getContext(), *library));
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
