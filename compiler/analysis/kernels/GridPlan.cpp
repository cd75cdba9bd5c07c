// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses the width of vectors and the shape of the grid, or takes both from
// the kernel's attribute. Vectors are as wide as all accesses of a stage allow
// (adjacent, aligned, inside one part), since memory traffic bounds these
// kernels. The shape balances enough blocks to occupy the GPU against enough
// work for each thread. The order of a reduction (which threads share a row,
// and which elements each takes) is not a choice: it follows from the reduction
// (ReductionOrder.h).
#include "compiler/analysis/kernels/GridPlanner.h"
#include "compiler/dialects/nn/ElementBytes.h"

#include "compiler/analysis/kernels/BodyWalk.h"
#include "compiler/analysis/kernels/OnlineRows.h"
#include "compiler/analysis/kernels/ReductionOrder.h"
#include "compiler/analysis/kernels/RowSums.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::analysis;
using nn::NNDialect;

SmallVector<Access> GridPlanner::accesses(Stage &stage) {
  SmallVector<Access> result;
  // Only accesses at adjacent lanes are vectors; others load element by
  // element.
  auto add = [&](int64_t buffer, Type element, const IndexExpr &address) {
    if (plan.space.usesLane(address) && plan.space.laneStride(address) == 1)
      result.push_back(
          {nn::elementBytes(element), alignments[buffer], address});
  };
  BodyWalk walk(plan.space);
  for (Root &root : stage.roots) {
    walk.visit(root.value, root.index);
    if (root.output < 0)
      continue;
    Value stored = root.addsRows() ? root.reduce.getResult() : root.value;
    add(kernel.getNumArguments() + root.output,
        nn::tensorType(stored).getElementType(),
        root.addsRows()
            ? root.sum
            : plan.space.linearize(root.index, nn::shapeOf(root.value)));
  }
  for (const auto &[argument, address] : walk.reads)
    add(argument.getArgNumber(), nn::tensorType(argument).getElementType(),
        address);
  return result;
}

// `narrow` keeps vectors from being wider than any single load: nothing would
// gain from them.
bool GridPlanner::allows(Stage &stage, int64_t width) {
  SmallVector<int64_t> bounds = {0};
  llvm::append_range(bounds, stage.cuts);
  bounds.push_back(stage.lanes);
  bool result = true, narrow = false;
  for (size_t part = 0; part + 1 < bounds.size(); ++part) {
    result &= bounds[part + 1] % width == 0;
    plan.space.setRange(stage.laneVariable,
                        {bounds[part], bounds[part + 1] - 1});
    for (const Access &access : accesses(stage)) {
      narrow |= width * access.bytes <= kVectorBytes;
      // 0 if the address is 0, which every number divides: the buffer's own
      // alignment decides.
      int64_t own = access.bytes * plan.space.alignment(access.address, width);
      int64_t alignment =
          own ? std::min(own, access.alignment) : access.alignment;
      result &= alignment >= std::min(kVectorBytes, width * access.bytes);
    }
  }
  plan.space.setRange(stage.laneVariable, {0, stage.lanes - 1});
  return result && narrow;
}

int64_t GridPlanner::widthOf(Stage &stage, int64_t fewest) {
  int64_t count = stage.outer * stage.lanes;
  for (int64_t width = kMostLanes; width > 1; width /= 2)
    if (stage.lanes % width == 0 && count / width >= fewest &&
        allows(stage, width))
      return width;
  return 1;
}

// Sums in registers exist for whole vectors, so a width that leaves the last
// ones to a part of the team wastes registers of the others.
int64_t GridPlanner::widthInTeam(Stage &stage) {
  int64_t count = stage.outer * stage.lanes;
  bool sumsRows = llvm::any_of(
      stage.roots, [](const Root &root) { return root.addsRows(); });
  for (int64_t width = kMostLanes; sumsRows && width > 1; width /= 2)
    if (stage.lanes % width == 0 && count % (width * grid.team) == 0 &&
        allows(stage, width))
      return width;
  // Each thread of the team should have a vector.
  return widthOf(stage, grid.team);
}

