// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The plan of a kernel says how it computes: its template, its loops, and the
// outer range that threads divide among them. A plan depends on the kernel's
// body only, never on the processor or the number of threads. Its decisions are
// an attribute of the kernel (`nn.plan`), which planKernel chooses; buildPlan
// derives the rest from the attribute and the body. The order in which a
// reduction adds up is no decision of a plan: it follows from the op alone
// (ReductionOrder.h), so that an op has the same bits in every kernel.
//
//   map     each output element by itself; the range is over blocks of
//           elements
//   row     reductions and elementwise code in loops over one row (all that
//           shares the kept indices); the range is over rows. Rows may also
//           be added up in fixed blocks, element by element: the running
//           sums are the block's row of a result, and the range is over
//           blocks of rows
//   column  the innermost axis is kept: lanes are columns, and the rows are
//           added one after the other in fixed blocks; the range is over
//           blocks of columns
#pragma once

#include "compiler/analysis/kernels/IndexMap.h"
#include "compiler/dialects/nn/NNAttributes.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fsdpc::analysis {

inline constexpr int64_t kColumnBlock = 64; ///< columns per step of the range
inline constexpr int64_t kMapBlock =
    2048; ///< elements per step of a longer loop
/// If lanes are not adjacent in memory, each comes from a cache line of its
/// own, and the next row needs the same lines again. Rows of up to
/// kLongestGather lanes keep them all in the cache; longer ones are cut into
/// blocks of kGatherBlock.
inline constexpr int64_t kLongestGather = 1024, kGatherBlock = 64;

/// A value that the loops of a stage compute at each index. With `reduce` only,
/// it is the input of a reduction. With `output` only, it is stored: in that
/// result of the kernel, or, counting on from the last result, in a kept row.
/// With both, it is summed over blocks of rows (addsRows). With neither, it is
/// only computed, so that later stages find it.
struct Root {
  mlir::Value value;
  nn::ReduceOp reduce;
  int output = -1;
  Index index;

  /// Returns true for a sum over blocks of rows. `sum` is then the address of
  /// the element of the result to add to.
  bool addsRows() const { return reduce && output >= 0; }
  IndexExpr sum;
};

/// Roots that share loops of `outer` times `lanes` iterations.
struct Stage {
  llvm::SmallVector<Root, 2> roots;
  int64_t outer = 1, lanes = 1;
  /// Row template: the run of adjacent elements in which reductions of the
  /// stage number a row, or 0 if none of its roots reduces rows. `lanes` is the
  /// run, or a divisor of it that the order does not notice.
  int64_t run = 0;
  IndexExpr outerVariable, laneVariable;
  /// Lanes at which the lanes' loop is cut because a condition changes there.
  llvm::SmallVector<int64_t, 2> cuts;
  int64_t cost = 0;         ///< of one iteration, in simple ops
  bool drawsRandom = false; ///< one call draws four elements
  bool gathers = false;     ///< lanes are not adjacent in memory
};

struct KernelPlan {
  nn::KernelTemplate kind = nn::KernelTemplate::map;
  IndexSpace space;
  IndexExpr row;    ///< number of the row; map: of the run of lanes
  int64_t rows = 1; ///< column: runs of columns
  /// Blocks of lanes per row, and the lanes in each block, or 0 if the template
  /// cuts no blocks. The extent is rows · blocks.
  int64_t blocks = 1;
  int64_t blockLanes = 0;
  /// If set, the range visits a block of lanes of all rows before the next
  /// block: what one row gathers is adjacent to what the next one gathers.
  bool rowsInside = false;
  /// Row template: rows that are added up in one block, or 1.
  int64_t rowsPerBlock = 1;
  llvm::SmallVector<Stage, 3> stages;
  int64_t extent = 1, grain = 1;
  /// Values that a row keeps in memory from one loop to the next.
  llvm::SmallVector<mlir::Value, 2> kept;
  /// Lengths, in f32 values, of the rows that a call keeps on its stack.
  llvm::SmallVector<int64_t, 1> keptRows;
  int64_t stackBytes = 0; ///< bytes of stack that a call needs
};

/// Returns true if the function is a kernel with a plan: not one that the
/// runtime calls by itself, over a range that only it knows (the elements of a
/// shard, the rows of a block of scores).
bool hasPlan(mlir::func::FuncOp function);

/// Chooses the plan of a kernel, whose body must hold primitives only, and
/// writes it: `nn.plan` on the kernel, `nn.kept` on the ops whose values are
/// kept. With `keepsValues`, these are the values that cost more to compute
/// again than to read back. Emits an error if no template fits.
mlir::LogicalResult planKernel(mlir::func::FuncOp kernel, bool keepsValues);

/// Builds the loops that the kernel's attributes describe. Emits an error that
/// names the kernel and the number if they do not describe loops of its body.
mlir::FailureOr<KernelPlan> buildPlan(mlir::func::FuncOp kernel);

/// Returns the plan of a kernel as its attribute, or null if it has none.
nn::KernelPlanAttr planOf(mlir::Operation *kernel);

} // namespace fsdpc::analysis
