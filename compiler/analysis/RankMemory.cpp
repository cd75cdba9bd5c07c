// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory of a rank besides the arena. It is computed by the runtime's own
// function (planMemory), from a manifest that describes the module, so that the
// cap of a compile is about the bytes that a program will really allocate.
#include "compiler/analysis/RankMemory.h"

#include "compiler/analysis/kernels/KernelPlan.h"
#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/ModuleManifest.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "compiler/dialects/rt/Plans.h"
#include "compiler/dialects/rt/RuntimeCall.h"
#include "compiler/options/Options.h"
#include "runtime/abi/cuda_scratch.h"
#include "runtime/abi/host_scratch.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/abi/staging.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::analysis;

// The program's image holds each constant that an entry function reads, once.
// Those within kernels are immediates of their code.
static int64_t constantBytes(ModuleOp module) {
  llvm::SetVector<Attribute> values;
  for (func::FuncOp entry : fsdp::entriesOf(module))
    entry.walk([&](nn::ConstantOp op) { values.insert(op.getValueAttr()); });
  int64_t bytes = 0;
  for (Attribute value : values) {
    auto type = cast<ShapedType>(cast<ElementsAttr>(value).getType());
    // As ProgramTables embeds the constants: each begins at 64 bytes.
    bytes += llvm::alignTo(nn::tensorBytes(type), 64);
  }
  return bytes;
}

// Library calls need scratchpads, whose sizes follow from their plans.
static void addLibraryPlans(ModuleOp module, Manifest &manifest) {
  llvm::SetVector<Attribute> plans;
  module.walk([&](rt::RuntimeCallOpInterface call) {
    if (Attribute plan = call.getPlan())
      plans.insert(plan);
  });
  for (Attribute plan : plans)
    cast<rt::PlanAttrInterface>(plan).addTo(manifest);
}

static Manifest describeOutsideArena(ModuleOp module) {
  Manifest manifest = fsdp::describeModule(module);
  manifest.constantBytes = constantBytes(module);
  addLibraryPlans(module, manifest);
  return manifest;
}

void fsdpc::analysis::addArena(ModuleOp module, Manifest &manifest) {
  auto arena = module->getAttrOfType<DictionaryAttr>("fsdp.arena");
  auto bytes = [&](StringRef name) {
    auto value = arena ? arena.getAs<IntegerAttr>(name) : IntegerAttr();
    return value ? value.getInt() : 0;
  };
  manifest.arenaBytes = bytes("bytes");
  manifest.arenaGathered = bytes("gathered");
  manifest.arenaGradients = bytes("gradients");
  manifest.arenaActivations = bytes("activations");
  manifest.activationFileBytes = bytes("offloaded");
}

void fsdpc::analysis::addStacks(ModuleOp module, Manifest &manifest) {
  // Grids keep nothing on a stack.
  if (fsdp::CompileOptions::of(module).isCuda())
    return;
  for (Operation &op : *module.getBody())
    if (nn::KernelPlanAttr plan = planOf(&op))
      manifest.stackBytes = std::max(manifest.stackBytes, plan.getStackBytes());
}

Manifest fsdpc::analysis::describeRank(ModuleOp module) {
  Manifest manifest = describeOutsideArena(module);
  addArena(module, manifest);
  addStacks(module, manifest);
  return manifest;
}

// Both targets ask the same function. They differ in what they need besides the
// module's own memory: windows and scratchpads on the host, workspaces of
// libraries on a GPU.
MemoryPlan fsdpc::analysis::planRank(const Manifest &manifest, int ranks) {
  int threads = manifest.planThreads;
  int group = plannedGroup(manifest, ranks, /*wanted=*/0);
  if (manifest.target != "host")
    return planMemory(manifest, ranks, group, threads,
                      /*communicationBytes=*/0,
                      cudaScratch(manifest, ranks, ranks > 1).total());
  return planMemory(
      manifest, ranks, group, threads,
      channelBytes(manifest, ranks, group, group, ranks > 1 ? "mpi" : "none"),
      hostScratchBytes(manifest, threads));
}

// `ranks` is --plan-ranks and not the number of an actual run, which is not
// known yet.
RankMemory::RankMemory(ModuleOp module) {
  Manifest manifest = describeOutsideArena(module);
  addStacks(module, manifest);
  ranks = manifest.planRanks;
  MemoryPlan plan = planRank(manifest, ranks);
  for (auto &[kind, bytes] : plan.kinds())
    if (bytes > 0)
      kinds.push_back({kind, bytes});
}

int64_t RankMemory::total() const {
  int64_t sum = 0;
  for (const schedule::Contributor &kind : kinds)
    sum += kind.bytes;
  return sum;
}

// Returns what makes a rank hold less. More ranks hold smaller parts of the
// model each, and more windows of other ranks.
static SmallVector<std::string> adviseLess(ModuleOp module,
                                           const RankMemory &memory) {
  SmallVector<std::string> advice;
  Manifest manifest = describeOutsideArena(module);
  addStacks(module, manifest);
  int64_t held = memory.total();
  const auto options = fsdp::CompileOptions::of(module);
  auto adviseRanks = [&](int64_t ranks, StringRef change) {
    for (int64_t group : {options.planRanksPerNode, options.reshardTo})
      if (group > 0 && ranks % group != 0)
        return false;
    int64_t less = held - planRank(manifest, int(ranks)).total();
    if (less > 0)
      advice.push_back((change + " --plan-ranks (" + Twine(ranks) + " takes " +
                        Twine(less) + " bytes less)")
                           .str());
    return less > 0;
  };
  int64_t more = 2 * memory.ranks, fewer = memory.ranks / 2;
  if ((more > manifest.maxRanks || !adviseRanks(more, "increase")) && fewer > 0)
    adviseRanks(fewer, "decrease");
  fsdp::RecomputeLevel recompute = options.recompute;
  if (recompute == fsdp::RecomputeLevel::None ||
      recompute == fsdp::RecomputeLevel::Cheap)
    advice.push_back("keep fewer activations with --recompute=auto");
  return advice;
}

void fsdpc::analysis::reportOverLimit(
    ModuleOp module, const RankMemory &memory,
    std::vector<schedule::Contributor> contributors, int64_t peak,
    int64_t cap) {
  llvm::append_range(contributors, memory.kinds);
  // Stable, so that contributors of equal size appear in the same order in
  // every compile.
  llvm::stable_sort(contributors, [](const auto &a, const auto &b) {
    return a.bytes > b.bytes;
  });
  auto diagnostic = emitError(module.getLoc(), "planned peak of ")
                    << peak << " bytes per rank on " << memory.ranks
                    << (memory.ranks == 1 ? " rank" : " ranks")
                    << " exceeds --memory-limit of " << cap
                    << " bytes; largest:";
  const char *separator = " ";
  for (const schedule::Contributor &contributor :
       llvm::ArrayRef(contributors).take_front(3)) {
    diagnostic << separator << contributor.label << " (" << contributor.bytes
               << ")";
    separator = ", ";
  }
  separator = "; ";
  for (const std::string &advice : adviseLess(module, memory)) {
    diagnostic << separator << advice;
    separator = ", or ";
  }
}
