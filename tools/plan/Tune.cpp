// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints the results of `fsdpc tune`: the front, and what binds its fastest
// plan. A plan is bound by the largest part of its step, and by memory too if a
// plan above the cap would be faster. Search.cpp decides what is planned.
#include "tools/plan/Tune.h"

#include "compiler/codegen/Files.h"
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/fsdp/Machine.h"
#include "compiler/options/OptionTable.h"
#include "tools/fsdpc/TextStreams.h"
#include "tools/plan/Measure.h"
#include "tools/plan/Search.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::plan;

namespace {

std::string share(double part, double whole) {
  return llvm::formatv("{0:F1} %", whole > 0 ? 100 * part / whole : 0).str();
}

std::string settingsText(const Point &point) {
  std::string text =
      point.settings.empty() ? "(the flags as given)" : flagsOf(point.settings);
  if (point.accumulate > 1)
    text +=
        llvm::formatv("  (runs with --accumulate {0})", point.accumulate).str();
  return text;
}

void printFront(const SearchResult &result) {
  driver::textOut() << llvm::formatv("{0,14} {1,12} {2,12} {3,7}  {4}\n",
                                     "step ms", "samples/s", "planned MiB",
                                     "MFU %", "flags");
  for (size_t i : result.front) {
    const Point &point = result.points[i];
    const Estimate &estimate = point.estimate;
    driver::textOut() << llvm::formatv(
        "{0,14:F3} {1,12:F1} {2,12:F1} {3,7:F1}  {4}\n", estimate.stepUs / 1e3,
        estimate.samplesPerSecond, double(estimate.peakBytes) / (1 << 20),
        estimate.mfu * 100, settingsText(point));
  }
}

// Prints the parts of the plan's step. A better link would shorten the largest
// part beside the ops.
void printParts(const Point &best) {
  const Estimate &estimate = best.estimate;
  double step = estimate.stepUs, k = double(best.accumulate);
  double ops = best.opsUs * k, node = estimate.nodeExposedUs * k,
         cross = estimate.crossExposedUs * k, slowed = estimate.slowedUs * k;
  driver::textOut() << "the fastest: ops " << share(ops, step)
                    << " of the step, exposed within nodes "
                    << share(node, step) << ", between nodes "
                    << share(cross, step) << ", slowed by collectives "
                    << share(slowed, step) << ", update "
                    << share(estimate.updateUs, step) << "\n";
  double waiting = node + cross + slowed + estimate.updateUs;
  if (ops >= waiting)
    driver::textOut()
        << "bound by compute: no schedule is faster than its ops, "
        << timeText(ops) << " of " << timeText(step) << "\n";
  else {
    std::pair<double, StringRef> parts[] = {
        {estimate.updateUs, "the update"},
        {node + slowed, "the links within a node"},
        {cross, "the links between nodes"}};
    auto [part, name] = *llvm::max_element(parts);
    driver::textOut() << "bound by " << name << ", for " << timeText(part)
                      << " of " << timeText(step) << "\n";
  }
}

// Prints the cost of the memory cap: the fastest plan that does not fit.
void printMemoryBound(const SearchResult &result, const Point &best,
                      int64_t cap) {
  if (cap == 0)
    return;
  driver::textOut() << "planned peak: " << bytesText(best.estimate.peakBytes)
                    << " of " << bytesText(cap) << "\n";
  const Point *faster = nullptr;
  for (const Point &point : result.over)
    if (point.isValid() && point.estimate.stepUs < best.estimate.stepUs &&
        (!faster || point.estimate.stepUs < faster->estimate.stepUs))
      faster = &point;
  if (faster)
    driver::textOut() << "bound by memory too: " << settingsText(*faster)
                      << " would take " << timeText(faster->estimate.stepUs)
                      << ", "
                      << share(best.estimate.stepUs - faster->estimate.stepUs,
                               best.estimate.stepUs)
                      << " less, and " << bytesText(faster->estimate.peakBytes)
                      << "\n";
}

// The plans with one setting that differs from the best, unless it changes
// nothing, as a limit that does not bind.
void printAlternatives(const SearchResult &result, const Point &best) {
  for (const Point &point : result.points) {
    bool isSame = point.estimate.stepUs == best.estimate.stepUs &&
                  point.estimate.peakBytes == best.estimate.peakBytes;
    if (isSame || !point.isValid())
      continue;
    size_t common = 0;
    for (const auto &setting : point.settings)
      common += llvm::is_contained(best.settings, setting);
    size_t apart = std::max(best.settings.size(), point.settings.size());
    if (apart - common > 1)
      continue;
    driver::textOut() << "instead " << settingsText(point) << ": "
                      << llvm::formatv("{0:F1}",
                                       100 * (point.estimate.stepUs /
                                                  best.estimate.stepUs -
                                              1))
                      << " % longer, " << bytesText(point.estimate.peakBytes)
                      << "\n";
  }
}

llvm::json::Object toJson(const Point &point) {
  llvm::json::Array flags;
  for (const auto &[name, value] : point.settings)
    flags.push_back("--" + name + "=" + value);
  llvm::json::Object object{{"flags", std::move(flags)},
                            {"accumulate", point.accumulate}};
  if (point.isValid())
    object["step"] = plan::toJson(point.estimate);
  else
    object["fault"] = llvm::json::fixUTF8(point.fault);
  return object;
}

LogicalResult writeJson(const SearchResult &result, int64_t cap,
                        StringRef path) {
  llvm::json::Array points, over, front;
  for (const Point &point : result.points)
    points.push_back(toJson(point));
  for (const Point &point : result.over)
    over.push_back(toJson(point));
  for (size_t i : result.front)
    front.push_back(int64_t(i));
  llvm::json::Object object{{"format", "fsdpc tune 1"},
                            {"cap_bytes", cap},
                            {"points", std::move(points)},
                            {"over", std::move(over)},
                            {"front", std::move(front)}};
  std::string text =
      llvm::formatv("{0:2}\n", llvm::json::Value(std::move(object)));
  std::string fault = codegen::writeFile(path, text);
  if (fault.empty())
    return success();
  driver::textErr() << "error: " << fault << "\n";
  return failure();
}

// Takes the cap off the options: plans are made with and without it. Without
// --memory it is what the machine's file says.
int64_t takeCap(fsdp::CompileOptions &options,
                const schedule::Machine &machine) {
  int64_t cap = options.memoryLimit.bytes;
  options.memoryLimit = {};
  llvm::erase(options.given, fsdp::findOption("memory-limit"));
  return cap ? cap : int64_t(machine.memoryGiB * (1 << 30));
}

} // namespace

