// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Maps the plan of a kernel to a grid of threads, each of which computes
// vectors of consecutive elements. The decisions are an attribute of the kernel
// (`nn.grid`), as those of the loops are.
//
//   map     consecutive threads take consecutive vectors, over all rows
//   row     a team of threads (one or four warps, or a block) shares a row; if
//           rows are added up in blocks, a block of threads takes a block of
//           rows
//   column  the threads of a line own columns, and the lines of a block
//           share the rows
//   embedding_grad  a block owns every n-th row of the table, and its threads
//           take vectors of these rows in turn
#pragma once

#include "compiler/analysis/kernels/KernelPlan.h"

namespace fsdpc::analysis {

inline constexpr int64_t kWarp = 32;

/// On kernels: the grid, and for each operand and result a number of bytes that
/// divides its address.
inline constexpr llvm::StringLiteral kGridAttr = "nn.grid";
inline constexpr llvm::StringLiteral kAlignmentsAttr = "nn.alignments";

struct GridPlan {
  int64_t blocks = 1, threads = 1;
  llvm::SmallVector<int64_t, 3> widths; ///< lanes per vector, for each stage
  int64_t vectors = 1;                  ///< map: per thread
  int64_t team = 1;                     ///< row: threads that share a row
  bool sumsInRegisters = false; ///< row: sums of rows added up in blocks
  /// Row: stages whose loop computes a maximum and the sum of the next stage
  /// (OnlineRows.h).
  llvm::SmallVector<size_t, 1> online;
  int64_t across = 1;    ///< column: threads per line
  int64_t tableRows = 1; ///< embedding_grad: per block
};

/// Returns true if the function is a kernel that a GPU runs. Rows of attention
/// are called by the host's runtime only.
bool hasGrid(mlir::func::FuncOp function);

/// Returns, for each operand and then each result of the kernel, a number of
/// bytes that divides its address: nn.alignments, or 16 if the kernel has none.
llvm::SmallVector<int64_t> alignmentsOf(mlir::func::FuncOp kernel);

/// Chooses the grid of a kernel that has a plan, with `threads` threads per
/// block (1, or 32, 64, … 1024), and writes it as `nn.grid`. An optimizer gets
/// 0 blocks: the runtime launches one per segment of a shard.
mlir::LogicalResult planGrid(mlir::func::FuncOp kernel, int64_t threads);

/// Builds the grid that the attribute describes. `plan` is the kernel's plan,
/// whose stages become the grid's: a maximum and its sum of exponentials may
/// leave those of other reductions.
/// Emits an error that names the kernel and the number if the grid cannot
/// compute the kernel.
mlir::FailureOr<GridPlan> buildGrid(mlir::func::FuncOp kernel,
                                    KernelPlan &plan);

/// Returns the grid of a kernel as its attribute, or null if it has none.
nn::GridAttr gridOf(mlir::Operation *kernel);

} // namespace fsdpc::analysis
