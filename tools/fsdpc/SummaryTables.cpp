// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints the tables of a compile's summary, whose columns are numbers of ranks:
// the step that the cost model expects, and the memory per rank. Scripts find
// rows by their names and columns by the number of ranks.
#include "tools/fsdpc/Summary.h"

#include "compiler/analysis/RankMemory.h"
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/fsdp/Machine.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/support/concat.h"
#include "runtime/support/spelling.h"
#include "tools/fsdpc/TextStreams.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

#include <cinttypes>
#include <set>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::driver;
using namespace fsdpc::analysis;

namespace {

/// What the phase `schedule` has predicted, in µs by number of ranks.
struct Prediction {
  ArrayRef<int64_t> ranks;
  ArrayRef<double> microbatches, updates;

  double stepUs(size_t column) const {
    return microbatches[column] + updates[column];
  }
  /// Returns nullopt before that phase.
  static std::optional<Prediction> of(ModuleOp module);
};

std::optional<Prediction> Prediction::of(ModuleOp module) {
  auto lists =
      module->getAttrOfType<DictionaryAttr>(fsdp::FSDPDialect::kPredictedAttr);
  if (!lists)
    return std::nullopt;
  auto times = [&](StringRef name) {
    return lists.getAs<DenseF64ArrayAttr>(name).asArrayRef();
  };
  return Prediction{lists.getAs<DenseI64ArrayAttr>("ranks").asArrayRef(),
                    times("microbatch_us"), times("update_us")};
}

} // namespace

// Returns the numbers of ranks with a column of memory: a few sizes of jobs,
// and the one that the plan was made for.
static std::set<int64_t> columnRanks(int64_t planRanks) {
  return {1, 2, 4, 8, 64, planRanks};
}

void fsdpc::driver::printTotals(ModuleOp module, const Manifest *manifest) {
  std::optional<Prediction> predicted = Prediction::of(module);
  if (!predicted)
    return;
  std::set<int64_t> counts = columnRanks(fsdp::machineOf(module).ranks);
  textOut() << "on each rank (-v prints the parts):\n"
            << llvm::left_justify("  ranks", 21);
  for (int64_t ranks : counts)
    textOut() << llvm::format("%11" PRId64, ranks);
  if (manifest) {
    textOut() << "\n  planned peak, MiB  ";
    for (int64_t ranks : counts)
      textOut() << llvm::format("%11.1f",
                                mebibytes(plannedPeak(*manifest, ranks)));
  }
  textOut() << "\n  predicted step, ms ";
  for (auto [column, ranks] : llvm::enumerate(predicted->ranks))
    if (counts.count(ranks))
      textOut() << llvm::format("%11.3f", predicted->stepUs(column) / 1e3);
  textOut() << '\n';
}

void fsdpc::driver::printPrediction(ModuleOp module) {
  std::optional<Prediction> predicted = Prediction::of(module);
  if (!predicted)
    return;
  textOut() << "predicted step in ms ("
            << runtime::printable(fsdp::machineOf(module).name) << "):\n"
            << llvm::left_justify("  ranks", 16);
  for (int64_t ranks : predicted->ranks)
    textOut() << llvm::format("%12" PRId64, ranks);
  auto row = [&](StringRef name, auto us) {
    textOut() << "\n  " << llvm::left_justify(name, 14);
    for (size_t i = 0; i < predicted->ranks.size(); ++i)
      textOut() << llvm::format("%12.3f", us(i) / 1e3);
  };
  row("microbatch", [&](size_t i) { return predicted->microbatches[i]; });
  row("update", [&](size_t i) { return predicted->updates[i]; });
  row("step", [&](size_t i) { return predicted->stepUs(i); });
  textOut() << '\n';
}

int64_t fsdpc::driver::plannedPeak(const Manifest &manifest, int ranks) {
  return planRank(manifest, ranks).total();
}

void fsdpc::driver::printMemoryTable(const Manifest &manifest) {
  int threads = manifest.planThreads;
  std::string device =
      manifest.target == "host"
          ? concat(threads, threads > 1 ? " threads" : " thread",
                   manifest.cpu.empty() ? "" : ", " + manifest.cpu)
          : manifest.target + ", " + llvm::join(manifest.gpuArchs, " ");
  textOut() << "memory per rank in MiB (" << device << "):\n";
  std::set<int64_t> counts = columnRanks(manifest.planRanks);
  textOut() << llvm::left_justify("  ranks", 16);
  for (int64_t ranks : counts)
    textOut() << llvm::format("%11" PRId64, ranks);
  textOut() << '\n';
  if (usesGroups(manifest)) {
    textOut() << llvm::left_justify("  shard group", 16);
    for (int ranks : counts)
      textOut() << llvm::format("%10d",
                                plannedGroup(manifest, ranks, /*wanted=*/0));
    textOut() << '\n';
  }
  std::vector<MemoryPlan> plans;
  for (int64_t ranks : counts)
    plans.push_back(planRank(manifest, ranks));
  auto row = [&](StringRef name, auto value) {
    textOut() << "  " << llvm::left_justify(name, 14);
    for (const MemoryPlan &plan : plans)
      textOut() << llvm::format("%11.1f", mebibytes(value(plan)));
    textOut() << '\n';
  };
  // All plans list the same kinds in the same order.
  for (size_t kind = 0; kind < plans[0].kinds().size(); ++kind)
    row(plans[0].kinds()[kind].first,
        [&](const MemoryPlan &plan) { return plan.kinds()[kind].second; });
  row("planned peak", [](const MemoryPlan &plan) { return plan.total(); });
  if (plans[0].offloaded > 0)
    row(offloadedName(manifest),
        [](const MemoryPlan &plan) { return plan.offloaded; });
  std::string owners = describeOwners(manifest, manifest.planRanks, "  ");
  if (!owners.empty())
    textOut() << "owners on " << manifest.planRanks << " ranks:\n" << owners;
}
