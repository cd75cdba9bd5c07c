// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Estimates of a plan. A microbatch is the schedule's timeline on the ranks'
// clocks, an update what verify-schedule predicts; the peak is the runtime's
// own plan.
#include "tools/plan/Plan.h"

#include "compiler/analysis/RankMemory.h"
#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Machine.h"
#include "compiler/dialects/nn/Interfaces.h"
#include "compiler/options/Options.h"
#include "compiler/schedule/rounding.h"
#include "passes/schedule/Prediction.h"
#include "runtime/abi/memory_plan.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::plan;

namespace {

// The flops of the forward's products. What is computed again stands in the
// backward and is not the model's own work.
double forwardFlops(const passes::ScheduleIR &ir) {
  double flops = 0;
  for (Operation *op : ir.ops) {
    auto count = op->getAttrOfType<IntegerAttr>(fsdp::FSDPDialect::kFlopsAttr);
    if (count && isa<nn::LibraryCallOpInterface>(op) &&
        !op->hasAttr(fsdp::FSDPDialect::kBackwardAttr))
      flops += double(count.getInt());
  }
  return flops;
}

// The part of each collective's duration that the links between nodes take:
// what it is longer than on a machine where these cost nothing.
std::vector<double> crossShares(passes::ScheduleIR &ir,
                                const schedule::Machine &machine) {
  schedule::Machine near = machine;
  near.nodes = {INFINITY, INFINITY, 0, 0};
  passes::setDurations(ir, near);
  std::vector<double> shares;
  for (const schedule::Collective &c : ir.problem.collectives)
    shares.push_back(c.durationUs);
  passes::setDurations(ir, machine);
  for (auto [share, c] : llvm::zip_equal(shares, ir.problem.collectives))
    share = c.durationUs > 0 ? 1 - share / c.durationUs : 0;
  return shares;
}

} // namespace

FailureOr<Plan> Plan::of(ModuleOp module) {
  FailureOr<func::FuncOp> function = fsdp::getMicrobatch(module);
  if (failed(function))
    return failure();
  FailureOr<passes::ScheduleIR> ir = passes::readSchedule(*function);
  if (failed(ir))
    return failure();
  Plan plan;
  plan.module = module;
  plan.ir = std::move(*ir);
  plan.manifest = analysis::describeRank(module);
  plan.machine = fsdp::machineOf(module);
  plan.productFlops = forwardFlops(plan.ir);
  plan.ir.problem.baseBytes = analysis::RankMemory(module).total();
  // As the log counts them: a batch of sequences has two axes of i64.
  if (!plan.manifest.inputs.empty()) {
    const Input &input = plan.manifest.inputs[0];
    plan.samples = samplesPerMicrobatch(plan.manifest);
    if (input.shape.size() == 2 && input.dtype == "i64")
      plan.tokens = input.shape[0] * input.shape[1];
  }
  return plan;
}

LogicalResult Plan::checkAccumulate(int64_t accumulate) {
  if (manifest.maxAccumulate == 0 || accumulate <= manifest.maxAccumulate)
    return success();
  return emitError(module.getLoc(), "'--accumulate' is ")
         << accumulate << ", but '--max-accumulate' of the plan is "
         << manifest.maxAccumulate << "; compile again with more";
}

void Plan::setRanks(int64_t ranks) {
  machine.ranks = int(ranks);
  passes::setDurations(ir, machine);
}

double Plan::opsUs() const {
  double us = 0;
  for (const schedule::Op &op : ir.problem.ops)
    us += op.durationUs;
  return us;
}

std::vector<schedule::Contributor> Plan::owners(size_t count) const {
  std::vector<schedule::Contributor> owners = schedule::largestContributors(
      schedule::liveIntervals(ir.problem, ir.schedule), count);
  // The arena's contents have been listed with their owners.
  Manifest outside = manifest;
  outside.arenaBytes = outside.arenaGathered = outside.arenaGradients =
      outside.arenaActivations = 0;
  for (const auto &[kind, bytes] :
       analysis::planRank(outside, machine.ranks).kinds())
    if (bytes > 0)
      owners.push_back({kind, bytes});
  llvm::stable_sort(
      owners, [](const auto &a, const auto &b) { return a.bytes > b.bytes; });
  owners.resize(std::min(count, owners.size()));
  return owners;
}

Estimate Plan::estimate(int64_t ranks, const Conditions &conditions) {
  setRanks(ranks);
  Estimate estimate;
  estimate.ranks = ranks;
  std::vector<double> cross = crossShares(ir, machine);
  schedule::Unevenness unevenness = conditions.unevenness;
  // Equal microbatches are simulated once.
  int64_t drawn = unevenness.jitter > 0 ? conditions.accumulate : 1;
  double sum = 0;
  for (int64_t k = 0; k < drawn; ++k, ++unevenness.seed) {
    schedule::ClusterTimeline timeline = schedule::simulateCluster(
        ir.problem, ir.schedule, int(ranks), unevenness);
    sum += timeline.stepUs;
    for (auto [us, share] : llvm::zip_equal(timeline.exposedUs, cross)) {
      estimate.crossExposedUs += us * share / double(drawn);
      estimate.nodeExposedUs += us * (1 - share) / double(drawn);
    }
  }
  estimate.microbatchUs = schedule::roundedUs(sum / double(drawn));
  estimate.updateUs = schedule::roundedUs(
      passes::UpdatePredictor(module).predictUs(ir, machine));
  estimate.stepUs =
      estimate.microbatchUs * double(conditions.accumulate) + estimate.updateUs;
  estimate.slowedUs = schedule::simulate(ir.problem, ir.schedule).slowedUs;
  double steps = 1e6 / estimate.stepUs;
  double microbatches = double(ranks * conditions.accumulate);
  estimate.samplesPerSecond = double(samples) * microbatches * steps;
  estimate.tokensPerSecond = double(tokens) * microbatches * steps;
  ElementType type = fsdp::CompileOptions::of(module).paramType;
  double peak = machine.ratesOf("matmul")[size_t(type)].gflops.stated * 1e3 *
                machine.cores; // flops per µs
  if (peak > 0)
    estimate.mfu = 3 * productFlops * double(conditions.accumulate) /
                   (estimate.stepUs * peak);
  estimate.peakBytes = analysis::planRank(manifest, int(ranks)).total();
  return estimate;
}

std::string plan::unitOf(Operation *op) {
  auto unit =
      op->getAttrOfType<FlatSymbolRefAttr>(fsdp::FSDPDialect::kUnitAttr);
  return unit ? unit.getValue().str() : "";
}

std::string plan::timeText(double us) {
  return us < 1e6 ? llvm::formatv("{0:F3} ms", us / 1e3).str()
                  : llvm::formatv("{0:F3} s", us / 1e6).str();
}

std::string plan::bytesText(int64_t bytes) {
  double mebibytes = double(bytes) / (1 << 20);
  return mebibytes < 1024 ? llvm::formatv("{0:F1} MiB", mebibytes).str()
                          : llvm::formatv("{0:F2} GiB", mebibytes / 1024).str();
}
