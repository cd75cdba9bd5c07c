// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The planner of grids; see GridPlan.h for what it decides. Like the planner of
// loops it chooses each number, or takes all of them from the attribute.
// GridPlan.cpp chooses, CheckGrid.cpp refuses what no grid can compute.
#pragma once

#include "compiler/analysis/kernels/GridPlan.h"

namespace fsdpc::analysis {

inline constexpr int64_t kVectorBytes = 16; ///< bytes of the widest load
inline constexpr int64_t kMostLanes =
    8; ///< f32 values of a thread at a time, at most
inline constexpr int64_t kSharedBytes =
    48000; ///< shared memory per block on every GPU
/// Running sums of rows that a thread of a whole block keeps in registers, at
/// most.
inline constexpr int64_t kMostSums = 64;
/// Every block searches all ids, so there are as many threads as large GPUs
/// hold at a time, and blocks own rows of a table up to the limit of shared
/// memory.
inline constexpr int64_t kTableThreads = 1 << 17;
inline constexpr int64_t kTableRows = 1024;

/// An access to memory at adjacent lanes. At lane 0 of a vector; the others
/// follow it.
struct Access {
  int64_t bytes;     ///< per element
  int64_t alignment; ///< of the buffer, in bytes
  IndexExpr address;
};

class GridPlanner {
public:
  /// Chooses the grid.
  GridPlanner(mlir::func::FuncOp kernel, KernelPlan &plan, int64_t threads)
      : kernel(kernel), plan(plan), alignments(alignmentsOf(kernel)) {
    grid.threads = threads;
  }
  /// Takes the decisions of `given`.
  GridPlanner(mlir::func::FuncOp kernel, KernelPlan &plan, nn::GridAttr given)
      : kernel(kernel), plan(plan), given(given),
        alignments(alignmentsOf(kernel)) {
    grid.threads = given.getThreads();
  }

  mlir::FailureOr<GridPlan> run();

private:
  /// Returns the accesses of a stage, within the current range of its lane
  /// variable.
  llvm::SmallVector<Access> accesses(Stage &stage);
  /// Returns true if vectors of `width` lanes are aligned in all accesses, do
  /// not cross a cut, and at least one access needs no more than one load for
  /// them.
  bool allows(Stage &stage, int64_t width);
  /// Returns the widest allowed width that leaves at least `fewest` vectors,
  /// else 1.
  int64_t widthOf(Stage &stage, int64_t fewest);
  /// Returns the width for a row that the team shares.
  int64_t widthInTeam(Stage &stage);
  /// Sets the width of the next stage: that of the attribute, or what `choose`
  /// returns. A stage that reduces rows has the width of its order instead.
  void setWidth(const Stage &stage, llvm::function_ref<int64_t()> choose);
  /// Bytes of shared memory in which the lines of a column combine their sums.
  int64_t columnBytes(int64_t width) const;
  /// Returns how many running sums of rows a thread of the team owns.
  int64_t ownSums(int64_t team) const;
  void planMap();
  void planRows();
  void planRowSums();
  void planColumns();
  void planEmbeddingGrad();

  mlir::LogicalResult checkGiven();
  mlir::LogicalResult checkThreads();
  mlir::LogicalResult checkWidths();
  mlir::LogicalResult checkRowSums();
  mlir::InFlightDiagnostic emitError() {
    return kernel.emitError("kernel '") << kernel.getSymName() << "' ";
  }

  mlir::func::FuncOp kernel;
  KernelPlan &plan;
  nn::GridAttr given; ///< null: choose
  llvm::SmallVector<int64_t> alignments;
  GridPlan grid;
};

} // namespace fsdpc::analysis
