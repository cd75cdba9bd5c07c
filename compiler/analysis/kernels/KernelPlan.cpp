// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses a kernel's template and loops, and plans maps. The template follows
// from the reductions: none is a map, reductions over leading axes whose
// results are the outputs are columns, anything else is rows. The number of
// lanes is chosen so that every address is linear in the lane, which is what
// vector loads need. Where a reduction would then add up in another order, the
// lanes gather instead (ReductionOrder.h).
#include "compiler/analysis/kernels/KernelPlanner.h"
#include "compiler/analysis/kernels/ReductionOrder.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::analysis;
using nn::shapeOf;

// Returns how many reductions must be complete, one after the other, before the
// value can be computed.
int Planner::level(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return 0;
  auto known = levels.find(value);
  if (known != levels.end())
    return known->second;
  int result = 0;
  for (Value operand : op->getOperands())
    result = std::max(result, level(operand));
  result += isa<nn::ReduceOp>(op);
  levels[value] = result;
  return result;
}

BodyWalk Planner::walk(Stage &stage) {
  // Conditions on the lane cut the loop where they change. Within a part other
  // conditions may become decidable or appear, so this repeats until no cut is
  // new.
  stage.cuts.clear();
  while (true) {
    BodyWalk result(plan.space);
    SmallVector<int64_t> bounds = {0};
    llvm::append_range(bounds, stage.cuts);
    bounds.push_back(stage.lanes);
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      plan.space.setRange(stage.laneVariable, {bounds[i], bounds[i + 1] - 1});
      result.beginPart();
      for (const Root &root : stage.roots)
        result.visit(root.value, root.index);
    }
    plan.space.setRange(stage.laneVariable, {0, stage.lanes - 1});
    size_t known = stage.cuts.size();
    for (int64_t cut : result.cuts)
      if (cut > 0 && cut < stage.lanes && !llvm::is_contained(stage.cuts, cut))
        stage.cuts.push_back(cut);
    llvm::sort(stage.cuts);
    if (stage.cuts.size() == known)
      return result;
  }
}

BodyWalk Planner::setLanes(Stage &stage, int64_t count, int64_t lanes,
                           int outerDepth, int laneDepth, SetIndices index) {
  stage.lanes = lanes;
  stage.outer = count / lanes;
  stage.outerVariable = plan.space.variable(outerDepth, stage.outer);
  stage.laneVariable = plan.space.variable(laneDepth, lanes, /*isLane=*/true);
  index(stage, plan.space.add(plan.space.scale(stage.outerVariable, lanes),
                              stage.laneVariable));
  BodyWalk result = walk(stage);
  stage.cost = result.cost;
  stage.drawsRandom = result.drawsRandom;
  stage.gathers = result.gathers;
  return result;
}

LogicalResult Planner::chooseLanes(Stage &stage, int64_t count, int outerDepth,
                                   int laneDepth, SetIndices index) {
  auto keepsOrder = [&](int64_t lanes) {
    return !stage.run || lanes == stage.run ||
           (stage.run % lanes == 0 && lanes % kWidestPart == 0);
  };
  if (given) {
    size_t number = plan.stages.size() - 1;
    if (number >= given.getLanes().size())
      return emitError() << "has " << given.getLanes().size()
                         << " stages in its plan, but needs more";
    int64_t lanes = given.getLanes()[number];
    if (count % lanes != 0)
      return emitError() << "has " << lanes << " lanes in stage " << number
                         << " of its plan, which do not divide the stage's "
                         << count << " elements";
    if (!keepsOrder(lanes))
      return emitError() << "has " << lanes << " lanes in stage " << number
                         << " of its plan, which would add up a row in another "
                            "order; runs of "
                         << stage.run << " elements are cut at multiples of "
                         << kWidestPart << " or not at all";
    setLanes(stage, count, lanes, outerDepth, laneDepth, index);
    return success();
  }
  // From the longest loop downwards: each step cuts at a divisor that makes
  // addresses linear.
  int64_t lanes = stage.run ? stage.run : count;
  while (true) {
    BodyWalk result =
        setLanes(stage, count, lanes, outerDepth, laneDepth, index);
    int64_t next = 0;
    for (int64_t cut : result.divisors)
      // Which code of a byte a lane takes is chosen lane by lane.
      if (cut < lanes && (!result.readsRuns || cut >= kRunLanes) &&
          lanes % cut == 0 && keepsOrder(cut))
        next = std::max(next, cut);
    if (next <= 1)
      return success();
    lanes = next;
  }
}

LogicalResult Planner::cutBlocks(const Stage &stage, int64_t chosen) {
  plan.blockLanes = given ? given.getBlockLanes() : chosen;
  if (plan.blockLanes % kColumnBlock != 0)
    return emitError() << "has blocks of " << plan.blockLanes
                       << " lanes in its plan; vectors need multiples of "
                       << kColumnBlock;
  if (plan.blockLanes)
    plan.blocks = llvm::divideCeil(stage.lanes, plan.blockLanes);
  return success();
}

