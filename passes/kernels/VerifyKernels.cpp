// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// verify-kernels: closes the phase `kernels`. Code generation builds loops from
// plans that people may have edited, so the pass builds each plan's loops here,
// where an error can still name the kernel and the number.
#include "compiler/analysis/kernels/KernelPlan.h"
#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "compiler/dialects/nn/Strided.h"
#include "passes/kernels/Passes.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_VERIFYKERNELS
#include "passes/kernels/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// Returns true for what may stay outside kernels: calls, and names of memory.
bool needsNoKernel(Operation *op) {
  if (isa<nn::LaunchOp, nn::LibraryCallOpInterface, nn::ConstantOp>(op) ||
      nn::isView(op) || nn::isStrided(op))
    return true;
  auto concat = dyn_cast<nn::ConcatOp>(op);
  return concat && nn::joinsPieces(concat);
}

// Ops of the dialect nn compute only in kernels; what is left outside is a
// call, or only describes memory.
LogicalResult verifyOutlined(func::FuncOp function) {
  for (Operation &op : function.getBody().front())
    if (isa<nn::NNDialect>(op.getDialect()) && !needsNoKernel(&op))
      return op.emitOpError("is not a library call, view or launch; "
                            "outline-kernels puts it into a kernel");
  return success();
}

// Building the plan reports whatever does not describe the kernel. The result
// is thrown away here; code generation builds it again.
LogicalResult verifyPlan(func::FuncOp kernel) {
  WalkResult composites = kernel.walk([&](nn::DecomposeOpInterface op) {
    op->emitOpError("is a composite in kernel '")
        << kernel.getSymName() << "'; run decompose-kernels first";
    return WalkResult::interrupt();
  });
  return success(!composites.wasInterrupted() &&
                 succeeded(analysis::buildPlan(kernel)));
}

struct VerifyKernels : fsdpc::passes::impl::VerifyKernelsBase<VerifyKernels> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (func::FuncOp function : fsdp::entriesOf(module))
      if (function.getSymName() != fsdp::FSDPDialect::kUpdate &&
          failed(verifyOutlined(function)))
        return signalPassFailure();
    for (auto kernel : module.getOps<func::FuncOp>())
      if (analysis::hasPlan(kernel) && failed(verifyPlan(kernel)))
        return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
