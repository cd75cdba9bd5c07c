// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the maximum and the sum of each softmax in a kernel of rows, which may
// share their stages with other reductions, and moves them to stages of their
// own; see OnlineRows.h.
#include "compiler/analysis/kernels/OnlineRows.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::analysis;

namespace {

// A row of fewer elements stays in a multiprocessor's first-level cache for its
// next loop, which costs less than to scale sums.
constexpr int64_t kLongRow = 1024;

bool reducesRow(const Root &root, nn::ReduceKind kind) {
  nn::ReduceOp op = root.reduce;
  return op && !root.addsRows() && op.getKind() == kind;
}

int64_t lengthOf(const Stage &stage) { return stage.outer * stage.lanes; }

// Returns true for exp(x - max), with the maximum broadcast over its row.
bool isExpBelow(Value value, Value x, Value max) {
  auto exp = value.getDefiningOp<nn::ExpOp>();
  auto difference = exp ? exp.getInput().getDefiningOp<nn::SubOp>() : nullptr;
  auto broadcast = difference
                       ? difference.getRhs().getDefiningOp<nn::BroadcastOp>()
                       : nullptr;
  return broadcast && difference.getLhs() == x && broadcast.getInput() == max;
}

// A root by its stage and its number in it.
struct Place {
  size_t stage, root;
};

// Returns the sum of exp(x - max) whose maximum is at `max`.
std::optional<Place> findSum(const KernelPlan &plan, Place max) {
  const Stage &first = plan.stages[max.stage];
  const Root &root = first.roots[max.root];
  nn::ReduceOp maximum = root.reduce;
  for (size_t i = max.stage + 1; i < plan.stages.size(); ++i) {
    const Stage &stage = plan.stages[i];
    if (lengthOf(stage) != lengthOf(first) || stage.run != first.run)
      continue;
    for (auto [number, sum] : llvm::enumerate(stage.roots))
      if (reducesRow(sum, nn::ReduceKind::sum) &&
          isExpBelow(sum.value, root.value, maximum.getResult()))
        return Place{i, number};
  }
  return std::nullopt;
}

// Returns a copy of the stage with this root alone.
Stage withRoot(const Stage &stage, size_t root) {
  Stage result = stage;
  result.roots = {stage.roots[root]};
  return result;
}

void removeRoot(KernelPlan &plan, Place at) {
  Stage &stage = plan.stages[at.stage];
  stage.roots.erase(stage.roots.begin() + at.root);
  if (stage.roots.empty())
    plan.stages.erase(plan.stages.begin() + at.stage);
}

// Puts both stages where the maximum was: the sum reads no more than the
// maximum and the elements below it.
void separate(KernelPlan &plan, Place max, Place sum) {
  Stage pair[] = {withRoot(plan.stages[max.stage], max.root),
                  withRoot(plan.stages[sum.stage], sum.root)};
  removeRoot(plan, sum);
  removeRoot(plan, max);
  plan.stages.insert(plan.stages.begin() + max.stage, std::begin(pair),
                     std::end(pair));
}

// Returns the first maximum of a stage that is followed by a sum that findSum
// accepts, and that sum.
std::optional<std::pair<Place, Place>> findPair(const KernelPlan &plan,
                                                size_t number) {
  const Stage &stage = plan.stages[number];
  if (lengthOf(stage) <= kLongRow)
    return std::nullopt;
  for (auto [i, root] : llvm::enumerate(stage.roots)) {
    Type element = nn::tensorType(root.value).getElementType();
    if (!reducesRow(root, nn::ReduceKind::max) ||
        !(element.isF32() || element.isF64()))
      continue;
    if (std::optional<Place> sum = findSum(plan, {number, i}))
      return std::pair(Place{number, i}, *sum);
  }
  return std::nullopt;
}

} // namespace

SmallVector<size_t, 1> analysis::separateOnlineStages(KernelPlan &plan) {
  SmallVector<size_t, 1> result;
  for (size_t i = 0; i < plan.stages.size(); ++i)
    if (auto pair = findPair(plan, i)) {
      separate(plan, pair->first, pair->second);
      result.push_back(i++);
    }
  return result;
}
