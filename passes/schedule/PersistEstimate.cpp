// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Estimates what --persist saves. The problem of the schedule is solved a
// second time with the gathers that the option removed: a segment that reads a
// persistent layout gathers it with its unit's other layouts, or on its own.
// The durations are the cost model's, as in the schedule itself, so the two
// exposed times can be compared. The model leaves out that
// fuse-small-collectives joins collectives of several units.
#include "passes/schedule/PersistEstimate.h"
#include "passes/schedule/ScheduledOps.h"

#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Machine.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/schedule/cost_model.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace fsdpc::passes {
namespace {

// Adds gathers to a copy of a problem.
class Estimator {
public:
  // `ir` and its ops must outlive the estimator.
  Estimator(ModuleOp module, const ScheduleIR &ir)
      : problem(ir.problem), machine(fsdp::machineOf(module)) {
    for (auto [position, op] : llvm::enumerate(ir.ops))
      positions[op] = position;
    for (const CollectiveOps &ops : ir.collectives) {
      auto unit = ops.first->getAttrOfType<FlatSymbolRefAttr>(
          fsdp::FSDPDialect::kUnitAttr);
      units.push_back(unit ? unit.getValue().str() : "");
    }
    // Neighbouring segments of one unit share a gather, as the unit's weights
    // are kept at the turn to the backward.
    for (const schedule::Segment &segment : problem.segments)
      if (!runs.empty() && runs.back().label == segment.label)
        runs.back().end = segment.end;
      else
        runs.push_back(segment);
  }

  // Gathers a layout in each run of segments that reads it, from all ranks or
  // from those of a group.
  void add(fsdp::ReplicatedOp replicated, bool inGroups) {
    int64_t bytes = fsdp::gatheredBytesOf(
        SymbolTable::lookupNearestSymbolFrom<fsdp::LayoutOp>(
            replicated, replicated.getLayoutAttr()));
    for (const schedule::Segment &run : runs) {
      // The first and last reader within the run; no reader: no gather.
      int first = run.end, last = -1;
      for (Operation *user : usersOfMemory(replicated.getResult())) {
        auto it = positions.find(user);
        if (it == positions.end() || it->second < run.begin ||
            it->second >= run.end || nn::isView(user) ||
            isa<fsdp::ViewOp>(user))
          continue;
        first = std::min(first, it->second);
        last = std::max(last, it->second);
      }
      if (last >= 0)
        gather(run, first, last, bytes, inGroups, replicated.getLayout().str());
    }
  }

  schedule::Problem problem;

private:
  // Joins the gather of the run's unit that lives in the run, or adds one.
  void gather(const schedule::Segment &run, int first, int last, int64_t bytes,
              bool inGroups, const std::string &layout) {
    constexpr int64_t alignment = 128;
    auto timeOf = inGroups ? schedule::groupGatherUs : schedule::allGatherUs;
    std::vector<schedule::Collective> &all = problem.collectives;
    // The gather of the same unit that is alive in the run: its window must lie
    // in it.
    auto found = llvm::find_if(all, [&](const schedule::Collective &c) {
      return c.kind == schedule::CollectiveKind::Gather &&
             units[&c - all.data()] == run.label && c.latest < run.end &&
             c.lastUse.value_or(-1) >= run.begin;
    });
    if (found == all.end()) {
      units.push_back(run.label);
      found = all.emplace(all.end());
      found->latest = first;
      found->label = "all_gather of " + layout;
    }
    found->latest = std::min(found->latest, first);
    found->lastUse = std::max(found->lastUse.value_or(last), last);
    // The latency is paid once per collective, so only the difference counts.
    int64_t before = found->bytes();
    found->durationUs += timeOf(machine, before + bytes) -
                         (before ? timeOf(machine, before) : 0);
    found->buffers.push_back({int64_t(llvm::alignTo(bytes, alignment)),
                              alignment, /*definition=*/0});
  }

  schedule::Machine machine;
  DenseMap<Operation *, int> positions;
  std::vector<std::string> units; // of the collectives
  std::vector<schedule::Segment> runs;
};

} // namespace

schedule::Problem gatherPersistent(ModuleOp module, func::FuncOp function,
                                   const ScheduleIR &ir) {
  fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
  fsdp::UnitStrategies strategies(options);
  SymbolTable symbols(module);
  Estimator estimator(module, ir);
  for (auto replicated : function.getOps<fsdp::ReplicatedOp>()) {
    auto layout = symbols.lookup<fsdp::LayoutOp>(replicated.getLayout());
    // Layouts that are whole for another reason would not be gathered without
    // the option either.
    fsdp::Strategy ofUnit = strategies.of(layout.getUnit());
    if (ofUnit->gathersWeights() &&
        fsdp::strategyOf(layout, options) == fsdp::persistent(ofUnit))
      estimator.add(replicated, ofUnit->over == fsdp::CutOver::Group);
  }
  return std::move(estimator.problem);
}

} // namespace fsdpc::passes