LogicalResult plan::tune(const driver::CommandLine &line,
                         OwningOpRef<ModuleOp> imported,
                         const Importer &importAgain) {
  SearchRequest request;
  // With those that the model itself sets.
  request.options = fsdp::CompileOptions::of(*imported);
  request.machine = fsdp::machineOf(*imported);
  request.cap = takeCap(request.options, request.machine);
  request.accumulate = line.plan.accumulate;
  request.batchDim = line.plan.batchDim;
  (*imported)->setAttr(
      fsdp::CompileOptions::kAttribute,
      fsdp::writeOptions(request.options, imported->getContext()));
  Planner planner(request.options, request.cap, std::move(imported),
                  importAgain);
  SearchResult result = search(planner, request);
  if (!line.plan.json.empty() &&
      failed(writeJson(result, request.cap, line.plan.json)))
    return failure();
  if (result.front.empty()) {
    // The plan of the flags as given says best what is missing.
    const Point &given = result.points.front();
    driver::textErr() << "error: none of " << planner.planned
                      << " plans fits: " << given.fault << "\n";
    return failure();
  }
  const Point &best = result.points[result.front.front()];
  driver::textOut()
      << "tuned for " << request.machine.name << ", "
      << request.options.planRanks << " ranks: " << planner.planned
      << " plans, none of which beats these in both step and planned peak\n";
  printFront(result);
  printParts(best);
  printMemoryBound(result, best, request.cap);
  printAlternatives(result, best);
  return line.plan.measured > 0
             ? measure(planner, request, result, line.plan.measured)
             : success();
}