// Stages are set in their order, so the number of widths so far is that of the
// stage.
void GridPlanner::setWidth(const Stage &stage,
                           llvm::function_ref<int64_t()> choose) {
  if (stage.run)
    grid.widths.push_back(
        rowWidthOnGrid(stage.outer * stage.lanes, stage.run, grid.team));
  else
    grid.widths.push_back(given ? given.getWidths()[grid.widths.size()]
                                : choose());
}

void GridPlanner::planMap() {
  Stage &stage = plan.stages.front();
  setWidth(stage, [&] { return widthOf(stage, 1); });
  int64_t vectors = plan.rows * stage.lanes / grid.widths.front();
  // In emulation a block is one thread, and should be worth its call.
  grid.vectors = grid.threads == 1 ? std::min<int64_t>(vectors, 256) : 1;
  if (given)
    grid.vectors = given.getVectors();
  grid.blocks = llvm::divideCeil(vectors, grid.threads * grid.vectors);
}

void GridPlanner::planRows() {
  int64_t longest = 1;
  for (const Stage &stage : plan.stages)
    longest = std::max(longest, stage.outer * stage.lanes);
  if (!given && plan.rowsPerBlock == 1)
    grid.threads = threadsOnGrid(longest, grid.threads);
  grid.team = teamOnGrid(longest, grid.threads);
  for (Stage &stage : plan.stages)
    setWidth(stage, [&] { return widthInTeam(stage); });
  for (size_t number : grid.online) {
    const Stage &stage = plan.stages[number];
    grid.widths[number] = grid.widths[number + 1] =
        onlineWidthOnGrid(stage.outer * stage.lanes, stage.run, grid.team);
  }
  grid.blocks = llvm::divideCeil(plan.rows, grid.threads / grid.team);
}

int64_t GridPlanner::ownSums(int64_t team) const {
  int64_t sums = 0;
  for (auto [stage, width] : llvm::zip_equal(plan.stages, grid.widths))
    for (const Root &root : stage.roots)
      if (root.addsRows())
        sums +=
            llvm::divideCeil(stage.outer * stage.lanes / width, team) * width;
  return sums;
}

// Rows that are added up in blocks: a thread owns the same columns of all rows
// of a block. Several teams combine sums that they keep in registers; the only
// team of a block may add to memory, in the same order.
void GridPlanner::planRowSums() {
  planRows();
  grid.blocks = plan.extent;
  grid.sumsInRegisters =
      grid.team != grid.threads || ownSums(grid.team) <= kMostSums;
  if (given && grid.team == grid.threads)
    grid.sumsInRegisters = given.getSumsInRegisters();
}

int64_t GridPlanner::columnBytes(int64_t width) const {
  int64_t bytes = 0;
  // Sums are f32 or f64; 8 bytes hold either.
  for (const Root &root : plan.stages.front().roots)
    if (root.reduce)
      bytes += grid.threads * width * 8;
  return bytes;
}

void GridPlanner::planColumns() {
  Stage &stage = plan.stages.front();
  setWidth(stage, [&] {
    int64_t width = widthOf(stage, 1);
    while (width > 1 && columnBytes(width) > kSharedBytes)
      width /= 2;
    return width;
  });
  int64_t vectors = plan.rows * stage.lanes / grid.widths.front();
  // A sum that a kernel of rows could compute too has the lines of that one.
  nn::ReduceOp op;
  for (const Root &root : stage.roots)
    if (root.reduce)
      op = root.reduce;
  grid.across =
      sumsBlocksOfRows(op) && stage.outer > 1
          ? teamOnGrid(nn::shapeOf(op.getResult()).back(), grid.threads)
          : acrossOnGrid(plan.rows * stage.lanes, stage.outer, grid.threads);
  grid.blocks = llvm::divideCeil(vectors, grid.across);
}

