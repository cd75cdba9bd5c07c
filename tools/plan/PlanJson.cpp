// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A plan as JSON, for reports and for other tools. Lists of ops are arrays of
// arrays, whose columns `columns` names, since a model has thousands. Times are
// those of one rank among equal ones; the figures of the step are the caller's.
#include "compiler/dialects/fsdp/Provenance.h"
#include "compiler/dialects/fsdp/Recomputed.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/NNAttributes.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/options/Options.h"
#include "compiler/schedule/bound.h"
#include "compiler/schedule/live_bytes.h"
#include "compiler/schedule/table.h"
#include "tools/plan/Plan.h"

#include "llvm/ADT/MapVector.h"

#include <array>
#include <cmath>
#include <map>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::plan;

namespace json = llvm::json;

namespace {

// JSON is UTF-8, and a model's names may be anything.
json::Value text(StringRef value) { return json::fixUTF8(value); }

json::Array list(std::initializer_list<const char *> names) {
  json::Array array;
  for (const char *name : names)
    array.push_back(name);
  return array;
}

int64_t integerOf(Operation *op, StringRef name) {
  auto value = op->getAttrOfType<IntegerAttr>(name);
  return value ? value.getInt() : 0;
}

// Returns the name under which an op is listed: the kernel of a launch, else
// the op's own name.
std::string nameOf(Operation *op) {
  if (auto launch = dyn_cast<nn::LaunchOp>(op))
    return launch.getKernel().str();
  return op->getName().stripDialect().str();
}

// Names the classes of ops. Launches are classed by the template of their
// kernel's plan, since an elementwise kernel and one that sums down columns
// have little in common.
class OpClasses {
public:
  explicit OpClasses(ModuleOp module) : symbols(module) {}

