// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Between the plan of a kernel and its attribute: writes what the planner has
// chosen, and compares what it built from an attribute with the attribute's
// numbers. Numbers that follow from others stand in the attribute for the
// reader's sake, so an edit that changes one of them alone is an error.
#include "compiler/analysis/kernels/KernelPlanner.h"
#include "compiler/dialects/nn/NNDialect.h"

#include <tuple>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::analysis;
using nn::NNDialect;

InFlightDiagnostic Planner::emitError() {
  return kernel.emitError("kernel '") << kernel.getSymName() << "' ";
}

LogicalResult Planner::checkStages() {
  ArrayRef<int64_t> outer = given.getOuter(), lanes = given.getLanes();
  if (lanes.size() != plan.stages.size())
    return emitError() << "has " << lanes.size()
                       << " stages in its plan, but its loops have "
                       << plan.stages.size();
  for (auto [number, stage] : llvm::enumerate(plan.stages))
    if (outer[number] != stage.outer || lanes[number] != stage.lanes)
      return emitError() << "has " << outer[number] << " * " << lanes[number]
                         << " iterations in stage " << number
                         << " of its plan, but its loops have " << stage.outer
                         << " * " << stage.lanes;
  return success();
}

LogicalResult Planner::checkGiven() {
  if (failed(checkStages()))
    return failure();
  using Number = std::tuple<StringRef, int64_t, int64_t>;
  for (auto [name, own, built] :
       {Number("rows", given.getRows(), plan.rows),
        Number("blocks", given.getBlocks(), plan.blocks),
        Number("block_lanes", given.getBlockLanes(), plan.blockLanes),
        Number("rows_inside", given.getRowsInside(), plan.rowsInside),
        Number("rows_per_block", given.getRowsPerBlock(), plan.rowsPerBlock),
        Number("extent", given.getExtent(), plan.extent)})
    if (own != built)
      return emitError() << "has " << own << " as '" << name
                         << "' in its plan, but its loops have " << built;
  if (given.getGrain() > plan.extent)
    return emitError() << "has grain " << given.getGrain()
                       << " in its plan, more than its extent of "
                       << plan.extent;
  if (given.getStackBytes() < plan.stackBytes)
    return emitError() << "has " << given.getStackBytes()
                       << " bytes of stack in its plan, but needs "
                       << plan.stackBytes;
  // A mark that the planner does not follow would say what is not so.
  WalkResult marks = kernel.walk([&](Operation *op) {
    if (!op->hasAttr(NNDialect::kKeptAttr) ||
        llvm::is_contained(plan.kept, op->getResult(0)))
      return WalkResult::advance();
    op->emitOpError("is marked '")
        << NNDialect::kKeptAttr << "', but kernel '" << kernel.getSymName()
        << "' cannot keep it: it must be a row of f32 that a later stage reads";
    return WalkResult::interrupt();
  });
  return success(!marks.wasInterrupted());
}

bool analysis::hasPlan(func::FuncOp function) {
  return function->hasAttr(NNDialect::kKernelAttr) &&
         !function.getBody().empty() &&
         !function->hasAttr(NNDialect::kOptimizerAttr) &&
         !function->hasAttr(NNDialect::kRowsAttr);
}

LogicalResult analysis::planKernel(func::FuncOp kernel, bool keepsValues) {
  FailureOr<KernelPlan> plan = Planner(kernel, keepsValues).run();
  if (failed(plan))
    return failure();
  SmallVector<int64_t> outer, lanes;
  for (const Stage &stage : plan->stages) {
    outer.push_back(stage.outer);
    lanes.push_back(stage.lanes);
  }
  MLIRContext *context = kernel.getContext();
  kernel->setAttr(NNDialect::kPlanAttr,
                  nn::KernelPlanAttr::get(
                      context, plan->kind, plan->rows, outer, lanes,
                      plan->extent, plan->grain, plan->blocks, plan->blockLanes,
                      plan->rowsInside, plan->rowsPerBlock, plan->stackBytes));
  // Marks of an earlier plan.
  kernel.walk([](Operation *op) { op->removeAttr(NNDialect::kKeptAttr); });
  for (Value value : plan->kept)
    value.getDefiningOp()->setAttr(NNDialect::kKeptAttr,
                                   UnitAttr::get(context));
  return success();
}

FailureOr<KernelPlan> analysis::buildPlan(func::FuncOp kernel) {
  nn::KernelPlanAttr given = planOf(kernel);
  if (!given)
    return kernel.emitError("kernel '")
           << kernel.getSymName() << "' has no '" << NNDialect::kPlanAttr
           << "'; run plan-kernels first";
  return Planner(kernel, given).run();
}

nn::KernelPlanAttr analysis::planOf(Operation *kernel) {
  return kernel->getAttrOfType<nn::KernelPlanAttr>(NNDialect::kPlanAttr);
}
