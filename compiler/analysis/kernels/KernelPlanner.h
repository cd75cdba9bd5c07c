// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The planner of kernels; see KernelPlan.h for what it decides. It runs in two
// modes, with the same code: without an attribute it chooses each number, with
// one it takes the numbers from there. One file per template (KernelPlan.cpp
// for map, PlanColumns.cpp and PlanRows.cpp) implements this class.
#pragma once

#include "compiler/analysis/kernels/BodyWalk.h"
#include "compiler/analysis/kernels/KeptValues.h"
#include "compiler/analysis/kernels/KernelPlan.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "llvm/ADT/STLExtras.h"

#include <map>

namespace fsdpc::analysis {

/// 1 for a scalar's shape.
inline int64_t product(llvm::ArrayRef<int64_t> values) {
  int64_t result = 1;
  for (int64_t value : values)
    result *= value;
  return result;
}

/// The domain of a reduction: the shape that it reads, and which dimensions it
/// reduces.
struct Domain {
  llvm::SmallVector<int64_t> shape;
  llvm::SmallVector<bool> reduced;

  explicit Domain(nn::ReduceOp op) : Domain(op.getInput(), op.getAxes()) {}
  Domain(mlir::Value value, llvm::ArrayRef<int64_t> axes)
      : shape(nn::shapeOf(value)), reduced(shape.size(), false) {
    for (int64_t axis : axes)
      reduced[axis] = true;
  }
  /// The sizes of the reduced, or of the kept, dimensions.
  llvm::SmallVector<int64_t> sizes(bool ofReduced) const {
    llvm::SmallVector<int64_t> result;
    for (auto [size, isReduced] : llvm::zip(shape, reduced))
      if (isReduced == ofReduced)
        result.push_back(size);
    return result;
  }
  int64_t keptCount() const { return product(sizes(false)); }
  int64_t reducedCount() const { return product(sizes(true)); }
  /// Returns how many adjacent elements are reduced together: the product of
  /// the innermost reduced dimensions, sizes of 1 aside.
  int64_t run() const {
    int64_t result = 1;
    for (auto [size, isReduced] :
         llvm::zip(llvm::reverse(shape), llvm::reverse(reduced))) {
      if (isReduced)
        result *= size;
      else if (size != 1 && result != 1)
        break;
    }
    return result;
  }
  /// Returns true if the innermost dimension larger than 1 is reduced.
  bool reducesInnermost() const {
    for (auto [size, isReduced] :
         llvm::zip(llvm::reverse(shape), llvm::reverse(reduced)))
      if (size != 1)
        return isReduced;
    return true;
  }
  /// Returns true if all reduced dimensions follow all kept ones, sizes of 1
  /// aside: each row is then contiguous.
  bool reducesTrailing() const {
    bool seen = false;
    for (auto [size, isReduced] : llvm::zip(shape, reduced)) {
      if (size == 1)
        continue;
      if (seen && !isReduced)
        return false;
      seen |= isReduced;
    }
    return true;
  }
  /// Returns the index, in the domain, of the element with position `kept`
  /// among the kept dimensions and `inner` among the reduced ones, both
  /// row-major.
  Index index(IndexSpace &space, const IndexExpr &kept,
              const IndexExpr &inner) const {
    Index outer = space.delinearize(kept, sizes(false));
    Index within = space.delinearize(inner, sizes(true));
    Index result;
    const IndexExpr *k = outer.begin(), *r = within.begin();
    for (bool isReduced : reduced)
      result.push_back(isReduced ? *r++ : *k++);
    return result;
  }
};

/// Plans one kernel and is used once. The kernel is not changed, and must
/// outlive the plan, which refers to its ops and values.
class Planner {
public:
  /// Chooses the plan. With `keepsValues` stages may keep rows of values in
  /// memory for later stages, instead of computing them again.
  Planner(mlir::func::FuncOp kernel, bool keepsValues)
      : kernel(kernel), terminator(kernel.getBody().front().getTerminator()),
        keepsValues(keepsValues) {}
  /// Takes the decisions of `given`.
  Planner(mlir::func::FuncOp kernel, nn::KernelPlanAttr given)
      : kernel(kernel), terminator(kernel.getBody().front().getTerminator()),
        keepsValues(true), given(given) {}

  /// Returns the plan. Emits an error at the kernel and fails if no template
  /// can compute it, or if the given attribute does not describe it.
  mlir::FailureOr<KernelPlan> run();

private:
  // Planning, in the order of the calls.

