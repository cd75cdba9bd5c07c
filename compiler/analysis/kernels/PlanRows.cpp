// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans the row template. A row is computed in stages of loops, one after the
// other: a stage per level (the number of reductions that must be complete
// before) and per length of the loop. Softmax has two levels of reductions, max
// and sum, and a third for the quotient.
#include "compiler/analysis/kernels/KernelPlanner.h"
#include "compiler/analysis/kernels/RowSums.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::analysis;
using nn::shapeOf;

// Returns true for a sum over blocks of rows that is a result of the kernel and
// read by nothing else: rows are added up in blocks. If it is the only output,
// threads divide the blocks among them, so one block is a reduction like
// others, unless the kernel reduces rows, which leaves no other way. A plan
// that was edited to `rows_per_block` 1 has none.
bool Planner::addsRows(nn::ReduceOp op) {
  if (given && given.getRowsPerBlock() == 1)
    return false;
  return sumsBlocksOfRows(op) && op->hasOneUse() &&
         *op->user_begin() == terminator && shapeOf(op.getInput())[1] > 1 &&
         (shapeOf(op.getInput())[0] > 1 || terminator->getNumOperands() > 1 ||
          reducesRows());
}

bool Planner::reducesRows() {
  return kernel
      .walk([](nn::ReduceOp op) {
        return sumsBlocksOfRows(op) ? WalkResult::advance()
                                    : WalkResult::interrupt();
      })
      .wasInterrupted();
}

void Planner::collectReductions() {
  kernel.walk([&](nn::ReduceOp op) {
    (addsRows(op) ? rowSums : reductions).push_back(op);
  });
}

// An element that is picked out of a row (take_along_axis) must be read before
// any result of the row is written, since the result may occupy the row's
// memory.
void Planner::pickBeforeStores(int current) {
  Stage stage;
  kernel.walk([&](nn::TakeAlongAxisOp op) {
    Value value = op.getResult();
    if (level(value) == current && elements(value) == plan.rows)
      stage.roots.push_back({value,
                             {},
                             -1,
                             plan.space.delinearize(plan.row, shapeOf(value)),
                             {}});
  });
  if (!stage.roots.empty())
    plan.stages.push_back(stage);
}

// Adds a row of `count` f32 values to the call's stack, and returns its number
// among the outputs.
int Planner::keepRow(int64_t count) {
  plan.keptRows.push_back(count);
  // 64 bytes for its alignment.
  plan.stackBytes += count * 4 + 64;
  return kernel.getNumResults() + plan.keptRows.size() - 1;
}

// Values to keep from one stage to the next: those that the kernel marks, or
// those that are costly. A row whose elements are not contiguous has no
// contiguous place in a buffer.
void Planner::findKeptValues(const Domain &domain) {
  if (!keepsValues || !domain.reducesTrailing())
    return;
  auto isWanted = [&](Operation *op) {
    return given ? op->hasAttr(nn::NNDialect::kKeptAttr) : isCostly(op);
  };
  kept = valuesToKeep(
      kernel, product(domain.shape), [&](Value value) { return level(value); },
      isWanted);
  for (const KeptValue &entry : kept)
    plan.kept.push_back(entry.value);
}

// Returns the domain of the kernel's rows: that of its largest reduction.
Domain Planner::rowDomain() {
  if (reductions.empty())
    return Domain(rowSums.front().getInput(), ArrayRef<int64_t>{2});
  auto larger = [&](nn::ReduceOp a, nn::ReduceOp b) {
    return elements(a.getInput()) < elements(b.getInput());
  };
  return Domain(*llvm::max_element(reductions, larger));
}

// All such sums of a kernel have blocks of one size: the range is over blocks.
LogicalResult Planner::setRowsPerBlock(const Domain &domain) {
  for (nn::ReduceOp op : rowSums) {
    ArrayRef<int64_t> shape = shapeOf(op.getInput());
    if (shape[0] * shape[1] != plan.rows || shape[2] != domain.reducedCount() ||
        !domain.reducesTrailing() ||
        (plan.rowsPerBlock != 1 && plan.rowsPerBlock != shape[1]))
      return op.emitOpError("adds other rows than its kernel '")
             << kernel.getSymName() << "' has";
    plan.rowsPerBlock = shape[1];
  }
  return success();
}

// Returns the level of the last stage.
int Planner::lastLevel() {
  int last = 0;
  for (nn::ReduceOp op : llvm::concat<nn::ReduceOp>(reductions, rowSums))
    last = std::max(last, level(op.getInput()));
  for (Value output : terminator->getOperands())
    if (!llvm::is_contained(rowSums, output.getDefiningOp()))
      last = std::max(last, level(output));
  return last;
}

