// The spaces themselves are aligned (fsdpc.h), so offsets decide.
#include "compiler/codegen/simt/Alignments.h"

#include "compiler/codegen/simt/GridModule.h"
#include "compiler/dialects/rt/RTDialect.h"

using namespace mlir;
using namespace fsdpc;

void simt::setAlignments(ModuleOp module) {
  for (auto kernel : module.getOps<func::FuncOp>())
    kernel->removeAttr(kAlignmentsAttr);
  module.walk([&](rt::LaunchOp launch) {
    auto kernel = module.lookupSymbol<func::FuncOp>(launch.getKernelAttr());
    SmallVector<int64_t> alignments = alignmentsOf(kernel);
    for (auto [alignment, buffer] :
         llvm::zip(alignments, launch.getBuffers())) {
      int64_t offset = buffer.getDefiningOp<rt::PointerOp>().getOffset();
      if (offset)
        alignment = std::min(alignment, offset & -offset);
    }
    kernel->setAttr(kAlignmentsAttr,
                    DenseI64ArrayAttr::get(module.getContext(), alignments));
  });
}
