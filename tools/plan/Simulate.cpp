// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of `fsdpc simulate`: one row per number of ranks. The schedule is
// the same in all rows, as the program will run it on any number; only
// durations and memory follow the ranks.
#include "tools/plan/Simulate.h"

#include "compiler/codegen/Files.h"
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/fsdp/Machine.h"
#include "compiler/options/OptionTable.h"
#include "runtime/support/spelling.h"
#include "tools/fsdpc/TextStreams.h"
#include "tools/plan/Plan.h"
#include "tools/plan/Report.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::plan;

// The options that describe where a plan runs, and not what it is.
static bool isOfMachine(const fsdp::OptionInfo *option) {
  return llvm::is_contained(
      {"machine", "plan-threads", "plan-ranks-per-node", "plan-cross-node-gbs"},
      option->name);
}

void plan::takeMachine(ModuleOp module, fsdp::CompileOptions &given) {
  fsdp::CompileOptions kept = fsdp::CompileOptions::of(module);
  bool moved = false;
  for (const fsdp::OptionInfo *option : given.given) {
    if (!isOfMachine(option))
      continue;
    option->copy(given, kept);
    if (!llvm::is_contained(kept.given, option))
      kept.given.push_back(option);
    moved = true;
  }
  llvm::erase_if(given.given, isOfMachine);
  if (!moved)
    return;
  module->setAttr(fsdp::CompileOptions::kAttribute,
                  fsdp::writeOptions(kept, module.getContext()));
  schedule::Machine machine = fsdp::machineOf(module);
  // Costs that were edited in the dump were those of another machine.
  module.walk([&](Operation *op) {
    if (op->hasAttr(fsdp::FSDPDialect::kCostAttr) &&
        op->hasAttr(fsdp::FSDPDialect::kFlopsAttr))
      op->setAttr(
          fsdp::FSDPDialect::kCostAttr,
          Builder(op).getF64FloatAttr(fsdp::opUs(op, machine, kept.paramType)));
  });
}

// 8 to 16384 ranks by doubling, as far as the program will run on so many.
static std::vector<int64_t> usualRanks(int64_t most) {
  std::vector<int64_t> ranks;
  for (int64_t count = 8; count <= std::min<int64_t>(most, 16384); count *= 2)
    ranks.push_back(count);
  return ranks.empty() ? std::vector<int64_t>{most} : ranks;
}

static void printRow(const Estimate &estimate, const Estimate &first,
                     bool hasTokens) {
  double rate =
      hasTokens ? estimate.tokensPerSecond : estimate.samplesPerSecond;
  // Against so many times the first row's throughput per rank.
  double efficiency = estimate.samplesPerSecond / double(estimate.ranks) /
                      (first.samplesPerSecond / double(first.ranks));
  driver::textOut() << llvm::formatv(
      "{0,8} {1,14:F3} {2,14:F3} {3,10:F3} {4,10:F3} {5,10:F3} {6,15:F1} "
      "{7,7:F1} {8,7:F1} {9,11:F1}\n",
      estimate.ranks, estimate.stepUs / 1e3, estimate.microbatchUs / 1e3,
      estimate.updateUs / 1e3, estimate.nodeExposedUs / 1e3,
      estimate.crossExposedUs / 1e3, rate, estimate.mfu * 100, efficiency * 100,
      double(estimate.peakBytes) / (1 << 20));
}

LogicalResult plan::simulate(ModuleOp module, const driver::CommandLine &line) {
  FailureOr<Plan> found = Plan::of(module);
  if (failed(found))
    return failure();
  int64_t most = found->manifest.maxRanks;
  std::vector<int64_t> counts =
      line.plan.ranks.empty() ? usualRanks(most) : line.plan.ranks;
  for (int64_t ranks : counts)
    if (ranks > most)
      return emitError(module.getLoc(), "'--ranks' has ")
             << ranks << ", but '--max-ranks' of the plan is " << most
             << "; compile again with more";
  if (failed(found->checkAccumulate(line.plan.accumulate)))
    return failure();
  Conditions conditions{line.plan.accumulate, line.plan.unevenness};
  std::vector<Estimate> estimates;
  for (int64_t ranks : counts)
    estimates.push_back(found->estimate(ranks, conditions));

  bool hasTokens = estimates[0].tokensPerSecond > 0;
  driver::textOut() << "predicted steps ("
                    << runtime::printable(found->machine.name)
                    << "; schedule for " << found->manifest.planRanks
                    << " ranks; " << conditions.accumulate
                    << " microbatches per step)\n"
                    << llvm::formatv("{0,8} {1,14} {2,14} {3,10} {4,10} {5,10} "
                                     "{6,15} {7,7} {8,7} {9,11}\n",
                                     "ranks", "step ms", "microbatch ms",
                                     "update ms", "in nodes", "between",
                                     hasTokens ? "tokens/s" : "samples/s",
                                     "MFU %", "eff. %", "planned MiB");
  for (const Estimate &estimate : estimates)
    printRow(estimate, estimates[0], hasTokens);
  driver::textOut()
      << "in nodes, between: ms per microbatch that collectives stall "
         "a rank, by the links that take the time\n";

  if (!line.report.empty() &&
      failed(writeReport(*found, estimates[0], line.model, line.report,
                         line.reportTrace)))
    return failure();
  if (line.plan.json.empty())
    return success();
  llvm::json::Array steps;
  for (const Estimate &estimate : estimates)
    steps.push_back(toJson(estimate));
  llvm::json::Object object = toJson(*found, estimates[0]);
  object["steps"] = std::move(steps);
  std::string text =
      llvm::formatv("{0}\n", llvm::json::Value(std::move(object)));
  if (std::string fault = codegen::writeFile(line.plan.json, text);
      !fault.empty())
    return emitError(module.getLoc(), fault);
  return success();
}
