// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// plan-grids: decides for a GPU how each kernel becomes a grid of threads. It
// runs when all launches are known, since the width of vectors depends on what
// divides the addresses of the buffers.
#include "compiler/analysis/kernels/GridPlan.h"
#include "compiler/dialects/rt/RTDialect.h"
#include "compiler/options/Options.h"
#include "passes/runtime/Alignments.h"
#include "passes/runtime/Passes.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_PLANGRIDS
#include "passes/runtime/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// Threads per block of every kernel. An emulated block is one thread.
constexpr int64_t kThreads = 256, kEmulatedThreads = 1;

// The option `threads` is for tests of the pass alone. Without it the target
// decides, and a target without grids leaves the module unchanged.
struct PlanGrids : fsdpc::passes::impl::PlanGridsBase<PlanGrids> {
  using PlanGridsBase::PlanGridsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
    int64_t perBlock = threads;
    if (!perBlock) {
      if (!options.isCuda())
        return;
      bool emulated = options.target == fsdp::Target::CudaEmulation;
      perBlock = emulated ? kEmulatedThreads : kThreads;
    }
    SymbolTable symbols(module);
    // Alignments are written first, since the planner chooses the width of
    // vectors from them.
    for (auto &[name, bytes] : launchAlignments(module))
      symbols.lookup(name)->setAttr(
          analysis::kAlignmentsAttr,
          DenseI64ArrayAttr::get(&getContext(), bytes));
    for (auto kernel : module.getOps<func::FuncOp>()) {
      if (!analysis::hasGrid(kernel))
        continue;
      if (failed(analysis::planGrid(kernel, perBlock)))
        return signalPassFailure();
      ++planned;
    }
  }
};

} // namespace