// The places of a frequent id are added in turn, so a row has many threads,
// each with a word of it, and all of them in one block if it may have 512
// threads.
void GridPlanner::planEmbeddingGrad() {
  constexpr int64_t word = 4, mostThreads = 512;
  Stage &stage = plan.stages.front();
  Value result = kernel.getBody().front().getTerminator()->getOperand(0);
  int64_t rows = nn::shapeOf(result)[0];
  int64_t bytes = nn::elementBytes(result.getType());
  setWidth(stage, [&]() -> int64_t {
    int64_t width =
        grid.threads == 1 ? kMostLanes : std::max(word / bytes, int64_t(1));
    while (width > 1 && (stage.lanes % width != 0 || !allows(stage, width)))
      width /= 2;
    return width;
  });
  int64_t vectors = stage.lanes / grid.widths.front();
  while (!given && grid.threads > 1 &&
         grid.threads < std::min(vectors, mostThreads))
    grid.threads *= 2;
  int64_t blocks = grid.threads == 1 ? 1 : kTableThreads / grid.threads;
  grid.tableRows =
      std::clamp<int64_t>(llvm::divideCeil(rows, blocks), 1, kTableRows);
  if (given)
    grid.tableRows = given.getTableRows();
  grid.blocks = llvm::divideCeil(rows, grid.tableRows);
}

FailureOr<GridPlan> GridPlanner::run() {
  // plan-kernels keeps no values for a GPU; an edited dump may.
  if (!plan.kept.empty())
    return emitError() << "keeps values ('" << NNDialect::kKeptAttr
                       << "'), which a grid cannot do";
  size_t buffers = kernel.getNumArguments() + kernel.getNumResults();
  if (alignments.size() != buffers)
    return emitError() << "has " << alignments.size() << " numbers in '"
                       << kAlignmentsAttr << "' for " << buffers << " buffers";
  if (plan.kind == nn::KernelTemplate::row)
    grid.online = separateOnlineStages(plan);
  if (given && failed(checkWidths()))
    return failure();
  switch (plan.kind) {
  case nn::KernelTemplate::map:
    planMap();
    break;
  case nn::KernelTemplate::row:
    plan.rowsPerBlock > 1 ? planRowSums() : planRows();
    break;
  case nn::KernelTemplate::column:
    planColumns();
    break;
  case nn::KernelTemplate::embedding_grad:
    planEmbeddingGrad();
    break;
  }
  if (given && failed(checkGiven()))
    return failure();
  return grid;
}

bool analysis::hasGrid(func::FuncOp function) {
  return function->hasAttr(NNDialect::kKernelAttr) && !function.isExternal() &&
         !function->hasAttr(NNDialect::kRowsAttr);
}

SmallVector<int64_t> analysis::alignmentsOf(func::FuncOp kernel) {
  if (auto known = kernel->getAttrOfType<DenseI64ArrayAttr>(kAlignmentsAttr))
    return llvm::to_vector(known.asArrayRef());
  return SmallVector<int64_t>(kernel.getNumArguments() + kernel.getNumResults(),
                              kVectorBytes);
}

LogicalResult analysis::planGrid(func::FuncOp kernel, int64_t threads) {
  GridPlan grid;
  grid.threads = threads;
  if (kernel->hasAttr(NNDialect::kOptimizerAttr)) {
    grid.blocks = 0;
  } else {
    FailureOr<KernelPlan> plan = buildPlan(kernel);
    if (failed(plan))
      return failure();
    FailureOr<GridPlan> chosen = GridPlanner(kernel, *plan, threads).run();
    if (failed(chosen))
      return failure();
    grid = *chosen;
  }
  kernel->setAttr(kGridAttr,
                  nn::GridAttr::get(kernel.getContext(), grid.blocks,
                                    grid.threads, grid.widths, grid.vectors,
                                    grid.team, grid.sumsInRegisters,
                                    grid.across, grid.tableRows));
  return success();
}

FailureOr<GridPlan> analysis::buildGrid(func::FuncOp kernel, KernelPlan &plan) {
  nn::GridAttr given = gridOf(kernel);
  if (!given)
    return kernel.emitError("kernel '")
           << kernel.getSymName() << "' has no '" << kGridAttr
           << "'; run plan-grids first";
  return GridPlanner(kernel, plan, given).run();
}

nn::GridAttr analysis::gridOf(Operation *kernel) {
  return kernel->getAttrOfType<nn::GridAttr>(kGridAttr);
}
