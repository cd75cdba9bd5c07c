// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// offload-shards: marks what --offload keeps of layouts in a file, or for a GPU
// in pinned memory. It follows
// mixed-precision, since only then it is known which layouts have masters of
// their own. As in ZeRO-Infinity (Rajbhandari et al., SC 2021), states,
// parameters and gradients are chosen one by one.
#include "passes/shard/Passes.h"

#include "compiler/dialects/fsdp/ModuleManifest.h"
#include "compiler/options/Options.h"
#include "runtime/abi/memory_plan.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_OFFLOADSHARDS
#include "passes/shard/Passes.h.inc"

using namespace mlir;

namespace {

// A choice of the option, the name of what it offloads in a layout, and why no
// layout may have any of it.
struct Choice {
  bool fsdp::OffloadSet::*isChosen;
  StringLiteral name, kind, fault;
  bool (*isOwn)(const Manifest &, const Layout &);
};

bool hasStates(const Manifest &, const Layout &layout) {
  return layout.states > 0;
}

constexpr Choice choices[] = {
    {&fsdp::OffloadSet::optimizer, "optimizer", "state",
     "the optimizer keeps no states per element", hasStates},
    {&fsdp::OffloadSet::parameters, "parameters", "parameter",
     "every rank keeps all parameters in memory; use zero3, or 16-bit "
     "parameters under another strategy than ddp",
     hasOwnParameters},
    {&fsdp::OffloadSet::gradients, "gradients", "gradient",
     "no rank has a gradient of its shard alone that is reduced in ranges; use "
     "zero2, zero3 or a hybrid strategy, without --reduce=step, a "
     "--reduce-dtype of 8 or 4 bits, and hooks that keep residuals",
     hasOwnGradient},
};

struct OffloadShards : impl::OffloadShardsBase<OffloadShards> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
    if (!options.offload.ofShards())
      return markAllAnalysesPreserved();
    Manifest manifest = fsdp::describeModule(module);
    auto ops = llvm::to_vector(module.getOps<fsdp::LayoutOp>());
    SmallVector<SmallVector<StringRef>> kinds(ops.size());
    for (const Choice &choice : choices) {
      if (!(options.offload.*choice.isChosen))
        continue;
      bool isUsed = false;
      for (auto [layout, found] : llvm::zip_equal(manifest.layouts, kinds))
        if (choice.isOwn(manifest, layout)) {
          found.push_back(choice.kind);
          isUsed = true;
        }
      if (!isUsed) {
        emitError(module.getLoc()) << "--offload=" << choice.name
                                   << " has no effect: " << choice.fault;
        return signalPassFailure();
      }
    }
    Builder builder(module.getContext());
    for (auto [op, found] : llvm::zip_equal(ops, kinds))
      if (!found.empty()) {
        op.setOffloadedAttr(builder.getStrArrayAttr(found));
        ++layouts;
      }
  }
};

} // namespace
} // namespace fsdpc::passes