  /// Refuses kernels whose expressions are nested too deeply for the walks of
  /// planner and emitter, which recurse. Such kernels come from edited dumps.
  mlir::LogicalResult checkDepth();
  /// Chooses by what is reduced: nothing, rows, columns, or rows of a lookup.
  nn::KernelTemplate chooseTemplate();
  mlir::LogicalResult checkTemplate();
  /// Returns true if all reductions run down columns of one domain, straight
  /// from the operands, and all outputs have one element per column.
  bool fitsColumns();
  /// One per template; each fills in the stages of `plan`.
  mlir::LogicalResult planMap();
  mlir::LogicalResult planColumns();
  mlir::LogicalResult planEmbeddingGrad();
  void collectReductions();
  /// Returns how many reductions of a row must be complete before the value can
  /// be computed, one after the other. Levels become stages.
  int level(mlir::Value value);
  /// Sets the blocks of lanes: those of the attribute, or of `chosen` lanes
  /// each (0 for none).
  mlir::LogicalResult cutBlocks(const Stage &stage, int64_t chosen);
  /// Sets the least part of the outer range that is worth a thread.
  void setGrain();
  /// Compares what was built with the attribute.
  mlir::LogicalResult checkGiven();
  mlir::LogicalResult checkStages();
  mlir::InFlightDiagnostic emitError();

  /// Sets the number of lanes of the innermost loop of the last stage: that of
  /// the attribute, or all `count` elements, or the largest divisor of it that
  /// keeps every address linear in the lane. `index` sets the indices of the
  /// roots for a linear position.
  /// The lanes of a stage that reduces rows keep the order of its reductions.
  using SetIndices = llvm::function_ref<void(Stage &, const IndexExpr &)>;
  mlir::LogicalResult chooseLanes(Stage &stage, int64_t count, int outerDepth,
                                  int laneDepth, SetIndices index);
  /// Builds the stage with `lanes` lanes. Returns what its body is like.
  BodyWalk setLanes(Stage &stage, int64_t count, int64_t lanes, int outerDepth,
                    int laneDepth, SetIndices index);
  /// Walks the bodies of the stage's roots, and sets its cuts.
  BodyWalk walk(Stage &stage);
  mlir::LogicalResult checkReductions(const BodyWalk &walk);

  // ---- PlanRows.cpp ----
  // The roots of a level, by the loop that computes them: its length, and the
  // run of the rows that it reduces (Stage::run).
  using Loop = std::pair<int64_t, int64_t>;
  using Loops = std::map<Loop, llvm::SmallVector<Root, 2>>;
  mlir::LogicalResult planRows();
  Domain rowDomain();
  mlir::LogicalResult setRowsPerBlock(const Domain &domain);
  void findKeptValues(const Domain &domain);
  int lastLevel();
  void pickBeforeStores(int level);
  int keepRow(int64_t count);
  mlir::FailureOr<Loops> loopsOf(int level, const Domain &domain,
                                 Stage &scalars);
  /// Adds the outputs of the level to the loops that `loopFor` returns for
  /// their lengths, and those with one element per row to `scalars`.
  mlir::LogicalResult
  addOutputs(int level, const Domain &domain,
             llvm::function_ref<llvm::SmallVector<Root, 2> &(int64_t)> loopFor,
             Stage &scalars);
  mlir::LogicalResult addStage(int64_t count, int64_t run,
                               llvm::ArrayRef<Root> roots,
                               const Domain &domain);
  /// Sets the index of a root for element `inner` of the row.
  void setIndex(Root &root, const Domain &domain, const IndexExpr &inner);

  int64_t elements(mlir::Value value) { return product(nn::shapeOf(value)); }

  mlir::func::FuncOp kernel;
  mlir::Operation *terminator;
  bool keepsValues;
  nn::KernelPlanAttr given; ///< null: choose
  KernelPlan plan;
  bool addsRows(nn::ReduceOp op);
  bool reducesRows(); ///< and not only adds them up

  llvm::SmallVector<nn::ReduceOp> reductions; ///< in program order
  /// Over blocks of rows, in program order.
  llvm::SmallVector<nn::ReduceOp> rowSums;
  llvm::SmallVector<KeptValue, 2> kept;
  llvm::DenseMap<mlir::Value, int> levels;
};

} // namespace fsdpc::analysis
