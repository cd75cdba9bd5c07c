// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of strategies. ZeRO's stages (Rajbhandari et al., SC 2020) each
// shard one thing more: optimizer state, gradients, parameters. The hybrid ones
// do so within groups of ranks and replicate across them. Oss shards by whole
// parameters (FairScale's OSS).
#include "compiler/options/StrategyTable.h"
#include "compiler/options/NameLists.h"

#include "llvm/ADT/STLExtras.h"

#include <tuple>

using namespace mlir;

namespace fsdpc::fsdp {

constexpr StrategyInfo strategies[] = {
    {.name = "ddp",
     .replicated = "master|compute|state",
     .reducesAtEnd = true,
     .alias = "no_shard"},
    {.name = "zero1", .replicated = "compute", .reducesAtEnd = true},
    {.name = "zero2", .replicated = "compute", .alias = "shard_grad_op"},
    {.name = "zero3", .replicated = "", .alias = "full_shard"},
    {.name = "hybrid",
     .replicated = "",
     .over = CutOver::Group,
     .alias = "hybrid_shard"},
    {.name = "hybrid_zero2",
     .replicated = "compute",
     .over = CutOver::Group,
     .alias = "hybrid_shard_zero2"},
    {.name = "hybrid_zero1",
     .replicated = "compute",
     .over = CutOver::Group,
     .reducesAtEnd = true},
    {.name = "oss", .replicated = "compute", .over = CutOver::Owner}};

bool StrategyInfo::replicates(StringRef what) const {
  return llvm::is_contained(namesIn(replicated), what);
}

ArrayRef<StrategyInfo> allStrategies() { return strategies; }

bool shardsMore(Strategy a, Strategy b) {
  auto key = [](Strategy strategy) {
    return std::tuple(namesIn(strategy->replicated).size(),
                      strategy->reducesAtEnd, strategy->over);
  };
  return key(a) < key(b);
}

Strategy defaultStrategy() {
  Strategy most = strategies;
  for (const StrategyInfo &row : strategies)
    if (shardsMore(&row, most))
      most = &row;
  return most;
}

Strategy unsharded() {
  return llvm::find_if_not(strategies, [](auto &row) { return row.shards(); });
}

// A test checks that there is such a row for each that is asked for.
static Strategy rowWith(StringRef replicated, CutOver over, bool reducesAtEnd) {
  const StrategyInfo *row =
      llvm::find_if(strategies, [&](const StrategyInfo &row) {
        return row.replicated == replicated && row.over == over &&
               row.reducesAtEnd == reducesAtEnd;
      });
  return row == std::end(strategies) ? nullptr : row;
}

Strategy persistent(Strategy strategy) {
  return strategy->gathersWeights()
             ? rowWith("compute", strategy->over, strategy->reducesAtEnd)
             : strategy;
}

Strategy overAllRanks(Strategy strategy) {
  return rowWith(strategy->replicated, CutOver::Ranks, strategy->reducesAtEnd);
}

SmallVector<Strategy> strategiesIn(const CompileOptions &options) {
  SmallVector<Strategy> found = {options.strategy};
  for (const StrategyRule &rule : options.strategyRules)
    if (!is_contained(found, rule.strategy))
      found.push_back(rule.strategy);
  return found;
}

} // namespace fsdpc::fsdp