// Checks that each reduction is read at the row that computes it. Reading the
// result of another row would need all rows to be complete.
LogicalResult Planner::checkReductions(const BodyWalk &walk) {
  for (const auto &[op, index] : walk.reductions) {
    IndexExpr position = plan.space.linearize(index, shapeOf(op->getResult(0)));
    IndexExpr own = plan.row;
    if (plan.kind == nn::KernelTemplate::column)
      own =
          plan.space.add(plan.space.scale(plan.row, plan.stages.front().lanes),
                         plan.stages.front().laneVariable);
    if (!(position == own))
      return op->emitOpError("is read by another row of its kernel '")
             << kernel.getSymName() << "'";
  }
  return success();
}

// All outputs must have the same number of elements, which one loop computes.
LogicalResult Planner::planMap() {
  Stage &stage = plan.stages.emplace_back();
  int64_t count = elements(terminator->getOperand(0));
  for (auto [i, output] : llvm::enumerate(terminator->getOperands())) {
    if (elements(output) != count)
      return emitError() << "has outputs of different sizes";
    stage.roots.push_back({output, {}, static_cast<int>(i), {}, {}});
  }
  // Each run of lanes is a row, and the range is over runs, so no outer loop is
  // left.
  LogicalResult result =
      chooseLanes(stage, count, /*outerDepth=*/0, /*laneDepth=*/2,
                  [&](Stage &stage, const IndexExpr &linear) {
                    for (Root &root : stage.roots)
                      root.index =
                          plan.space.delinearize(linear, shapeOf(root.value));
                  });
  if (failed(result))
    return failure();
  plan.row = stage.outerVariable;
  plan.rows = stage.outer;
  stage.outerVariable = 0;
  stage.outer = 1;
  plan.rowsInside = given ? given.getRowsInside()
                          : stage.gathers && stage.lanes > kLongestGather;
  int64_t block = plan.rowsInside ? kGatherBlock : kMapBlock;
  return cutBlocks(stage, stage.lanes > 2 * block ? block : 0);
}

// Sets the extent, and the grain such that a piece of the range is worth waking
// a thread for.
void Planner::setGrain() {
  constexpr int64_t kWorth = 1 << 17; // simple ops
  plan.extent = plan.rows * plan.blocks / plan.rowsPerBlock;
  if (given) {
    plan.grain = given.getGrain();
    return;
  }
  int64_t total = 0;
  // Four for the loads and stores of an element.
  for (const Stage &stage : plan.stages)
    total += stage.outer * stage.lanes * (stage.cost + 4);
  total = total * plan.rowsPerBlock / plan.blocks;
  int64_t each = std::max<int64_t>(1, total);
  plan.grain = std::clamp<int64_t>(kWorth / each, 1, plan.extent);
}

nn::KernelTemplate Planner::chooseTemplate() {
  if (terminator->getOperand(0).getDefiningOp<nn::EmbeddingGradOp>())
    return nn::KernelTemplate::embedding_grad;
  if (!rowSums.empty())
    return nn::KernelTemplate::row;
  if (reductions.empty())
    return nn::KernelTemplate::map;
  return fitsColumns() ? nn::KernelTemplate::column : nn::KernelTemplate::row;
}

// Each template adds up a reduction in its own order. So a plan may only name
// the template that follows from the kernel's body.
LogicalResult Planner::checkTemplate() {
  if (plan.kind == chooseTemplate())
    return success();
  return emitError() << "cannot be computed by the template '"
                     << stringifyKernelTemplate(plan.kind)
                     << "' of its plan; plan-kernels chooses one that fits";
}

// The walks through a body, and the emitters, call themselves for each op that
// a value is computed from. outline-kernels forms small kernels; those of an
// edited dump may have any size.
LogicalResult Planner::checkDepth() {
  constexpr int deepest = 2048;
  DenseMap<Operation *, int> depths;
  for (Operation &op : kernel.getBody().front()) {
    int depth = 0;
    for (Value operand : op.getOperands())
      if (Operation *producer = operand.getDefiningOp())
        depth = std::max(depth, depths.lookup(producer));
    depths[&op] = ++depth;
    if (depth > deepest)
      return emitError() << "has more than " << deepest
                         << " ops in a row; divide it into several kernels";
  }
  return success();
}

FailureOr<KernelPlan> Planner::run() {
  if (terminator->getNumOperands() == 0)
    return emitError() << "has no output";
  if (failed(checkDepth()))
    return failure();
  collectReductions();
  plan.kind = given ? given.getKernelTemplate() : chooseTemplate();
  if (failed(checkTemplate()))
    return failure();
  LogicalResult result = success();
  switch (plan.kind) {
  case nn::KernelTemplate::map:
    result = planMap();
    break;
  case nn::KernelTemplate::row:
    result = planRows();
    break;
  case nn::KernelTemplate::column:
    result = planColumns();
    break;
  case nn::KernelTemplate::embedding_grad:
    result = planEmbeddingGrad();
    break;
  }
  if (failed(result))
    return failure();
  setGrain();
  if (given && failed(checkGiven()))
    return failure();
  return std::move(plan);
}
