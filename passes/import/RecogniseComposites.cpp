// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Applies the patterns of recognise/ until none matches, then counts the
// composites of the module for the compile's summary.
#include "passes/import/Passes.h"
#include "passes/import/recognise/Match.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_RECOGNISECOMPOSITES
#include "passes/import/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {
struct RecogniseComposites
    : fsdpc::passes::impl::RecogniseCompositesBase<RecogniseComposites> {
  void runOnOperation() override {
    // All in one set, since matches build on each other: linear_cross_entropy
    // takes a cross_entropy that was found before.
    RewritePatternSet patterns(&getContext());
    recognise::populateAttention(patterns);
    recognise::populateBinaryCrossEntropy(patterns);
    recognise::populateCrossEntropy(patterns);
    recognise::populateGelu(patterns);
    recognise::populateLinearCrossEntropy(patterns);
    recognise::populateNorms(patterns);
    recognise::populateRotary(patterns);
    recognise::populateSilu(patterns);
    recognise::populateStableForms(patterns);
    // Regions are not simplified: ops keep the order of the model.
    GreedyRewriteConfig config;
    config.setRegionSimplificationLevel(GreedySimplifyRegionLevel::Disabled);
    if (failed(
            applyPatternsGreedily(getOperation(), std::move(patterns), config)))
      return signalPassFailure();
    count();
  }

  // Counts ops and not matches: a model may already contain composites, and a
  // pattern may absorb those of another one.
  void count() {
    // The attribute is the summary's; no pass reads it.
    NamedAttrList counts;
    Builder b(&getContext());
    llvm::StringMap<int64_t> ops;
    getOperation().walk(
        [&](Operation *op) { ++ops[op->getName().getStringRef()]; });
    const std::pair<StringRef, Statistic *> kinds[] = {
        {"attention", &attention},
        {"rms_norm", &rmsNorm},
        {"layer_norm", &layerNorm},
        {"gelu", &gelu},
        {"silu", &silu},
        {"rotary", &rotary},
        {"cross_entropy", &crossEntropy},
        {"linear_cross_entropy", &linearCrossEntropy}};
    for (auto [name, statistic] : kinds) {
      int64_t found = ops.lookup(("nn." + name).str());
      *statistic += found;
      if (found)
        counts.set(name, b.getI64IntegerAttr(found));
    }
    getOperation()->setAttr("fsdp.recognised",
                            counts.getDictionary(&getContext()));
  }
};
} // namespace
