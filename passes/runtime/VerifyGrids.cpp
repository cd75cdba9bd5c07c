// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// verify-grids: checks the grids of a GPU's kernels, whoever wrote them. A
// vector that is wider than its address is aligned faults on a GPU, so the
// alignments are compared with every launch as well.
#include "compiler/analysis/kernels/GridPlan.h"
#include "compiler/dialects/rt/RTDialect.h"
#include "compiler/options/Options.h"
#include "passes/runtime/Alignments.h"
#include "passes/runtime/Passes.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_VERIFYGRIDS
#include "passes/runtime/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// Compares the alignment that each buffer of a kernel claims with the addresses
// of all its launches. The claim must divide them; a smaller claim only costs
// speed.
LogicalResult verifyAlignments(ModuleOp module) {
  SymbolTable symbols(module);
  for (auto &[name, bytes] : launchAlignments(module)) {
    auto kernel = symbols.lookup<func::FuncOp>(name);
    SmallVector<int64_t> claimed = analysis::alignmentsOf(kernel);
    for (auto [buffer, pair] : llvm::enumerate(llvm::zip(claimed, bytes))) {
      auto [own, found] = pair;
      if (own < 1 || found % own != 0)
        return kernel.emitError("kernel '")
               << kernel.getSymName() << "' has " << own << " in '"
               << analysis::kAlignmentsAttr << "' for buffer " << buffer
               << ", but a launch passes an address that only " << found
               << " divides";
    }
  }
  return success();
}

// Checks that a kernel has a grid, and that its grid can be built from its
// plan. A kernel without a plan, such as an optimizer, has only the shape to
// check.
LogicalResult verifyGrid(func::FuncOp kernel, bool emulated) {
  nn::GridAttr grid = analysis::gridOf(kernel);
  if (!grid)
    return kernel.emitError("kernel '")
           << kernel.getSymName() << "' has no '" << analysis::kGridAttr
           << "'; run plan-grids first";
  if (emulated && grid.getThreads() != 1)
    return kernel.emitError("kernel '")
           << kernel.getSymName() << "' has " << grid.getThreads()
           << " threads per block in its grid; an emulated block has 1";
  if (!analysis::hasPlan(kernel))
    return success();
  FailureOr<analysis::KernelPlan> plan = analysis::buildPlan(kernel);
  return success(succeeded(plan) &&
                 succeeded(analysis::buildGrid(kernel, *plan)));
}

struct VerifyGrids : fsdpc::passes::impl::VerifyGridsBase<VerifyGrids> {
  void runOnOperation() override {
    if (failed(verify()))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }

  LogicalResult verify() {
    ModuleOp module = getOperation();
    fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
    auto kernels = module.getOps<func::FuncOp>();
    // Dumps of programs for the host have no grids, and then there is nothing
    // to check. A module that has some is checked for any target, so that
    // fsdpc-opt can run the pass alone.
    bool planned = llvm::any_of(kernels, [](func::FuncOp kernel) {
      return analysis::gridOf(kernel) != nullptr;
    });
    if (!planned && !options.isCuda())
      return success();
    bool emulated = options.target == fsdp::Target::CudaEmulation;
    for (auto kernel : kernels)
      if (analysis::hasGrid(kernel) && failed(verifyGrid(kernel, emulated)))
        return failure();
    return verifyAlignments(module);
  }
};

} // namespace
