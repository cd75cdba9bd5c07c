// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The story of a compile: its phases, and the passes that lead to each. This
// table is the only place that orders passes. The comment above each group says
// what is true after it; where a group ends in a verifier, the verifier
// enforces that, so that a mistake is reported by the phase that made it.
#include "passes/pipeline/Pipeline.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "passes/collectives/Passes.h"
#include "passes/grad/Passes.h"
#include "passes/import/Passes.h"
#include "passes/kernels/Passes.h"
#include "passes/memory/Passes.h"
#include "passes/pipeline/Dump.h"
#include "passes/pipeline/RecomputeSearch.h"
#include "passes/runtime/Passes.h"
#include "passes/schedule/Passes.h"
#include "passes/shard/Passes.h"
#include "passes/units/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

#include <utility>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::pipeline;
using namespace fsdpc::passes;

// The importer has written @microbatch as `nn` ops on static shapes, with
// parameters and buffers as symbols.
static const PipelineStep steps[] = {
    // Composites that the exporter took apart are recognised again, and the
    // transpose of a weight is a flag of the product that reads it.
    {Phase::Import, "fold-weight-transposes", createFoldWeightTransposes},
    {Phase::Import, "recognise-composites", createRecogniseComposites},
    {Phase::Import, "verify-input", createVerifyInput},

    // Every op belongs to a unit, with the weights that it reads; every
    // parameter has one owner.
    {Phase::Units, "select-trainable", createSelectTrainable},
    {Phase::Units, "form-units", createFormUnits},
    {Phase::Units, "verify-units", createVerifyUnits},

    // Means over targets have the factors of a step's mean, or of an
    // evaluation's. @evaluate is a copy of the forward as it runs in an
    // evaluation. Forward and backward are one flat function. Values saved for
    // the backward are explicit; none of them is cheap to compute again or
    // derived from weights only.
    {Phase::Grad, "weigh-losses", createWeighLosses},
    {Phase::Grad, "build-evaluate", createBuildEvaluate},
    {Phase::Grad, "grad", createGrad},
    {Phase::Grad, "canonicalize", [] { return createCanonicalizerPass(); }},
    {Phase::Grad, "cse", [] { return createCSEPass(); }},
    {Phase::Grad, "recompute", createRecompute},
    {Phase::Grad, "rematerialise-weights", createRematerialiseWeights},
    {Phase::Grad, "verify-grad", createVerifyGrad},

    // Parameters are parts of flat layouts, values have the types in which they
    // are computed, and @update exists.
    {Phase::Shard, "shard-parameters", createShardParameters},
    {Phase::Shard, "mixed-precision", createMixedPrecision},
    {Phase::Shard, "offload-shards", createOffloadShards},
    {Phase::Shard, "build-update", createBuildUpdate},
    {Phase::Shard, "verify-shard", createVerifyShard},

    // Every op is a library call or an outlined kernel with its tied operands,
    // and has its cost. Every kernel consists of primitives and has the plan of
    // its loops. Attention reads its tensors in the layout of their
    // producers, batch norms are split where they sum over ranks, GPU products
    // add their biases, and where a GPU has several libraries, one is chosen.
    // Strategy and schedule have had no influence so far.
    {Phase::Kernels, "stride-attention", createStrideAttention},
    {Phase::Kernels, "decompose-linear-cross-entropy",
     createDecomposeLinearCrossEntropy},
    {Phase::Kernels, "synchronize-batch-norm", createSynchronizeBatchNorm},
    {Phase::Kernels, "fuse-epilogues", createFuseEpilogues},
    {Phase::Kernels, "outline-kernels", createOutlineKernels},
    {Phase::Kernels, "merge-kernels", createMergeKernels},
    {Phase::Kernels, "tie-operands", createTieOperands},
    {Phase::Kernels, "choose-libraries", createChooseLibraries},
    {Phase::Kernels, "decompose-kernels", createDecomposeKernels},
    {Phase::Kernels, "annotate-costs", createAnnotateCosts},
    {Phase::Kernels, "plan-kernels", createPlanKernels},
    {Phase::Kernels, "verify-kernels", createVerifyKernels},

    // Collectives are where the strategy wants them, synchronous and correct in
    // program order. So is what moves activations to a file and back.
    {Phase::Collectives, "delay-gradients", createDelayGradients},
    {Phase::Collectives, "materialize-collectives",
     createMaterializeCollectives},
    {Phase::Collectives, "fuse-small-collectives", createFuseSmallCollectives},
    {Phase::Collectives, "offload-activations", createOffloadActivations},
    {Phase::Collectives, "verify-collectives", createVerifyCollectives},

    // Collectives start and are waited for where the solver chose, under the
    // memory cap. From here on nothing reorders ops.
    {Phase::Schedule, "schedule-prefetch", createSchedulePrefetch},
    {Phase::Schedule, "verify-schedule", createVerifySchedule},

    // Every tensor has an arena offset; the peak is a number.
    {Phase::Memory, "plan-memory", createPlanMemory},
    {Phase::Memory, "verify-memory", createVerifyMemory},

    // Only calls of the runtime are left, with streams ordered by the events
    // that are needed. Every kernel of a GPU has its grid.
    {Phase::Runtime, "convert-to-rt", createConvertToRT},
    {Phase::Runtime, "elide-events", createElideEvents},
    {Phase::Runtime, "plan-grids", [] { return createPlanGrids(); }},
    {Phase::Runtime, "verify-rt", createVerifyRT},
    {Phase::Runtime, "verify-grids", createVerifyGrids},
};

llvm::ArrayRef<PipelineStep> fsdpc::pipeline::pipelineSteps() { return steps; }