LogicalResult
Planner::addOutputs(int current, const Domain &domain,
                    llvm::function_ref<SmallVector<Root, 2> &(int64_t)> loopFor,
                    Stage &scalars) {
  for (auto [i, output] : llvm::enumerate(terminator->getOperands())) {
    int number = i;
    auto sum = output.getDefiningOp<nn::ReduceOp>();
    bool addsRows = llvm::is_contained(rowSums, sum);
    if (level(addsRows ? sum.getInput() : output) != current)
      continue;
    if (addsRows) {
      loopFor(domain.reducedCount())
          .push_back({sum.getInput(), sum, number, {}, {}});
      continue;
    }
    int64_t count = elements(output);
    bool isDomain = count == product(domain.shape);
    if (count % plan.rows != 0 ||
        (count != plan.rows && !isDomain && !domain.reducesTrailing()))
      return emitError() << "has an output of other rows";
    SmallVector<Root, 2> &roots =
        count == plan.rows ? scalars.roots : loopFor(count / plan.rows);
    roots.push_back({output, {}, number, {}, {}});
  }
  return success();
}

// Elementwise work joins the loop of a reduction of the same length.
FailureOr<Planner::Loops> Planner::loopsOf(int current, const Domain &domain,
                                           Stage &scalars) {
  SmallVector<nn::ReduceOp> own;
  // Loops of a length that no reduction has are of run 0.
  std::map<int64_t, int64_t> runs; // by the length of the row
  for (nn::ReduceOp op : reductions) {
    if (level(op.getInput()) != current)
      continue;
    if (Domain(op).keptCount() != plan.rows)
      return op.emitOpError("keeps other rows than its kernel '")
             << kernel.getSymName() << "'";
    own.push_back(op);
    runs.try_emplace(Domain(op).reducedCount(), Domain(op).run());
  }
  Loops loops;
  auto loopFor = [&](int64_t count) -> SmallVector<Root, 2> & {
    return loops[{count, runs[count]}];
  };
  for (KeptValue &entry : kept)
    if (entry.level == current) {
      if (entry.output < 0)
        entry.output = keepRow(domain.reducedCount());
      loopFor(domain.reducedCount())
          .push_back({entry.value, {}, entry.output, {}, {}});
    }
  for (nn::ReduceOp op : own)
    loops[{Domain(op).reducedCount(), Domain(op).run()}].push_back(
        {op.getInput(), op, -1, {}, {}});
  if (failed(addOutputs(current, domain, loopFor, scalars)))
    return failure();
  return loops;
}

void Planner::setIndex(Root &root, const Domain &domain,
                       const IndexExpr &inner) {
  ArrayRef<int64_t> shape = shapeOf(root.value);
  if (root.addsRows()) {
    IndexExpr block = plan.space.floorDiv(plan.row, plan.rowsPerBlock);
    root.sum =
        plan.space.add(plan.space.scale(block, domain.reducedCount()), inner);
  }
  if (root.reduce && !root.addsRows()) {
    root.index = Domain(root.reduce).index(plan.space, plan.row, inner);
    return;
  }
  IndexExpr linear;
  if (domain.reducesTrailing())
    linear = plan.space.add(
        plan.space.scale(plan.row, elements(root.value) / plan.rows), inner);
  else
    linear = plan.space.linearize(domain.index(plan.space, plan.row, inner),
                                  domain.shape);
  root.index = plan.space.delinearize(linear, shape);
}

LogicalResult Planner::addStage(int64_t count, int64_t run,
                                ArrayRef<Root> roots, const Domain &domain) {
  Stage &stage = plan.stages.emplace_back();
  stage.roots.assign(roots.begin(), roots.end());
  stage.run = run;
  return chooseLanes(stage, count, /*outerDepth=*/1, /*laneDepth=*/2,
                     [&](Stage &stage, const IndexExpr &inner) {
                       for (Root &root : stage.roots)
                         setIndex(root, domain, inner);
                     });
}

// Makes a stage for each level and each length of the inner loop, then one for
// the outputs with one element per row.
LogicalResult Planner::planRows() {
  Domain domain = rowDomain();
  plan.rows = domain.keptCount();
  plan.row = plan.space.variable(0, plan.rows);
  if (failed(setRowsPerBlock(domain)))
    return failure();
  findKeptValues(domain);
  Stage scalars;
  // By level, since a stage may read only what earlier stages have reduced.
  for (int current = 0, last = lastLevel(); current <= last; ++current) {
    pickBeforeStores(current);
    FailureOr<Loops> loops = loopsOf(current, domain, scalars);
    if (failed(loops))
      return failure();
    for (const auto &[loop, roots] : *loops)
      if (failed(addStage(loop.first, loop.second, roots, domain)))
        return failure();
  }
  if (!scalars.roots.empty()) {
    for (Root &root : scalars.roots)
      root.index = plan.space.delinearize(plan.row, shapeOf(root.value));
    plan.stages.push_back(scalars);
  }
  for (Stage &stage : plan.stages)
    if (failed(checkReductions(walk(stage))))
      return failure();
  return success();
}
