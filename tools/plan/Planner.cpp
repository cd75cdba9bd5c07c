// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See Planner.h. Phases up to `units` depend on few settings, and the strategy
// and the types come in with `shard`. So one module of the phase `units` is
// kept per import, and the last one of the phase `collectives`, from which
// schedules are made in a fraction of the time.
#include "tools/plan/Planner.h"

#include "compiler/analysis/RankMemory.h"
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/options/OptionTable.h"
#include "passes/pipeline/Pipeline.h"
#include "runtime/abi/memory_plan.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::plan;
using fsdpc::fsdp::CompileOptions;
using fsdpc::pipeline::Phase;

namespace {

// Sets the options that a compile with these flags would have.
std::string apply(const Settings &settings, CompileOptions &options) {
  for (const auto &[name, value] : settings)
    if (std::string fault =
            fsdp::setOption(*fsdp::findOption(name), value, options);
        !fault.empty())
      return fault;
  return fsdp::checkOptions(options);
}

// The settings without those that the predicate names.
template <typename Predicate>
Settings without(const Settings &settings, Predicate isLeftOut) {
  Settings kept;
  for (const auto &setting : settings)
    if (!isLeftOut(setting.first))
      kept.push_back(setting);
  return kept;
}

// A schedule alone depends on this.
bool isOfSchedule(StringRef name) { return name == "prefetch"; }

// An import depends on this.
bool isOfImport(StringRef name) { return name == "dim"; }

void setOptions(ModuleOp module, const CompileOptions &options) {
  module->setAttr(fsdp::CompileOptions::kAttribute,
                  fsdp::writeOptions(options, module.getContext()));
}

LogicalResult runTo(Phase last, ModuleOp module) {
  pipeline::PipelineOptions options;
  options.last = last;
  options.unedited = true;
  return pipeline::runPipeline(module, options);
}

// Fails if what a rank holds besides the arena is above the cap already: the
// phases after `shard` take most of the time of a plan.
LogicalResult checkHeldMemory(ModuleOp module, int64_t cap) {
  if (cap == 0)
    return success();
  analysis::RankMemory memory(module);
  if (memory.total() <= cap)
    return success();
  analysis::reportOverLimit(module, memory, {}, memory.total(), cap);
  return failure();
}

} // namespace

std::string plan::flagsOf(const Settings &settings) {
  std::string text;
  for (const auto &[name, value] : settings)
    text += (text.empty() ? "--" : " --") + name + "=" + value;
  return text;
}

std::string Planner::check(const Settings &settings) const {
  CompileOptions options = shared;
  return apply(settings, options);
}

// Imports differ only in the fixed dimensions.
FailureOr<ModuleOp> Planner::importedWith(const Settings &settings,
                                          const CompileOptions &options) {
  std::string key = flagsOf(
      without(settings, [](StringRef name) { return !isOfImport(name); }));
  OwningOpRef<ModuleOp> &module = units[key];
  if (!module) {
    FailureOr<OwningOpRef<ModuleOp>> imported = importAgain(options);
    if (failed(imported))
      return failure();
    module = std::move(*imported);
  }
  if (failed(runTo(Phase::Units, *module)))
    return failure();
  return *module;
}

// Runs the phases that the last plan does not share, on copies.
FailureOr<OwningOpRef<ModuleOp>> Planner::moduleOf(const Settings &settings) {
  CompileOptions options = shared;
  if (std::string fault = apply(settings, options); !fault.empty())
    return emitError(units.begin()->second->getLoc(), fault);
  std::string key = flagsOf(without(settings, isOfSchedule));
  if (collectivesOf != key) {
    FailureOr<ModuleOp> imported = importedWith(settings, options);
    if (failed(imported))
      return failure();
    collectives = imported->clone();
    collectivesOf.reset(); // until it is complete
    setOptions(*collectives, options);
    if (failed(runTo(Phase::Shard, *collectives)) ||
        failed(checkHeldMemory(*collectives, cap)) ||
        failed(runTo(Phase::Collectives, *collectives)))
      return failure();
    collectivesOf = key;
  }
  OwningOpRef<ModuleOp> module = collectives->clone();
  setOptions(*module, options);
  if (failed(runTo(Phase::Memory, *module)))
    return failure();
  return module;
}

LogicalResult Planner::run(Point &point) {
  FailureOr<OwningOpRef<ModuleOp>> module = moduleOf(point.settings);
  if (failed(module))
    return failure();
  FailureOr<Plan> found = Plan::of(**module);
  if (failed(found) || failed(found->checkAccumulate(point.accumulate)))
    return failure();
  point.estimate = found->estimate(shared.planRanks, {point.accumulate, {}});
  point.opsUs = found->opsUs();
  return success();
}

// Errors belong to the point: that settings do not fit is an answer.
Point Planner::plan(Settings settings, int64_t accumulate) {
  Point point;
  point.settings = std::move(settings);
  point.accumulate = accumulate;
  ++planned;
  ScopedDiagnosticHandler handler(context(), [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error &&
        point.fault.empty())
      point.fault = diagnostic.str();
    return success();
  });
  if (failed(run(point)) && point.fault.empty())
    point.fault = "cannot be planned";
  return point;
}