  std::string operator[](Operation *op) const {
    auto launch = dyn_cast<nn::LaunchOp>(op);
    auto kernel = launch ? symbols.lookup(launch.getKernel()) : nullptr;
    auto plan = kernel ? kernel->getAttrOfType<nn::KernelPlanAttr>(
                             nn::NNDialect::kPlanAttr)
                       : nn::KernelPlanAttr();
    return plan ? stringifyKernelTemplate(plan.getKernelTemplate()).str() +
                      " kernel"
                : op->getName().stripDialect().str();
  }

private:
  SymbolTable symbols;
};

// The innermost module of the model that the op comes from.
std::string moduleOf(Operation *op) {
  auto modules =
      op->getAttrOfType<nn::ModulesAttr>(nn::NNDialect::kModulesAttr);
  return modules ? modules.getPaths().back().str() : "";
}

// The ops that take time, with the time at which each begins.
json::Object opsOf(const Plan &plan, const schedule::Timeline &timeline) {
  // An op begins when the waits before it are over.
  std::vector<double> beginUs = timeline.reachUs;
  for (const schedule::Action &action : plan.ir.schedule.actions)
    if (action.kind == schedule::ActionKind::Wait)
      beginUs[action.position] += timeline.exposedUs[action.collective];
  OpClasses classes(plan.module);
  json::Array rows;
  for (auto [position, timed] : llvm::enumerate(plan.ir.problem.ops)) {
    if (timed.durationUs <= 0)
      continue;
    Operation *op = plan.ir.ops[position];
    rows.push_back(json::Array{
        beginUs[position], timeline.reachUs[position + 1] - beginUs[position],
        text(classes[op]), text(nameOf(op)), text(unitOf(op)),
        op->hasAttr(fsdp::FSDPDialect::kBackwardAttr),
        text(fsdp::nodeOf(op->getLoc())), text(moduleOf(op)),
        integerOf(op, fsdp::FSDPDialect::kBytesAttr),
        integerOf(op, fsdp::FSDPDialect::kFlopsAttr)});
  }
  return json::Object{
      {"columns", list({"begin_us", "us", "class", "name", "unit", "backward",
                        "node", "module", "bytes", "flops"})},
      {"rows", std::move(rows)}};
}

json::Object collectivesOf(const Plan &plan,
                           const schedule::Timeline &timeline) {
  size_t count = plan.ir.collectives.size();
  std::vector<double> started(count), waited(count), freed(count, -1);
  for (const schedule::Action &action : plan.ir.schedule.actions) {
    std::vector<double> &times =
        action.kind == schedule::ActionKind::Start  ? started
        : action.kind == schedule::ActionKind::Wait ? waited
                                                    : freed;
    times[action.collective] = timeline.reachUs[action.position];
  }
  json::Array rows;
  for (auto [id, c] : llvm::enumerate(plan.ir.problem.collectives)) {
    Operation *op = plan.ir.collectives[id].first;
    rows.push_back(json::Array{
        timeline.beginUs[id], c.durationUs,
        c.kind == schedule::CollectiveKind::Gather ? "all_gather"
                                                   : "reduce_scatter",
        text(schedule::tableName(c)), text(unitOf(op)),
        op->hasAttr(fsdp::FSDPDialect::kBackwardAttr), started[id], waited[id],
        freed[id], timeline.exposedUs[id],
        integerOf(op, fsdp::FSDPDialect::kBytesAttr)});
  }
  return json::Object{
      {"columns",
       list({"begin_us", "us", "class", "name", "unit", "backward",
             "started_us", "waited_us", "freed_us", "exposed_us", "bytes"})},
      {"rows", std::move(rows)}};
}

// The arena over the microbatch, where it changes.
json::Object memoryOf(const Plan &plan, const schedule::Timeline &timeline) {
  schedule::LiveBytes live =
      schedule::liveBytesByKind(plan.ir.problem, plan.ir.schedule);
  json::Array rows;
  std::array<int64_t, 3> before = {-1, -1, -1};
  for (size_t p = 0; p < plan.ir.problem.ops.size(); ++p) {
    std::array<int64_t, 3> now = {live.tensors[p], live.gathered[p],
                                  live.reduced[p]};
    if (now == before)
      continue;
    rows.push_back(json::Array{timeline.reachUs[p], now[0], now[1], now[2]});
    before = now;
  }
  json::Array owners;
  for (const schedule::Contributor &owner : plan.owners(16))
    owners.push_back(json::Array{text(owner.label), owner.bytes});
  return json::Object{
      {"columns", list({"us", "activations", "gathered", "gradients"})},
      {"rows", std::move(rows)},
      {"outside_bytes", plan.ir.problem.baseBytes},
      {"limit_bytes", fsdp::CompileOptions::of(plan.module).memoryLimit.bytes},
      {"machine_bytes", int64_t(plan.machine.memoryGiB * (1 << 30))},
      {"owners", std::move(owners)}};
}

// The cost of a unit, and how early its gathers start.
struct UnitRow {
  double forwardUs = 0, backwardUs = 0, gatherUs = 0, reduceUs = 0,
         exposedUs = 0;
  std::optional<double> aheadUs; // least time from a gather's start to its wait
  int64_t elements = 0;
  double recomputed = 0; // the share of its ops that a limit had repeated
};

json::Object unitsOf(const Plan &plan, const schedule::Timeline &timeline) {
  llvm::MapVector<StringRef, UnitRow> units;
  ModuleOp module = plan.module;
  for (const Layout &layout : plan.manifest.layouts)
    units[layout.unit].elements += layout.elements;
  for (auto unit : module.getOps<fsdp::UnitOp>())
    if (std::optional<fsdp::Recomputed> again = fsdp::recomputedOf(unit))
      units[unit.getSymName()].recomputed =
          double(again->ops) / double(std::max<int64_t>(again->of, 1));
  for (auto [op, timed] : llvm::zip(plan.ir.ops, plan.ir.problem.ops))
    if (auto unit =
            op->getAttrOfType<FlatSymbolRefAttr>(fsdp::FSDPDialect::kUnitAttr))
      (op->hasAttr(fsdp::FSDPDialect::kBackwardAttr)
           ? units[unit.getValue()].backwardUs
           : units[unit.getValue()].forwardUs) += timed.durationUs;
  std::vector<double> started(plan.ir.collectives.size());
  for (const schedule::Action &action : plan.ir.schedule.actions) {
    int id = action.collective;
    double now = timeline.reachUs[action.position];
    if (action.kind == schedule::ActionKind::Start)
      started[id] = now;
    if (action.kind != schedule::ActionKind::Wait)
      continue;
    auto unit = plan.ir.collectives[id].first->getAttrOfType<FlatSymbolRefAttr>(
        fsdp::FSDPDialect::kUnitAttr);
    UnitRow &row = units[unit ? unit.getValue() : StringRef("-")];
    const schedule::Collective &c = plan.ir.problem.collectives[id];
    bool gathers = c.kind == schedule::CollectiveKind::Gather;
    (gathers ? row.gatherUs : row.reduceUs) += c.durationUs;
    row.exposedUs += timeline.exposedUs[id];
    if (gathers)
      row.aheadUs = std::min(row.aheadUs.value_or(INFINITY), now - started[id]);
  }
  json::Array rows;
  for (auto &[name, row] : units)
    rows.push_back(json::Array{
        text(name), row.elements, row.forwardUs, row.backwardUs, row.gatherUs,
        row.reduceUs, row.exposedUs,
        row.aheadUs ? json::Value(*row.aheadUs) : json::Value(nullptr),
        row.recomputed});
  return json::Object{
      {"columns",
       list({"unit", "elements", "forward_us", "backward_us", "gather_us",
             "reduce_us", "exposed_us", "ahead_us", "computed_again"})},
      {"rows", std::move(rows)}};
}

// The classes of ops by what they do with a second, beside what the machine
// could.
json::Object rooflineOf(const Plan &plan) {
  struct Sum {
    double us = 0, flops = 0, bytes = 0;
    int64_t calls = 0;
    StringRef op; ///< whose rates the machine has
  };
  OpClasses classes(plan.module);
  std::map<std::string, Sum> sums;
  for (auto [op, timed] : llvm::zip(plan.ir.ops, plan.ir.problem.ops)) {
    if (timed.durationUs <= 0)
      continue;
    Sum &sum = sums[classes[op]];
    sum.op = op->getName().stripDialect();
    sum.us += timed.durationUs;
    sum.flops += double(integerOf(op, fsdp::FSDPDialect::kFlopsAttr));
    sum.bytes += double(integerOf(op, fsdp::FSDPDialect::kBytesAttr));
    ++sum.calls;
  }
  auto type = size_t(fsdp::CompileOptions::of(plan.module).paramType.type);
  json::Array rows;
  for (auto &[name, sum] : sums) {
    const schedule::Rate &rate = plan.machine.ratesOf(sum.op)[type];
    rows.push_back(json::Array{text(name), sum.calls, sum.us, sum.flops,
                               sum.bytes,
                               rate.gflops.reached() * plan.machine.cores,
                               rate.memoryGBs.reached() * plan.machine.cores});
  }
  return json::Object{{"columns", list({"class", "calls", "us", "flops",
                                        "bytes", "gflops", "memory_gbs"})},
                      {"rows", std::move(rows)}};
}

} // namespace

