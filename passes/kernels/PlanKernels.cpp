// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// plan-kernels: decides how each kernel computes, and writes it on the kernel.
// From here on the plan is data: a reader sees it in a dump and may change it,
// verify-kernels checks it, and code generation builds the loops from it.
#include "compiler/analysis/kernels/KernelPlan.h"
#include "compiler/options/Options.h"
#include "passes/kernels/Passes.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_PLANKERNELS
#include "passes/kernels/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

struct PlanKernels : fsdpc::passes::impl::PlanKernelsBase<PlanKernels> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    // A thread of a GPU computes a value again instead of keeping it.
    bool keepsValues = !fsdp::CompileOptions::of(module).isCuda();
    for (auto kernel : module.getOps<func::FuncOp>()) {
      if (!analysis::hasPlan(kernel))
        continue;
      if (failed(analysis::planKernel(kernel, keepsValues)))
        return signalPassFailure();
      ++planned;
    }
  }
};

} // namespace
