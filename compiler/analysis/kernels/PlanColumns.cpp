// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans the templates whose lanes are columns: reductions over leading axes
// (column), and the gradient of a lookup (embedding_grad). Loads are
// consecutive, and no lanes have to be combined at the end.
#include "compiler/analysis/kernels/KernelPlanner.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::analysis;
using nn::shapeOf;

// The column template needs reductions over the same axes of one domain,
// computed directly from the operands, and outputs of the kept shape only.
bool Planner::fitsColumns() {
  nn::ReduceOp first = reductions.front();
  Domain domain(first);
  bool columns = !domain.reducesInnermost();
  for (nn::ReduceOp op : reductions)
    columns &= level(op.getInput()) == 0 &&
               shapeOf(op.getInput()) == ArrayRef<int64_t>(domain.shape) &&
               op.getAxes() == first.getAxes();
  for (Value output : terminator->getOperands())
    columns &= elements(output) == domain.keptCount();
  return columns;
}

// The reduced elements are the outer loop of the stage, the kept ones its
// lanes.
LogicalResult Planner::planColumns() {
  Domain domain(reductions.front());
  int64_t kept = domain.keptCount();
  Stage &stage = plan.stages.emplace_back();
  for (nn::ReduceOp op : reductions)
    stage.roots.push_back({op.getInput(), op, -1, {}, {}});
  for (auto [i, output] : llvm::enumerate(terminator->getOperands()))
    stage.roots.push_back({output, {}, static_cast<int>(i), {}, {}});

  // The lanes run over the innermost kept dimensions at most, the loop at depth
  // 2 over the reduced elements.
  IndexExpr within;
  LogicalResult result = chooseLanes(
      stage, kept, /*outerDepth=*/0, /*laneDepth=*/1,
      [&](Stage &stage, const IndexExpr &linear) {
        within = plan.space.variable(2, domain.reducedCount());
        for (Root &root : stage.roots)
          root.index =
              root.reduce
                  ? Domain(root.reduce).index(plan.space, linear, within)
                  : plan.space.delinearize(linear, shapeOf(root.value));
      });
  if (failed(result))
    return failure();
  plan.row = stage.outerVariable;
  plan.rows = stage.outer;
  stage.outerVariable = within;
  stage.outer = domain.reducedCount();
  if (failed(cutBlocks(stage, kColumnBlock)))
    return failure();
  return checkReductions(walk(stage));
}

// Lanes are columns, and the outer loop runs over the ids.
LogicalResult Planner::planEmbeddingGrad() {
  auto op = terminator->getOperand(0).getDefiningOp<nn::EmbeddingGradOp>();
  Stage &stage = plan.stages.emplace_back();
  stage.lanes = shapeOf(op.getResult()).back();
  stage.outer = elements(op.getIds());
  // A load and an addition.
  stage.cost = 2;
  stage.outerVariable = plan.space.variable(1, stage.outer);
  stage.laneVariable = plan.space.variable(2, stage.lanes, /*isLane=*/true);
  IndexExpr linear = plan.space.add(
      plan.space.scale(stage.outerVariable, stage.lanes), stage.laneVariable);
  stage.roots.push_back({op.getGrad(),
                         {},
                         0,
                         plan.space.delinearize(linear, shapeOf(op.getGrad())),
                         {}});
  if (nn::isHalf(nn::tensorType(op.getResult()).getElementType()))
    // The sums of a row in f32, the first place of each row, the next place of
    // each place, and 64 bytes of alignment for each of the three.
    plan.stackBytes =
        4 * (stage.lanes + shapeOf(op.getResult())[0] + stage.outer) + 3 * 64;
  return cutBlocks(stage, kColumnBlock);
}
