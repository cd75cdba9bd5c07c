// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// decompose-kernels: writes the composites in kernels (softmax, layer_norm …)
// as primitives, which is all that the templates of kernels can compute. It
// runs after everything that asks what a kernel is for, since costs and ties
// are those of the composites.
#include "compiler/analysis/kernels/KernelPlan.h"
#include "compiler/dialects/nn/Interfaces.h"
#include "passes/kernels/Passes.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_DECOMPOSEKERNELS
#include "passes/kernels/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

void decompose(func::FuncOp kernel) {
  SmallVector<nn::DecomposeOpInterface> composites;
  // Collected first, since decomposing erases ops of the block that is walked.
  kernel.walk([&](nn::DecomposeOpInterface op) { composites.push_back(op); });
  for (nn::DecomposeOpInterface op : composites) {
    OpBuilder builder(op);
    SmallVector<Value> results = op.decompose(builder);
    op->replaceAllUsesWith(results);
    op->erase();
  }
}

struct DecomposeKernels
    : fsdpc::passes::impl::DecomposeKernelsBase<DecomposeKernels> {
  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<func::FuncOp>())
      if (analysis::hasPlan(kernel))
        decompose(kernel);
  }
};

} // namespace