json::Object plan::toJson(const Estimate &estimate) {
  return json::Object{{"ranks", estimate.ranks},
                      {"microbatch_us", estimate.microbatchUs},
                      {"update_us", estimate.updateUs},
                      {"step_us", estimate.stepUs},
                      {"exposed_node_us", estimate.nodeExposedUs},
                      {"exposed_cross_us", estimate.crossExposedUs},
                      {"slowed_us", estimate.slowedUs},
                      {"samples_per_second", estimate.samplesPerSecond},
                      {"tokens_per_second", estimate.tokensPerSecond},
                      {"mfu", estimate.mfu},
                      {"peak_bytes", estimate.peakBytes}};
}

json::Object plan::toJson(Plan &plan, const Estimate &estimate) {
  plan.setRanks(estimate.ranks);
  const schedule::Problem &problem = plan.ir.problem;
  schedule::Timeline timeline = schedule::simulate(problem, plan.ir.schedule);
  fsdp::CompileOptions options = fsdp::CompileOptions::of(plan.module);
  auto hash = plan.module->getAttrOfType<StringAttr>(
      fsdp::FSDPDialect::kScheduleHashAttr);
  schedule::Problem limited = problem;
  if (options.memoryLimit.bytes)
    limited.options.memoryLimit = options.memoryLimit.bytes;
  return json::Object{{"format", "fsdpc plan 1"},
                      {"machine", text(plan.machine.name)},
                      {"strategy", text(plan.manifest.strategy)},
                      {"dtype", text(plan.manifest.computeDtype)},
                      {"optimizer", text(plan.manifest.optimizer)},
                      {"prefetch", options.schedule.name.empty()
                                       ? text(fsdp::nameOf(options.prefetch))
                                       : text("by " + options.schedule.name)},
                      {"recompute", text(fsdp::nameOf(options.recompute))},
                      {"schedule_hash", text(hash ? hash.getValue() : "")},
                      {"step", toJson(estimate)},
                      {"ops_us", plan.opsUs()},
                      {"exposed_us", timeline.totalExposedUs},
                      {"lost_us", timeline.lostUs()},
                      {"least_lost_us", schedule::leastLostUs(limited)},
                      {"ops", opsOf(plan, timeline)},
                      {"collectives", collectivesOf(plan, timeline)},
                      {"memory", memoryOf(plan, timeline)},
                      {"units", unitsOf(plan, timeline)},
                      {"roofline", rooflineOf(plan)}};
}