// The names are in the order of the enum.
static constexpr llvm::StringLiteral names[] = {
    "import",      "units",    "grad",   "shard",   "kernels",
    "collectives", "schedule", "memory", "runtime", "executable"};

StringRef fsdpc::pipeline::phaseName(Phase phase) {
  return names[static_cast<int>(phase)];
}

std::optional<Phase> fsdpc::pipeline::parsePhase(StringRef name) {
  for (auto [index, known] : llvm::enumerate(names))
    if (name == known)
      return static_cast<Phase>(index);
  return std::nullopt;
}

std::string fsdpc::pipeline::phaseNames() {
  return llvm::join(llvm::ArrayRef(names), "|");
}

// Returns the index of the first step that has not run, according to
// `fsdp.done`. A dump of the phase `runtime` shows the program and is not an
// input: its addresses and events say nothing of the values that they are for,
// so nothing could prove an edit of it.
static FailureOr<size_t> firstStep(ModuleOp module) {
  auto done = module->getAttrOfType<StringAttr>(fsdp::FSDPDialect::kDoneAttr);
  if (!done || done == "import")
    return 0;
  for (auto [index, step] : llvm::enumerate(pipelineSteps())) {
    if (step.name != done.getValue())
      continue;
    if (step.phase <= Phase::Memory)
      return index + 1;
    return module.emitError("the dump of '")
           << done.getValue()
           << "' is output only; edit and compile the dump of "
              "'verify-memory' instead";
  }
  return module.emitError("unknown pass '")
         << done.getValue() << "' in '" << fsdp::FSDPDialect::kDoneAttr
         << "'; name a pass of this compiler's pipeline, or compile the model "
            "again";
}

// The verifiers whose rules hold beyond their own phase: the last phase in
// whose dumps they hold, and how to check them there.
static const PipelineStep lasting[] = {
    {Phase::Memory, "verify-input", createVerifyInput},
    {Phase::Kernels, "verify-shard",
     [] { return createVerifyShard({/*outlined=*/true}); }},
    {Phase::Memory, "verify-kernels", createVerifyKernels},
    {Phase::Memory, "verify-collectives",
     [] { return createVerifyCollectives({/*scheduled=*/true}); }},
    {Phase::Memory, "verify-schedule", createVerifySchedule},
};

// Returns how to run a verifier that has run again, because a dump may have
// been edited since, or null if its rules no longer hold after the pass `done`.
static const PipelineStep *checkAgain(const PipelineStep &step,
                                      const PipelineStep &done) {
  if (!step.name.starts_with("verify-"))
    return nullptr;
  if (step.phase == done.phase)
    return &step;
  for (const PipelineStep &check : lasting)
    if (check.name == step.name && done.phase <= check.phase)
      return &check;
  return nullptr;
}

// The pass that finds out whether a memory limit is kept.
static constexpr StringLiteral kScheduler = "schedule-prefetch";

// Returns the passes from the one at `index` to the one before the scheduler.
static llvm::ArrayRef<PipelineStep> stepsToSchedule(size_t index) {
  llvm::ArrayRef<PipelineStep> rest = pipelineSteps().drop_front(index);
  return rest.take_until(
      [](const PipelineStep &step) { return step.name == kScheduler; });
}

// Returns true if the pass comes before the one at `index`.
static bool isBehind(StringRef name, size_t index) {
  return llvm::any_of(
      pipelineSteps().take_front(index),
      [&](const PipelineStep &step) { return step.name == name; });
}

LogicalResult fsdpc::pipeline::runPipeline(ModuleOp module,
                                           const PipelineOptions &options) {
  FailureOr<size_t> first = firstStep(module);
  if (failed(first))
    return failure();
  if (!options.profile.empty() && isBehind(kScheduler, *first))
    return module.emitError("'--profile' applies to a schedule that is yet to "
                            "be made, and this module has one; give it the "
                            "model, or a dump before 'schedule-prefetch'");
  // One manager per pass, so that a dump and `fsdp.done` can be written between
  // two passes.
  auto run = [&](const PipelineStep &step) {
    if (options.progress)
      options.progress(step);
    PassManager manager(module.getContext());
    if (step.name == kScheduler && !options.profile.empty())
      manager.addPass(createApplyProfile({options.profile}));
    bool writesTable =
        step.name == "verify-schedule" && !options.scheduleTable.empty();
    manager.addPass(writesTable ? createVerifySchedule({options.scheduleTable})
                                : step.create());
    return manager.run(module);
  };
  // The verifiers behind the module. A dump that has been edited is refused
  // before another pass builds on it.
  size_t behind = options.unedited ? 0 : *first;
  for (const PipelineStep &step : pipelineSteps().take_front(behind))
    if (const PipelineStep *check = checkAgain(step, steps[*first - 1]))
      if (failed(run(*check)))
        return failure();
  bool planned = false; // options.planned has been called
  for (size_t index = *first; index < pipelineSteps().size(); ++index) {
    const PipelineStep &step = steps[index];
    if (step.phase > Phase::Memory && options.planned &&
        !std::exchange(planned, true) && failed(options.planned()))
      return failure();
    // `last` may lie behind the module already; nothing runs then.
    if (step.phase > options.last)
      break;
    if (step.name == "recompute" &&
        failed(chooseRecomputed(module, stepsToSchedule(index))))
      return failure();
    if (failed(run(step)))
      return failure();
    // Recorded after each pass, so that each dump says where to continue.
    module->setAttr(fsdp::FSDPDialect::kDoneAttr,
                    StringAttr::get(module.getContext(), step.name));
    if (!options.dumpFolder.empty() &&
        failed(writeNumberedDump(module, options.dumpFolder, index + 1,
                                 step.name, options.dumpForm)))
      return failure();
  }
  return success();
}
