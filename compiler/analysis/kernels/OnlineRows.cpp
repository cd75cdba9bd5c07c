// Finds the maximum and the sum of a softmax; see OnlineRows.h.
#include "compiler/analysis/kernels/OnlineRows.h"

#include "compiler/dialects/nn/Build.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::analysis;

namespace {

// A row of fewer elements stays in a multiprocessor's first-level cache for its
// next loop, which costs less than to scale sums.
constexpr int64_t kLongRow = 1024;

// Returns the only root of a stage if it is a reduction of this kind over a
// row.
const Root *onlyReduction(const Stage &stage, nn::ReduceKind kind) {
  if (stage.roots.size() != 1)
    return nullptr;
  const Root &root = stage.roots.front();
  nn::ReduceOp op = root.reduce;
  return op && !root.addsRows() && op.getKind() == kind ? &root : nullptr;
}

// Returns true for exp(x - max), with the maximum broadcast over its row.
bool isExpBelow(Value value, Value x, Value max) {
  auto exp = value.getDefiningOp<nn::ExpOp>();
  auto difference = exp ? exp.getInput().getDefiningOp<nn::SubOp>() : nullptr;
  auto broadcast = difference
                       ? difference.getRhs().getDefiningOp<nn::BroadcastOp>()
                       : nullptr;
  return broadcast && difference.getLhs() == x && broadcast.getInput() == max;
}

} // namespace

std::optional<size_t> analysis::onlineStage(const KernelPlan &plan) {
  for (size_t i = 0; i + 1 < plan.stages.size(); ++i) {
    const Stage &first = plan.stages[i], &second = plan.stages[i + 1];
    const Root *max = onlyReduction(first, nn::ReduceKind::max);
    const Root *sum = onlyReduction(second, nn::ReduceKind::sum);
    if (!max || !sum || first.outer * first.lanes <= kLongRow)
      continue;
    Type element = nn::tensorType(max->value).getElementType();
    nn::ReduceOp maximum = max->reduce;
    bool sameLoop = first.lanes == second.lanes &&
                    first.outer == second.outer && first.run == second.run &&
                    first.cuts == second.cuts;
    if (sameLoop && (element.isF32() || element.isF64()) &&
        isExpBelow(sum->value, max->value, maximum.getResult()))
      return i;
  }
  return std::nullopt;
}
